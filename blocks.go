package chaingql

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// read returns a page from the window of recent blocks, or else from the Backend. Concurrent identical reads share one
// Backend call. read also returns the window that contains the page, or an empty window if the page is from the
// Backend.
func (r *resolvers) read(ctx context.Context, c *call, q BlocksQuery) ([]Block, blocklog.Window[Block], error) {
	var none blocklog.Window[Block]
	if c.isBusy() {
		return nil, none, errBusy
	}
	w := r.recent.Window()
	if blocks, ok := within(w, q); ok {
		return blocks, w, nil
	}
	if c != nil {
		c.stored = true
	}
	if !w.Live {
		r.recent.Start()
	}
	ctx, cancel := r.deadline(ctx) // each caller has its own deadline, even if callers share a Backend call
	defer cancel()
	blocks, err := r.reads.Do(ctx, readingOf(q, w.Reached), func(shared context.Context) ([]Block, error) {
		if err := r.acquire(shared); err != nil {
			return nil, err
		}
		defer r.release()
		return r.page(r.reading(shared, ctx), q)
	})
	if err != nil {
		return nil, none, c.noteBusy(r.explain(ctx, err))
	}
	if len(blocks) > 0 {
		r.recent.Observed(string(blocks[len(blocks)-1].Cursor))
	}
	return blocks, none, nil
}

// within returns a page from the window, and true if the window certainly has all blocks that the Backend would return.
// It returns false if a cursor of q is not in the window, because only the Backend knows whether that cursor is valid.
func within(w blocklog.Window[Block], q BlocksQuery) ([]Block, bool) {
	known := func(c Cursor) bool {
		if c == "" || string(c) == w.After {
			return true
		}
		_, found := place(w.Blocks, c)
		return found
	}
	if !w.Live || !known(q.After) || !known(q.Before) {
		return nil, false
	}
	blocks := pageOf(w.Blocks, q)
	// If q.After is before the window, the page is whole only if q.Last blocks were found.
	whole := string(q.After) >= w.After || q.Last > 0 && len(blocks) == q.Last
	return blocks, whole
}

// pageOf is like PageOf, for callers that do not change the page: without a filter, it returns a subslice of the window
// instead of a copy.
func pageOf(window []Block, q BlocksQuery) []Block {
	if q.Workchain != nil || q.Shard != nil {
		return PageOf(window, q)
	}
	window = between(window, q.After, q.Before)
	if q.Last > 0 {
		return window[max(0, len(window)-q.Last):]
	}
	return window[:min(q.First, len(window))]
}

// page reads a page from the Backend and translates the Backend's errors into errors of the API.
func (r *resolvers) page(ctx context.Context, q BlocksQuery) ([]Block, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	if !printable(q.After) || !printable(q.Before) {
		return nil, badInput("Invalid cursor")
	}
	blocks, err := r.backend.Blocks(ctx, q)
	if err == nil {
		err = checkCursors(blocks...)
	}
	switch {
	case errors.Is(err, ErrBadCursor):
		return nil, badInput("Invalid cursor")
	case errors.Is(err, ErrCursorTooOld):
		oldest, err := r.backend.Blocks(ctx, BlocksQuery{First: 1})
		if err = errors.Join(err, checkCursors(oldest...)); err != nil {
			return nil, r.explain(ctx, err)
		}
		return nil, tooOld(oldest)
	case err != nil:
		return nil, r.explain(ctx, err)
	}
	return blocks, nil
}

func tooOld(oldest []Block) *plan.Error {
	e := &plan.Error{Message: "The blocks after this cursor are no longer kept.", Code: codeCursorTooOld}
	if len(oldest) > 0 {
		e.Details = map[string]string{"oldest": string(oldest[0].Cursor)}
	}
	return e
}

// A reading identifies a read of a page from the Backend; reads with equal keys share one call. The key includes the
// cursor of the newest block that clients have seen, because a read that began before that block might lack it.
type reading struct {
	q         BlocksQuery // without its pointers
	workchain int32
	shard     uint64
	given     [2]bool // whether workchain and shard are set
	seen      string  // cursor of the newest block that clients have seen
}

func readingOf(q BlocksQuery, seen string) reading {
	r := reading{q: q, seen: seen}
	if q.Workchain != nil {
		r.workchain, r.given[0] = *q.Workchain, true
	}
	if q.Shard != nil {
		r.shard, r.given[1] = *q.Shard, true
	}
	r.q.Workchain, r.q.Shard = nil, nil
	return r
}
