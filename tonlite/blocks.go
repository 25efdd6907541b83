package tonlite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// maxScanned is the maximum number of masterchain blocks that are searched for one page. It is
// below DefaultCache, so that repeating a search needs no queries to servers.
const maxScanned = 1000

var errTooFar = fmt.Errorf("tonlite: the page spans more than %d masterchain blocks: use a closer cursor, "+
	"or request fewer blocks", maxScanned)

// Blocks returns the page of blocks that q selects, as [chaingql.Backend] specifies. It can
// return only blocks that a server still has. If the network does not have the workchain that q
// selects, the page is empty.
//
// Unless the blocks are cached, a page needs up to two queries for each masterchain block in its
// range and one query for each shard block. A page that selects only the masterchain reads
// shard blocks only to find the oldest masterchain block whose shard blocks a server has.
// Blocks returns an error if
//
//   - the filter skips more than 1,000 masterchain blocks
//   - the page must query servers, but 16 other pages are querying them and 48 more are waiting
//   - the filter skips many blocks, but four such pages are querying servers and four more are
//     waiting
//
// In the last two cases, the error wraps [chaingql.ErrUnavailable], because a later call may succeed. They do not apply
// to pages that a Handler reads for its subscriptions ([chaingql.ForSubscriptions]).
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := b.newPageReader(ctx, q)
	defer s.release()
	ctx = withUse(ctx, s.use)
	r, err := b.masterRange(ctx, q, s)
	if err != nil || q.First <= 0 && q.Last <= 0 {
		return nil, err
	}
	if none, err := b.neverMatches(ctx, q); err != nil || none {
		return nil, err
	}
	if q.Last > 0 {
		return s.highest(ctx, q, r)
	}
	return s.lowest(ctx, q, r)
}

// neverMatches reports whether no block of the network can match the filter of q. To decide this,
// it uses two facts: the masterchain has only one shard, and the newest masterchain block lists
// all other workchains. If an earlier head is cached and lists the workchain, the newest block is
// not needed, which servers that lag do not have.
func (b *Backend) neverMatches(ctx context.Context, q chaingql.BlocksQuery) (bool, error) {
	switch {
	case q.Workchain == nil:
		return false, nil
	case *q.Workchain == masterchain:
		return q.Shard != nil && *q.Shard != wholeShard, nil
	}
	lists := func(m *master) bool {
		return slices.ContainsFunc(m.tops, func(top lite.BlockID) bool { return top.Workchain == *q.Workchain })
	}
	if b.anyHead(lists) {
		return false, nil
	}
	head, _ := b.knownHead()
	m, err := b.chain(ctx, head.SeqNo, head.SeqNo)
	return err == nil && !lists(m[0]), err
}

// A masterRange stands for the masterchain blocks with a seq_no in [from, to].
type masterRange struct{ from, to uint32 }

// masterRange returns the masterchain blocks that q may select, or that commit to shard blocks
// that q may select. If q has Last but not After, the range may begin before the oldest block
// that a server has. Follow calls masterRange with a nil s.
func (b *Backend) masterRange(ctx context.Context, q chaingql.BlocksQuery, s *pageReader) (r masterRange, err error) {
	var after, before place
	if q.After != "" {
		if after, err = parseCursor(q.After); err != nil {
			return r, err
		}
	}
	if q.Before != "" {
		if before, err = parseCursor(q.Before); err != nil {
			return r, err
		}
	}
	head, err := b.currentHead(ctx)
	if err != nil {
		return r, err
	}
	r = masterRange{max(1, after.first()), head.SeqNo}
	if q.Before != "" {
		r.to = min(r.to, before.master)
	}
	switch {
	case q.After == "" && q.First > 0:
		if err := s.acquire(ctx); err != nil {
			return r, err
		}
		r.from, err = b.oldestStep(ctx)
	case q.After != "" && r.from <= head.SeqNo:
		if _, known := b.steps.get(r.from); known {
			return r, nil
		}
		if err := s.acquire(ctx); err != nil {
			return r, err
		}
		err = b.checkHistory(ctx, r.from, b.keeps)
	}
	return r, err
}

// first returns the seq_no of the first masterchain block that comes after p, or that commits to
// a shard block after p.
func (p place) first() uint32 {
	if p.last && p.master < 1<<32-1 {
		return p.master + 1
	}
	return p.master
}

