package tonlite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// maxScan is through how many masterchain blocks one page is looked for: as few
// as are kept, so that a search in vain is not made anew with each call.
const maxScan = 1000

var errTooFar = fmt.Errorf("tonlite: the page is further than %d masterchain blocks away: ask closer to a cursor, or for less", maxScan)

// Blocks returns a page, as [chaingql.Backend] describes it, as deep as the
// servers keep history. It costs a query for each masterchain block that is
// looked through and one for each shard block, unless they were read lately; of
// the masterchain alone the shard blocks are not read. A page whose filter
// passes over more than 1,000 masterchain blocks is an error. So is one that has to
// ask servers while 16 others do and 24 wait, or, with a filter that passes over many
// blocks, while four do and four wait. Of a workchain that the network does not have
// there are no blocks.
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx = with(ctx, forPage)
	r, err := b.stretch(ctx, q)
	if err != nil || r.from > r.to || q.First <= 0 && q.Last <= 0 {
		return nil, err
	}
	if none, err := b.matchless(ctx, q); err != nil || none {
		return nil, err
	}
	if q.Last > 0 {
		return b.highest(ctx, q, r)
	}
	return b.lowest(ctx, q, r)
}

// matchless says of a filter that there never was a block for it: the masterchain
// is one shard, and the newest masterchain block commits to each other workchain.
func (b *Backend) matchless(ctx context.Context, q chaingql.BlocksQuery) (bool, error) {
	switch {
	case q.Workchain == nil:
		return false, nil
	case *q.Workchain == masterchain:
		return q.Shard != nil && *q.Shard != wholeShard, nil
	}
	head, _ := b.newest()
	m, err := b.chain(ctx, head.SeqNo, head.SeqNo)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(m[0].tops, func(top lite.BlockID) bool { return top.Workchain == *q.Workchain }), nil
}

// A stretch is a run of masterchain blocks.
type stretch struct{ from, to uint32 }

// stretch returns where a query's blocks can be. Where it has no After its
// beginning may be below the history that is kept, unless First asks for it.
func (b *Backend) stretch(ctx context.Context, q chaingql.BlocksQuery) (r stretch, err error) {
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
	head, err := b.current(ctx)
	if err != nil {
		return r, err
	}
	r = stretch{max(1, after.first()), head.SeqNo}
	if q.Before != "" {
		r.to = min(r.to, before.master)
	}
	switch {
	case q.After == "" && q.First > 0:
		oldest, err := b.bottom(ctx)
		r.from = oldest
		return r, err
	case q.After != "" && r.from <= head.SeqNo:
		return r, b.reaches(ctx, r.from)
	}
	return r, nil
}

// first is the first masterchain block whose step can have a block past the place.
func (p place) first() uint32 {
	if p.last && p.master < 1<<32-1 {
		return p.master + 1
	}
	return p.master
}

// lowest reads upwards.
func (b *Backend) lowest(ctx context.Context, q chaingql.BlocksQuery, r stretch) (page []chaingql.Block, err error) {
	s := b.search(q.First)
	defer s.end()
	for from, n := r.from, window(q.First); from <= r.to; n = min(2*n, abreast) {
		if from-r.from >= maxScan {
			return nil, errTooFar
		}
		to := from + min(n-1, r.to-from)
		steps, err := s.read(ctx, q, stretch{from, to}, from-r.from)
		if errors.Is(err, errMissing) {
			err = b.tooOld(ctx, from, err)
			if q.After == "" && errors.Is(err, chaingql.ErrCursorTooOld) { // history begins further up by now
				s.end()
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

// highest reads downwards, to the end of what is kept.
func (b *Backend) highest(ctx context.Context, q chaingql.BlocksQuery, r stretch) (page []chaingql.Block, err error) {
	defer func() { slices.Reverse(page) }()
	s := b.search(q.Last)
	defer s.end()
	for to, n := r.to, window(q.Last); to >= r.from && to > 0; n = min(2*n, abreast) {
		if r.to-to >= maxScan {
			return nil, errTooFar
		}
		from := to - min(n-1, to-r.from)
		steps, err := s.read(ctx, q, stretch{from, to}, r.to-to)
		if errors.Is(err, errMissing) {
			bottom, lost := b.bottom(ctx)
			switch {
			case lost != nil:
				return nil, lost
			case bottom <= from:
				return nil, err // it should be there
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

// window is how many masterchain blocks are read first for a page: each has a
// few shard blocks.
func window(blocks int) uint32 { return uint32(min(1+blocks/8, abreast)) }

// known returns the steps of a stretch if all of them are in the cache.
func (b *Backend) known(r stretch) (steps [][]chaingql.Block, all bool) {
	steps, all = make([][]chaingql.Block, r.to-r.from+1), true
	for i := range steps {
		var ok bool
		steps[i], ok = b.steps.get(r.from + uint32(i))
		all = all && ok
	}
	return steps, all
}

// steady reads the blocks of a stretch, by steps.
func (b *Backend) steady(ctx context.Context, q chaingql.BlocksQuery, r stretch) ([][]chaingql.Block, error) {
	steps, ok := b.known(r)
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
	err = together(ctx, len(masters), func(ctx context.Context, i int) (err error) {
		last := before
		if i > 0 {
			last = masters[i-1]
		}
		steps[i], err = b.step(ctx, masters[i], last)
		return err
	})
	return steps, err
}
