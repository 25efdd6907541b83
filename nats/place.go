package natschain

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/chaingql/chaingql"
)

// A place is the position of a cursor in the stream.
type place struct {
	seq       uint64          // sequence number of the newest block at or below the cursor, 0 if none ever existed
	cursor    chaingql.Cursor // cursor of that block, "" if unknown
	hash      chaingql.Hash   // hash of that block, if it was not removed and the cursor is known
	linked    bool            // whether that block contains the cursor of its predecessor
	epoch     int64           // epoch that the message of that block contains, 0 if unknown
	pruned    bool            // whether that block was removed from the stream
	beyondEnd bool            // whether the cursor is after the newest block
	tooOld    bool            // whether blocks after the cursor may have been removed
}

// end returns the exclusive upper bound of the sequence numbers of the blocks before the
// cursor c. The receiver p must be the place of c.
func (p place) end(c chaingql.Cursor) uint64 {
	if p.cursor == c {
		return p.seq
	}
	return p.seq + 1
}

// place returns the place of the block s.
func (s *stored) place() place {
	return place{seq: s.seq, cursor: s.block.Cursor, hash: s.block.Hash, linked: s.prev != nil, epoch: s.epoch}
}

// place returns the place of a cursor, from the cache or by a search. A cached place may
// belong to a stream that was replaced since then: see checkNotPruned.
func (b *Backend) place(ctx context.Context, c chaingql.Cursor) (place, error) {
	if p, known := b.places.get(c); known {
		return p, nil
	}
	return b.search(ctx, c)
}

// search finds the place of a cursor by binary search. It needs about one request per bit of the stream's newest
// sequence number. Messages that are not blocks may mislead the search. Then the two messages between which it ends are
// not consecutive blocks, and search repeats it with blocks only.
func (b *Backend) search(ctx context.Context, c chaingql.Cursor) (place, error) {
	p, sure, err := b.binarySearch(ctx, c, func(seq, _ uint64) (stored, bool, error) {
		if s, known := b.places.searchStep(seq); known {
			return s, true, nil
		}
		s, _, found, err := b.messageFrom(ctx, seq)
		if found {
			b.places.addSearchStep(seq, s)
		}
		return s, found, err
	})
	if err == nil && !sure {
		p, _, err = b.binarySearch(ctx, c, func(seq, end uint64) (stored, bool, error) {
			return b.blockAt(ctx, seq, end)
		})
	}
	return p, err
}

// blockAt returns the first block with a sequence number in [seq, end).
func (b *Backend) blockAt(ctx context.Context, seq, end uint64) (stored, bool, error) {
	for seq < end {
		next, _, found, err := b.messageFrom(ctx, seq)
		if err != nil || !found {
			return stored{}, false, err
		}
		seq = next.seq
		if is, known := b.isBlock(&next); is {
			return next, true, nil
		} else if known {
			seq++
			continue
		}
		blocks, err := b.surroundings(ctx, seq, seq+1, window, window-1)
		if err != nil {
			return stored{}, false, err
		}
		for _, s := range blocks {
			if s.seq >= seq {
				return s, true, nil
			}
		}
		seq += window
	}
	return stored{}, false, nil
}

// binarySearch returns the place of the cursor c. The function at returns the first message with a sequence number in
// [seq, end). The result is sure if the blocks directly before and after c are consecutive.
func (b *Backend) binarySearch(
	ctx context.Context, c chaingql.Cursor, at func(seq, end uint64) (stored, bool, error),
) (p place, sure bool, err error) {
	high, found, end, err := b.tail(ctx)
	if err != nil {
		return place{}, false, err
	}
	if !found {
		return place{seq: end, tooOld: end > 0}, true, nil
	}
	b.places.add(high)
	if high.block.Cursor <= c {
		p := high.place()
		p.beyondEnd = p.cursor < c
		return p, true, nil
	}
	var low stored // not set to the oldest block, because servers read such rarely used messages slowly
	thinned := false
	for from, to := uint64(1), high.seq; from < to && low.block.Cursor != c; {
		mid := roundestBetween(from, to)
		s, found, err := at(mid, high.seq)
		switch {
		case err != nil:
			return place{}, false, err
		case !found || s.seq >= high.seq: // there is no block, or the lower ones were removed meanwhile
			to, thinned = mid, true
		case s.block.Cursor <= c:
			low, from = s, s.seq+1
		default:
			high, to = s, mid
		}
	}
	if thinned && low.seq > 0 { // low may be a cached step of an earlier search
		there, err := b.present(ctx, low.place())
		if err != nil {
			return place{}, false, err
		}
		if !there {
			low = stored{}
		}
	}
	if low.seq == 0 {
		low, found, err = at(1, high.seq+1)
		switch {
		case err != nil:
			return place{}, false, err
		case !found: // all blocks were removed meanwhile
			return place{seq: high.seq, tooOld: true}, true, nil
		case c < low.block.Cursor:
			sure, err := b.isLinked(ctx, low)
			return placeBelow(low, c), sure, err
		}
	}
	p = low.place()
	if p.cursor == c {
		sure, err := b.isLinked(ctx, low)
		return p, sure, err
	}
	if sure = p.admits(&high); sure && high.prev == nil { // high does not name its predecessor
		if sure, err = b.isLinked(ctx, low); sure {
			sure, err = b.isLinked(ctx, high)
		}
	}
	return p, sure, err
}

