package natschain

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chaingql/chaingql"
)

// A place is where a cursor is in the stream.
type place struct {
	seq    uint64          // of the newest block at or below the cursor, 0 where there never was one
	cursor chaingql.Cursor // that block's, "" where it is not known
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
func (s *stored) place() place { return place{seq: s.seq, cursor: s.block.Cursor} }

// place finds a cursor: without a request where it was met lately, which may
// have been in a stream that is no more (see since), else by search.
func (b *Backend) place(ctx context.Context, c chaingql.Cursor) (place, error) {
	if seq, known := b.marks.at(c); known {
		return place{seq: seq, cursor: c}, nil
	}
	return b.search(ctx, c)
}

// search finds a cursor by halving what is stored, with one request for each bit
// of its number.
func (b *Backend) search(ctx context.Context, c chaingql.Cursor) (place, error) {
	high, some, err := b.tail(ctx)
	if err != nil {
		return place{}, err
	}
	if !some {
		return place{seq: high.seq, gone: high.seq > 0}, nil
	}
	b.marks.note(high)
	if high.block.Cursor <= c {
		p := high.place()
		p.past = p.cursor < c
		return p, nil
	}
	low, some, err := b.at(ctx, 1)
	switch {
	case err != nil:
		return place{}, err
	case !some: // all of it went meanwhile
		return place{seq: high.seq, gone: true}, nil
	case c < low.block.Cursor:
		return below(low, c), nil
	}
	for low.block.Cursor != c && high.seq-low.seq > 1 {
		mid, some, err := b.at(ctx, low.seq+(high.seq-low.seq)/2)
		if err != nil {
			return place{}, err
		}
		switch {
		case !some || mid.seq >= high.seq: // the lower ones went meanwhile
			return place{seq: high.seq - 1, gone: true}, nil
		case mid.block.Cursor <= c:
			low = mid
		default:
			high = mid
		}
	}
	if low.block.Cursor == c {
		b.marks.note(low)
	}
	return low.place(), nil
}

// below is the place of a cursor below the oldest block, which tells what the
// block before it was.
func below(oldest stored, c chaingql.Cursor) place {
	p := place{seq: oldest.seq - 1}
	switch {
	case oldest.seq == 1: // none is gone
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
	if p.seq == 0 {
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
	next, some, err := b.at(ctx, p.seq+1)
	switch {
	case err != nil:
		return err
	case some && next.seq == p.seq+1:
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
	if next, some, err = b.at(ctx, p.seq+1); err == nil && (!some || next.seq > p.seq+1) { // else it came between
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
	next, some, err := b.at(ctx, p.seq+1)
	if err != nil || !some || next.seq == p.seq+1 {
		return errors.Join(err, errSkipped)
	}
	return fmt.Errorf("messages %d to %d of the stream were deleted, and those before them not", p.seq+1, next.seq-1)
}

// tail is the newest block, or the number alone of the newest message where that
// is gone, 0 where there never was one.
func (b *Backend) tail(ctx context.Context) (newest stored, some bool, err error) {
	newest, some, err = b.newest(ctx, b.names.all())
	if err != nil || some {
		return newest, some, err
	}
	last, err := b.lastSeq(ctx)
	if err != nil || last == 0 {
		return stored{}, false, err
	}
	newest, some, err = b.newest(ctx, b.names.all()) // the first may have come between
	if err == nil && !some {
		newest.seq = last
	}
	return newest, some, err
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
	mu   sync.Mutex
	seqs map[chaingql.Cursor]uint64
	ring [mostMarks]chaingql.Cursor
	n    int
}

const mostMarks = 4096

func (m *marks) at(c chaingql.Cursor) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq, known := m.seqs[c]
	return seq, known
}

func (m *marks) note(blocks ...stored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seqs == nil {
		m.seqs = make(map[chaingql.Cursor]uint64)
	}
	for i := range blocks {
		c := blocks[i].block.Cursor
		if _, known := m.seqs[c]; !known {
			oldest := &m.ring[m.n%mostMarks]
			delete(m.seqs, *oldest)
			*oldest = c
			m.n++
		}
		m.seqs[c] = blocks[i].seq
	}
}

// forget is for when the stream turns out to be another.
func (m *marks) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.seqs)
	clear(m.ring[:])
}
