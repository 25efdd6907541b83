package natschain

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/chaingql/chaingql"
)

// A place is where a cursor is in the stream.
type place struct {
	seq    uint64          // of the newest block at or below the cursor, 0 where there never was one
	cursor chaingql.Cursor // that block's, "" where it is not known
	linked bool            // that block names the one before it
	absent bool            // that block is gone from the stream
	past   bool            // the cursor is past the newest block
	gone   bool            // blocks past the cursor may be gone
}

// end is the place that blocks short of the cursor end before.
func (p place) end(c chaingql.Cursor) uint64 {
	if p.cursor == c {
		return p.seq
	}
	return p.seq + 1
}

// place is where a block is.
func (s *stored) place() place {
	return place{seq: s.seq, cursor: s.block.Cursor, linked: s.prev != nil}
}

// place finds a cursor: without a request where it was met lately, which may
// have been in a stream that is no more (see since), else by search.
func (b *Backend) place(ctx context.Context, c chaingql.Cursor) (place, error) {
	if p, known := b.marks.at(c); known {
		return p, nil
	}
	return b.search(ctx, c)
}

// search finds a cursor by halving what is stored, with one request for each bit
// of its number. A message that is no block may mislead it: then the two blocks
// that it ends between are no neighbors, and it looks again, at blocks only.
func (b *Backend) search(ctx context.Context, c chaingql.Cursor) (place, error) {
	p, sure, err := b.halve(ctx, c, func(seq, _ uint64) (stored, bool, error) {
		if s, known := b.marks.step(seq); known {
			return s, true, nil
		}
		s, _, some, err := b.at(ctx, seq)
		if some {
			b.marks.noteStep(seq, s)
		}
		return s, some, err
	})
	if err == nil && !sure {
		p, _, err = b.halve(ctx, c, func(seq, end uint64) (stored, bool, error) { return b.blockAt(ctx, seq, end) })
	}
	return p, err
}