// lowest returns the first q.First blocks in r that match q, in ascending order.
func (s *pageReader) lowest(
	ctx context.Context, q chaingql.BlocksQuery, r masterRange,
) (page []chaingql.Block, err error) {
	b := s.Backend
	for from, n := r.from, window(q.First); from <= r.to; {
		if from-r.from >= maxScanned {
			return nil, errTooFar
		}
		to := from + min(n-1, r.to-from)
		steps, err := s.read(ctx, q, masterRange{from, to}, from-r.from)
		if errors.Is(err, errMissing) && from < to && b.settled(to) { // find the first block that is missing
			n = 1
			continue
		}
		n = min(2*n, concurrency)
		if errors.Is(err, errMissing) {
			err = b.whyMissing(ctx, from)
		}
		if errors.Is(err, chaingql.ErrCursorTooOld) && q.After == "" { // deleted meanwhile, or withheld by a server
			s.release()
			return b.Blocks(ctx, q)
		}
		if err != nil {
			return nil, err
		}
		for _, blocks := range steps {
			for _, block := range blocks {
				if q.Matches(block) {
					if page = append(page, block); len(page) == q.First {
						return page, nil
					}
				}
			}
		}
		if from = to + 1; from == 0 {
			break
		}
	}
	if q.After == "" { // the page may lack blocks of slow servers before r.from
		if err := s.confirmOldest(ctx, r.from); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// highest returns the last q.Last blocks in r that match q, in ascending order. It reads backward
// and stops at the oldest block that a server has.
func (s *pageReader) highest(
	ctx context.Context, q chaingql.BlocksQuery, r masterRange,
) (page []chaingql.Block, err error) {
	defer func() { slices.Reverse(page) }()
	for to, n := r.to, window(q.Last); to >= r.from && to > 0; {
		if r.to-to >= maxScanned {
			return nil, errTooFar
		}
		from := to - min(n-1, to-r.from)
		steps, err := s.read(ctx, q, masterRange{from, to}, r.to-to)
		if errors.Is(err, errMissing) {
			if q.After != "" {
				return nil, s.whyMissing(ctx, from)
			}
			bottom, lost := s.oldestStep(ctx)
			switch {
			case lost != nil:
				return nil, lost
			case bottom > from:
				if err := s.confirmOldest(ctx, bottom); err != nil {
					return nil, err
				}
				r.from = bottom
			case !s.settled(to):
				return nil, err // the servers should have the block
			case from < to:
				n = 1 // find the last block that is missing: servers may have older ones
			default:
				if err := s.whyMissing(ctx, from); !errors.Is(err, chaingql.ErrCursorTooOld) {
					return nil, err
				}
			}
			continue
		}
		n = min(2*n, concurrency)
		if err != nil {
			return nil, err
		}
		for _, blocks := range slices.Backward(steps) {
			for _, block := range slices.Backward(blocks) {
				if q.Matches(block) {
					if page = append(page, block); len(page) == q.Last {
						return page, nil
					}
				}
			}
		}
		to = from - 1
	}
	return page, nil
}

// window returns the number of masterchain blocks to read first for a page with the given number
// of blocks. It is lower than that number, because each masterchain block commits to a few shard
// blocks.
func window(blocks int) uint32 { return uint32(min(1+blocks/8, concurrency)) }

// cachedSteps returns the cached steps in r and reports whether all steps in r are cached. A step
// consists of a masterchain block and the shard blocks that are new in it.
func (b *Backend) cachedSteps(r masterRange) (steps [][]chaingql.Block, all bool) {
	steps, all = make([][]chaingql.Block, r.to-r.from+1), true
	for i := range steps {
		var ok bool
		steps[i], ok = b.steps.get(r.from + uint32(i))
		all = all && ok
	}
	return steps, all
}

// readSteps returns the steps in r. A step consists of a masterchain block and the shard blocks
// that are new in it. If q selects only the masterchain, the steps may lack the shard blocks.
func (b *Backend) readSteps(ctx context.Context, q chaingql.BlocksQuery, r masterRange) ([][]chaingql.Block, error) {
	steps, ok := b.cachedSteps(r)
	if ok {
		return steps, nil
	}
	masters, err := b.chain(ctx, max(1, r.from-1), r.to)
	if err != nil {
		return nil, err
	}
	var before *master
	if r.from > 1 {
		before, masters = masters[0], masters[1:]
	}
	if q.Workchain != nil && *q.Workchain == masterchain {
		for i, m := range masters {
			steps[i] = []chaingql.Block{m.block()}
		}
		return steps, nil
	}
	err = parallel(ctx, len(masters), func(ctx context.Context, i int) (err error) {
		last := before
		if i > 0 {
			last = masters[i-1]
		}
		steps[i], err = b.step(ctx, masters[i], last)
		return err
	})
	return steps, err
}
