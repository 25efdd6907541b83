package chaos_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// A fate describes what happens while and after the service searches for the blocks of a hole. The zero
// fate means that the blocks appear during the search.
type fate struct {
	restart bool // the service is replaced during the search
	lost    bool // the blocks never appear
	late    bool // the blocks appear after the service has stopped searching
}

// A hole consists of one or more consecutive blocks of a shard. While the hole is open, neither Follow
// nor Blocks returns these blocks.
type hole struct {
	fate
	first   int // number of the first block
	shard   uint64
	blocks  map[chaingql.Cursor]bool
	before  chaingql.Cursor // cursor of the previous block of the shard
	border  bool            // the hole is next to a split or merge of shards
	hidden  time.Time       // when the hole was opened
	noticed chan struct{}   // closed when the service searches for the blocks with Blocks

	// Guarded by source.mu.
	asked, filled time.Time // when the service first searched for its blocks, and when the hole was filled
	replaced      int       // number of the service that was shut down during the search; -1 if there is none
}

// A source is a backend that serves a chain without the blocks of open holes.
type source struct {
	*memchain.Chain

	mu    sync.Mutex
	holes []*hole
}

// hide opens a hole before its blocks are committed.
func (s *source) hide(h *hole) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.hidden = time.Now()
	s.holes = append(s.holes, h)
}

// watch lets the next search for the blocks of h mark the hole as noticed again.
func (s *source) watch(h *hole) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.noticed = make(chan struct{})
}

// fill closes a hole, so that the source has its blocks from now on.
func (s *source) fill(h *hole) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.filled = time.Now()
}

// replacedDuring records that a service was shut down while it searched for the blocks of h.
func (s *source) replacedDuring(h *hole, service int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.replaced = service
}

// lacks reports whether a block is in an open hole.
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

// missing returns the number of blocks in open holes.
func (s *source) missing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holes {
		if h.filled.IsZero() {
			n += len(h.blocks)
		}
	}
	return n
}

// notice records which holes the query searches: only a service that searches for missing blocks sends such a query.
func (s *source) notice(q chaingql.BlocksQuery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holes {
		if !h.filled.IsZero() || h.isNoticed() {
			continue
		}
		for c := range h.blocks {
			if q.Workchain == nil || q.First+q.Last < 2 || c <= q.After || c >= q.Before ||
				q.Shard != nil && *q.Shard != h.shard {
				continue
			}
			if h.asked.IsZero() {
				h.asked = time.Now()
			}
			close(h.noticed)
			break
		}
	}
}

// A noticing Backend records searches for missing blocks in its source. It records them before the faults of chaos,
// because a service that searches reports the gap even if its first reads fail.
type noticing struct {
	*backendtest.ChaosBackend
	source *source
}

// Blocks implements [chaingql.Backend].
func (n noticing) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	n.source.notice(q)
	return n.ChaosBackend.Blocks(ctx, q)
}

// Blocks implements [chaingql.Backend].
func (s *source) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	first, last := q.First, q.Last
	if more := s.missing(); first > 0 {
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

// repairDeadline is the time within which missing blocks must appear to be delivered to every subscriber.
// The service searches for them, and holds back pages, for five seconds. But some of its reads fail, so
// the time is shorter.
const repairDeadline = 3 * time.Second

// A loss describes a missing block at the end of a run by its hole.
type loss struct {
	*hole
	optional bool // the blocks appeared late or never, so STREAM_GAP may replace them
}

// String describes the history of the hole. It returns "" for the zero loss.
func (l loss) String() string {
	if l.hole == nil {
		return ""
	}
	return fmt.Sprintf(", in a hole after %q: opened %s, search started %s, filled %s",
		l.before, clock(l.hidden), clock(l.asked), clock(l.filled))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// losses maps the number of each block in a hole to the loss.
func (w *world) losses() map[int]loss {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	all := map[int]loss{}
	for _, h := range w.source.holes {
		l := loss{h, h.filled.IsZero() || h.filled.Sub(h.hidden) > repairDeadline}
		for c := range h.blocks {
			all[w.truth.place[c]] = l
		}
	}
	return all
}

// holeAt returns a hole of up to size blocks that starts at block n. It returns nil if such a hole would
// not be useful. The shard must have blocks shortly before and after the hole, so that the service
// notices it. Other shards must have blocks in between, so that subscribers receive STREAM_GAP.
func (t *truth) holeAt(n, size int, f fate) *hole {
	h := &hole{
		fate: f, first: n, shard: t.blocks[n].Shard, blocks: map[chaingql.Cursor]bool{},
		noticed: make(chan struct{}), replaced: -1,
	}
	before := t.neighbor(n, -1)
	if before < 0 || n-before > settling {
		return nil
	}
	h.before, h.border = t.blocks[before].Cursor, t.blocks[before].Shard != h.shard
	for n >= 0 && t.blocks[n].Shard == h.shard && len(h.blocks) < size {
		h.blocks[t.blocks[n].Cursor] = true
		n = t.neighbor(n, 1)
	}
	h.border = h.border || n >= 0 && t.blocks[n].Shard != h.shard
	if n < h.first+3 || n > h.first+settling/2 {
		return nil
	}
	return h
}

// neighbor returns the number of the block that follows block n in its shard if step is 1, or that
// precedes it if step is -1. The two blocks may be separated by a split or merge. It returns -1 if there
// is no such block. It also returns -1 if sequence numbers do not show that block n is missing: a merged
// shard continues the higher of two sequence numbers, so the block with the lower number can be missing.
func (t *truth) neighbor(n, step int) int {
	b := t.blocks[n]
	for i := n + step; i >= 0 && i < len(t.blocks); i += step {
		other := t.blocks[i]
		switch {
		case other.Workchain != b.Workchain || !overlap(other.Shard, b.Shard):
		case int(other.SeqNo) != int(b.SeqNo)+step:
			if step > 0 {
				return -1 // the other half of the merged shard has the higher number
			}
		case step > 0 && other.Shard == parent(b.Shard) && t.hasTwin(n, i):
			return -1
		default:
			return i
		}
	}
	return -1
}

// hasTwin reports whether block n and the last block of its sibling shard have the same sequence number.
// The argument merged is the number of the block in which the two shards have merged.
func (t *truth) hasTwin(n, merged int) bool {
	b := t.blocks[n]
	other := b.Shard ^ (b.Shard&-b.Shard)<<1
	for i := merged - 1; i >= 0; i-- {
		if o := t.blocks[i]; o.Workchain == b.Workchain && o.Shard == other {
			return o.SeqNo == b.SeqNo
		}
	}
	return false
}

// overlap reports whether one shard contains the other.
func overlap(a, b uint64) bool {
	above := -(max(a&-a, b&-b) << 1)
	return (a^b)&above == 0
}
