package chaos_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A fate is what becomes of missing blocks.
type fate struct {
	restart bool // the service is replaced while it searches for them
	lost    bool // for good
	late    bool // they turn up after the service has given them up
}

// A hole is one or more blocks of a shard, one after the other, that the source
// does not have at first: neither Follow yields them nor does Blocks return them.
type hole struct {
	fate
	first   int // the number of the first
	shard   uint64
	blocks  map[chaingql.Cursor]bool
	before  chaingql.Cursor // the block of the shard before them
	hidden  time.Time       // when they were due
	noticed chan struct{}   // closed when the service asks Blocks for them

	// The source's lock guards these.
	asked, filled time.Time
	replaced      int // the service that was shut down while it searched; -1 for none
}

// A source has all blocks of a chain except those of holes.
type source struct {
	*memchain.Chain

	mu    sync.Mutex
	holes []*hole
}

// hide opens a hole, before its blocks are committed.
func (s *source) hide(h *hole) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.hidden = time.Now()
	s.holes = append(s.holes, h)
}

// fill gives the source the blocks of a hole.
func (s *source) fill(h *hole) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.filled = time.Now()
}

// outlives notes that the hole was being searched for when a service was shut down.
func (s *source) outlives(h *hole, service int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.replaced = service
}

// lacks tells whether a block is in a hole that is not filled.
func (s *source) lacks(c chaingql.Cursor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holes {
		if h.filled.IsZero() && h.blocks[c] {
			return true
		}
	}
	return false
}

// missing returns how many blocks are in holes that are not filled. If the query
// searches for some of them, that is noted: a service asks like that for what its
// Follow left out, and for nothing else.
func (s *source) missing(q chaingql.BlocksQuery) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holes {
		if !h.filled.IsZero() {
			continue
		}
		n += len(h.blocks)
		for c := range h.blocks {
			searched := q.Workchain != nil && q.First+q.Last > 1 && q.After < c && c < q.Before &&
				(q.Shard == nil || *q.Shard == h.shard)
			if searched && h.asked.IsZero() {
				h.asked = time.Now()
				close(h.noticed)
			}
		}
	}
	return n
}

// Blocks implements [chaingql.Backend].
func (s *source) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	first, last := q.First, q.Last
	if more := s.missing(q); first > 0 {
		q.First += more
	} else {
		q.Last += more
	}
	all, err := s.Chain.Blocks(ctx, q)
	var kept []chaingql.Block
	for _, b := range all {
		if !s.lacks(b.Cursor) {
			kept = append(kept, b)
		}
	}
	if first > 0 {
		return kept[:min(first, len(kept))], err
	}
	return kept[max(0, len(kept)-last):], err
}

// Follow implements [chaingql.Backend].
func (s *source) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range s.Chain.Follow(ctx, after) {
			if err == nil && s.lacks(b.Cursor) {
				continue
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// strict is how soon missing blocks must turn up for the service to have them for
// everybody: it searches, and holds pages back, for five seconds, in which some of its reads fail.
const strict = 3 * time.Second

// A loss is what the source did with the blocks of a hole, in the end.
type loss struct {
	*hole
	optional bool // clients may be sent on without the blocks, if they are told
}

// String says what became of the block, if anything did.
func (l loss) String() string {
	if l.hole == nil {
		return ""
	}
	return fmt.Sprintf(", missing behind %q: due %s, searched %s, filled %s",
		l.before, clock(l.hidden), clock(l.asked), clock(l.filled))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// losses returns all holes by the numbers of their blocks.
func (w *world) losses() map[int]loss {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	all := map[int]loss{}
	for _, h := range w.source.holes {
		l := loss{h, h.filled.IsZero() || h.filled.Sub(h.hidden) > strict}
		for c := range h.blocks {
			all[w.truth.place[c]] = l
		}
	}
	return all
}

// holeAt makes a hole of a block, of two where that is possible and wanted. Its
// shard must go on before and after it, and soon, or nobody could notice; and
// others must have blocks in between, or nobody would have to be sent back.
func (t *truth) holeAt(n, size int, f fate) *hole {
	h := &hole{
		fate: f, first: n, shard: t.blocks[n].Shard, blocks: map[chaingql.Cursor]bool{},
		noticed: make(chan struct{}), replaced: -1,
	}
	before := t.neighbour(n, -1)
	if before < 0 || n-before > settling {
		return nil
	}
	h.before = t.blocks[before].Cursor
	for n >= 0 && len(h.blocks) < size {
		h.blocks[t.blocks[n].Cursor] = true
		n = t.neighbour(n, 1)
	}
	if n < h.first+3 || n > h.first+settling/2 {
		return nil
	}
	return h
}

// neighbour returns the number of the next block of a block's shard, in either
// direction; -1 if there is none, or the shard splits or merges before.
func (t *truth) neighbour(n, step int) int {
	b := t.blocks[n]
	for i := n + step; i >= 0 && i < len(t.blocks); i += step {
		switch other := t.blocks[i]; {
		case other.Workchain != b.Workchain:
		case other.Shard == b.Shard:
			return i
		case overlap(other.Shard, b.Shard):
			return -1
		}
	}
	return -1
}

// overlap tells whether one shard is a part of the other.
func overlap(a, b uint64) bool {
	above := -(max(a&-a, b&-b) << 1)
	return (a^b)&above == 0
}