// blockAt is the first block from a place in the stream on, short of another.
func (b *Backend) blockAt(ctx context.Context, seq, end uint64) (stored, bool, error) {
	for seq < end {
		next, _, some, err := b.at(ctx, seq)
		if err != nil || !some {
			return stored{}, false, err
		}
		seq = next.seq
		if is, known := b.isBlock(&next); is {
			return next, true, nil
		} else if known {
			seq++
			continue
		}
		blocks, err := b.chain(ctx, nil, seq-min(seq-1, window), seq+window, 2*window)
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

// halve searches with a function for the first block from a place on. It is sure
// if the blocks on both sides of the cursor are neighbors.
func (b *Backend) halve(
	ctx context.Context, c chaingql.Cursor, at func(seq, end uint64) (stored, bool, error),
) (p place, sure bool, err error) {
	high, some, end, err := b.tail(ctx)
	if err != nil {
		return place{}, false, err
	}
	if !some {
		return place{seq: end, gone: end > 0}, true, nil
	}
	b.marks.note(high)
	if high.block.Cursor <= c {
		p := high.place()
		p.past = p.cursor < c
		return p, true, nil
	}
	var low stored // none yet: reading the oldest block takes the server long, as it is seldom asked for
	thinned := false
	for from, to := uint64(1), high.seq; from < to && low.block.Cursor != c; {
		mid := roundest(from, to)
		s, some, err := at(mid, high.seq)
		switch {
		case err != nil:
			return place{}, false, err
		case !some || s.seq >= high.seq: // no block is there, or the lower ones went meanwhile
			to, thinned = mid, true
		case s.block.Cursor <= c:
			low, from = s, s.seq+1
		default:
			high, to = s, mid
		}
	}
	if low.seq == 0 {
		low, some, err = at(1, high.seq+1)
		switch {
		case err != nil:
			return place{}, false, err
		case !some: // all of it went meanwhile
			return place{seq: high.seq, gone: true}, true, nil
		case c < low.block.Cursor:
			sure, err := b.linked(ctx, low)
			return below(low, c), sure, err
		}
	}
	p = low.place()
	if thinned {
		if there, err := b.still(ctx, p); !there || err != nil {
			return place{seq: high.seq - 1, gone: true}, true, err
		}
	}
	if p.cursor == c {
		sure, err := b.linked(ctx, low)
		return p, sure, err
	}
	if sure = p.admits(&high); sure && high.prev == nil { // which says little
		if sure, err = b.linked(ctx, low); sure {
			sure, err = b.linked(ctx, high)
		}
	}
	return p, sure, err
}

// roundest is the number from one to short of another that the most zero bits
// end, so that searches come by the same places, which are remembered.
func roundest(from, to uint64) uint64 {
	low := bits.Len64((from-1)^(to-1)) - 1
	return (to - 1) >> low << low
}

// below is the place of a cursor below the oldest block, which tells what the
// block before it was.
func below(oldest stored, c chaingql.Cursor) place {
	p := place{seq: oldest.seq - 1, absent: true}
	switch {
	case oldest.prev != nil && *oldest.prev == "": // none is gone
		return place{}
	case oldest.seq == 1:
	case oldest.prev == nil || c < *oldest.prev:
		p.gone = true
	default:
		p.cursor = *oldest.prev
	}
	return p
}

// since sees, when a page was read, that nothing past a place had gone by then:
// the oldest messages go first. Where the message of the place is not there it
// looks twice: another stream may have grown up to it between two answers.
func (b *Backend) since(ctx context.Context, p place) error {
	if there, err := b.still(ctx, p); there || err != nil {
		return err
	}
	if err := b.nothingGone(ctx, p); err != nil {
		return err
	}
	_, err := b.still(ctx, p)
	return err
}

// still tells whether the message of a place is there, and the one that it was.
func (b *Backend) still(ctx context.Context, p place) (bool, error) {
	if p.seq == 0 || p.absent {
		return false, nil
	}
	s, some, err := b.block(ctx, wanted{Seq: p.seq})
	if some && p.cursor != "" && s.block.Cursor != p.cursor {
		return false, errReplaced
	}
	return some, err
}

// nothingGone sees that what is past a place, whose own message is gone, is there.
func (b *Backend) nothingGone(ctx context.Context, p place) error {
	next, first, some, err := b.at(ctx, p.seq+1)
	switch {
	case err != nil:
		return err
	case some && (first == p.seq+1 || p.cursor != "" && next.follows(p.cursor)):
		return nil
	case some:
		return chaingql.ErrCursorTooOld
	}
	last, err := b.lastSeq(ctx)
	switch {
	case err != nil:
		return err
	case last < p.seq:
		return errReplaced
	case last == p.seq:
		return nil
	}
	if _, first, some, err = b.at(ctx, p.seq+1); err == nil && (!some || first > p.seq+1) { // else it came between
		return chaingql.ErrCursorTooOld
	}
	return err
}

// missing tells why the stream has not the message behind a place: the oldest
// ones are gone, or somebody deleted single ones.
func (b *Backend) missing(ctx context.Context, p place) error {
	if err := b.since(ctx, p); err != nil {
		return err
	}
	next, first, some, err := b.at(ctx, p.seq+1)
	if err != nil || !some || first == p.seq+1 {
		return errors.Join(err, errSkipped)
	}
	return fmt.Errorf("messages %d to %d of the stream were deleted, and those before them not", p.seq+1, next.seq-1)
}

// lastSeq is the number of the newest message, which may be gone.
func (b *Backend) lastSeq(ctx context.Context) (uint64, error) {
	info, err := b.info(ctx, b.names.stream)
	if err != nil {
		return 0, failed("look at the stream", err)
	}
	return info.State.LastSeq, nil
}

// marks are the places of the blocks that were read last, so that who reads on
// from one costs no search.
type marks struct {
	mu     sync.Mutex
	places map[chaingql.Cursor]place
	ring   [mostMarks]chaingql.Cursor
	n      int

	steps map[uint64]stored // of searches: the first block from a place on
}

const mostMarks = 4096

func (m *marks) at(c chaingql.Cursor) (place, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, known := m.places[c]
	return p, known
}

func (m *marks) note(blocks ...stored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places = make(map[chaingql.Cursor]place)
	}
	for i := range blocks {
		c := blocks[i].block.Cursor
		if _, known := m.places[c]; !known {
			oldest := &m.ring[m.n%mostMarks]
			delete(m.places, *oldest)
			*oldest = c
			m.n++
		}
		m.places[c] = blocks[i].place()
	}
}

// step returns the first block from a place on, if that is remembered.
func (m *marks) step(seq uint64) (stored, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.steps[seq]
	return s, known
}

// noteStep remembers the places that many searches come by: each 256th, of a
// longer stream some of them.
func (m *marks) noteStep(seq uint64, s stored) {
	if seq%leaf != 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps == nil {
		m.steps = make(map[uint64]stored)
	}
	for other := range m.steps { // any
		if len(m.steps) < mostMarks {
			break
		}
		delete(m.steps, other)
	}
	m.steps[seq] = s
}

func (m *marks) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.places)
	clear(m.ring[:])
	clear(m.steps)
}
