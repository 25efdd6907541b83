package tonlite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// maxScanned is the maximum number of masterchain blocks that are searched for one page.
// It is below DefaultCache, so a repeated search does not query servers again.
const maxScanned = 1000

var errTooFar = fmt.Errorf("tonlite: the page spans more than %d masterchain blocks: use a closer cursor, "+
	"or request fewer blocks", maxScanned)

// Blocks returns a page, as [chaingql.Backend] describes it, within the history of the
// servers. A page of a workchain that the network does not have is empty.
//
// A page costs one query for each masterchain block in its range and one for each shard
// block, unless they are cached. Pages of the masterchain do not read shard blocks. Blocks
// returns an error if:
//
//   - the filter skips more than 1,000 masterchain blocks
//   - the page needs queries while 16 other pages run and 24 wait
//   - the page has a filter that skips many blocks, while four such pages run and four wait
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := b.newPageReader(q)
	defer s.release()
	ctx = withUse(ctx, s.use)
	r, err := b.masterRange(ctx, q, s)
	if err != nil || r.from > r.to || q.First <= 0 && q.Last <= 0 {
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

// neverMatches reports whether no block can ever match the filter: the masterchain has one
// shard, and the newest masterchain block commits to every other workchain.
func (b *Backend) neverMatches(ctx context.Context, q chaingql.BlocksQuery) (bool, error) {
	switch {
	case q.Workchain == nil:
		return false, nil
	case *q.Workchain == masterchain:
		return q.Shard != nil && *q.Shard != wholeShard, nil
	}
	head, _ := b.knownHead()
	m, err := b.chain(ctx, head.SeqNo, head.SeqNo)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(m[0].tops, func(top lite.BlockID) bool { return top.Workchain == *q.Workchain }), nil
}

// A masterRange is the masterchain blocks with numbers in [from, to].
type masterRange struct{ from, to uint32 }

// masterRange returns the range that can contain a query's blocks. For a query with Last
// and without After, the range may begin before the servers' history. s is nil for a
// Follow.
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
		err = b.checkHistory(ctx, r.from)
	}
	return r, err
}

// first returns the first masterchain block whose step can contain a block after p.
func (p place) first() uint32 {
	if p.last && p.master < 1<<32-1 {
		return p.master + 1
	}
	return p.master
}

// lowest returns the first blocks of the range.
func (s *pageReader) lowest(
	ctx context.Context, q chaingql.BlocksQuery, r masterRange,
) (page []chaingql.Block, err error) {
	b := s.Backend
	for from, n := r.from, window(q.First); from <= r.to; n = min(2*n, concurrency) {
		if from-r.from >= maxScanned {
			return nil, errTooFar
		}
		to := from + min(n-1, r.to-from)
		steps, err := s.read(ctx, q, masterRange{from, to}, from-r.from)
		if errors.Is(err, errMissing) {
			err = b.missingError(ctx, from, err)
			if q.After == "" && errors.Is(err, chaingql.ErrCursorTooOld) { // old blocks were removed meanwhile
				s.release()
				return b.Blocks(ctx, q)
			}
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
	return page, nil
}

// highest returns the last blocks of the range. It reads backward, at most to the beginning
// of the history.
func (s *pageReader) highest(
	ctx context.Context, q chaingql.BlocksQuery, r masterRange,
) (page []chaingql.Block, err error) {
	defer func() { slices.Reverse(page) }()
	for to, n := r.to, window(q.Last); to >= r.from && to > 0; n = min(2*n, concurrency) {
		if r.to-to >= maxScanned {
			return nil, errTooFar
		}
		from := to - min(n-1, to-r.from)
		steps, err := s.read(ctx, q, masterRange{from, to}, r.to-to)
		if errors.Is(err, errMissing) {
			bottom, lost := s.oldestStep(ctx)
			switch {
			case lost != nil:
				return nil, lost
			case bottom <= from:
				return nil, err // the servers should have it
			case q.After != "":
				return nil, chaingql.ErrCursorTooOld
			}
			r.from = bottom
			continue
		}
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

// window returns how many masterchain blocks are read first for a page. Each commits to a
// few shard blocks.
func window(blocks int) uint32 { return uint32(min(1+blocks/8, concurrency)) }

// cachedSteps returns the steps of a range and whether all of them are in the cache.
func (b *Backend) cachedSteps(r masterRange) (steps [][]chaingql.Block, all bool) {
	steps, all = make([][]chaingql.Block, r.to-r.from+1), true
	for i := range steps {
		var ok bool
		steps[i], ok = b.steps.get(r.from + uint32(i))
		all = all && ok
	}
	return steps, all
}

// readSteps returns the blocks of a range, by step.
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