// roundestBetween returns the number in [from, to) that has the most trailing zero bits.
// Different searches thus read the same messages, which are cached.
func roundestBetween(from, to uint64) uint64 {
	low := bits.Len64((from-1)^(to-1)) - 1
	return (to - 1) >> low << low
}

// placeBelow returns the place of c, a cursor before the oldest block. The oldest block may contain the cursor of its
// predecessor, which shows whether blocks after c were removed.
func placeBelow(oldest stored, c chaingql.Cursor) place {
	if oldest.follows("") { // nothing was removed
		return place{epoch: oldest.epoch}
	}
	p := place{seq: oldest.seq - 1, epoch: oldest.epoch, pruned: true}
	if oldest.prev != nil {
		p.cursor = *oldest.prev
	}
	p.tooOld = oldest.seq > 1 && (oldest.prev == nil || c < p.cursor)
	return p
}

// checkNotPruned returns an error if messages after p were removed from the stream. It is
// called after a page was read. The oldest messages are removed first, so if the message at
// p still exists, no later one was removed. If the message at p is missing, checkNotPruned
// reads it twice, because a new stream may have grown up to p between two responses.
func (b *Backend) checkNotPruned(ctx context.Context, p place) error {
	if there, err := b.present(ctx, p); there || err != nil {
		return err
	}
	if err := b.checkNextPresent(ctx, p); err != nil {
		return err
	}
	_, err := b.present(ctx, p)
	return err
}

// present reports whether the block at p is still in the stream. It returns errReplaced if
// a different block has the sequence number of p.
func (b *Backend) present(ctx context.Context, p place) (bool, error) {
	if p.seq == 0 || p.pruned {
		return false, nil
	}
	s, found, err := b.block(ctx, getRequest{Seq: p.seq})
	if found && p.cursor != "" && (s.block.Cursor != p.cursor || s.block.Hash != p.hash) {
		return false, errReplaced
	}
	return found, err
}

// checkNextPresent returns an error if the message after p was removed. It is called if the
// message at p itself is missing.
func (b *Backend) checkNextPresent(ctx context.Context, p place) error {
	next, first, found, err := b.messageFrom(ctx, p.seq+1)
	switch {
	case err != nil:
		return err
	case found && (first == p.seq+1 || p.cursor != "" && next.follows(p.cursor)):
		return nil
	case found:
		return chaingql.ErrCursorTooOld
	}
	_, whole, err := b.state(ctx)
	switch {
	case err != nil:
		return err
	case whole.end <= p.seq:
		return errReplaced
	case whole.end == p.seq+1:
		return nil
	}
	_, first, found, err = b.messageFrom(ctx, p.seq+1)
	if err == nil && (!found || first > p.seq+1) { // otherwise the message arrived between the two requests
		return chaingql.ErrCursorTooOld
	}
	return err
}

// missingError returns the reason why the message after p is missing: either the oldest
// messages were pruned, or messages were deleted from the middle of the stream.
func (b *Backend) missingError(ctx context.Context, p place) error {
	if err := b.checkNotPruned(ctx, p); err != nil {
		return err
	}
	next, first, found, err := b.messageFrom(ctx, p.seq+1)
	if err != nil || !found || first == p.seq+1 {
		return errors.Join(err, errSkipped)
	}
	return fmt.Errorf("messages %d to %d were deleted from the middle of the stream", p.seq+1, next.seq-1)
}

// A placeCache contains the places of recently read blocks. A read that continues after one
// of these blocks needs no search.
type placeCache struct {
	mu     sync.Mutex
	places map[chaingql.Cursor]place
	ring   [maxPlaces]chaingql.Cursor
	n      int

	steps map[uint64]stored // results of messageFrom in searches, by sequence number
}

const maxPlaces = 4096

func (m *placeCache) get(c chaingql.Cursor) (place, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, known := m.places[c]
	return p, known
}

func (m *placeCache) add(blocks ...stored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places = make(map[chaingql.Cursor]place)
	}
	for i := range blocks {
		c := blocks[i].block.Cursor
		if _, known := m.places[c]; !known {
			oldest := &m.ring[m.n%maxPlaces]
			delete(m.places, *oldest)
			*oldest = c
			m.n++
		}
		m.places[c] = blocks[i].place()
	}
}

// searchStep returns the cached result of messageFrom for seq.
func (m *placeCache) searchStep(seq uint64) (stored, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.steps[seq]
	return s, known
}

// addSearchStep caches s as the result of messageFrom for seq if seq is a multiple of
// leafSize, because many binary searches read these messages. If the cache is full, it
// evicts random entries.
func (m *placeCache) addSearchStep(seq uint64, s stored) {
	if seq%leafSize != 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps == nil {
		m.steps = make(map[uint64]stored)
	}
	for other := range m.steps { // evicts in random order
		if len(m.steps) < maxPlaces {
			break
		}
		delete(m.steps, other)
	}
	m.steps[seq] = s
}

func (m *placeCache) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.places)
	clear(m.ring[:])
	clear(m.steps)
}
