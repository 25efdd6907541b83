package chaingql

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// read answers a query from the window of recent blocks, or from the backend:
// then with one call for all who ask the same at the same time. It returns the
// window that it has read from, or an empty one.
func (r *resolvers) read(ctx context.Context, c *call, q BlocksQuery) ([]Block, blocklog.Window[Block], error) {
	var none blocklog.Window[Block]
	if c.refuses() {
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
	ctx, cancel := r.deadline(ctx) // of its own, also where the call is somebody else's
	defer cancel()
	blocks, err := r.reads.Do(ctx, readingOf(q, w.Reached), func(shared context.Context) ([]Block, error) {
		if err := r.turn(shared); err != nil {
			return nil, err
		}
		defer r.done()
		return r.page(r.reading(shared, ctx), q)
	})
	if err != nil {
		return nil, none, c.note(r.explain(ctx, err))
	}
	if len(blocks) > 0 {
		r.recent.Saw(string(blocks[len(blocks)-1].Cursor))
	}
	return blocks, none, nil
}

// within answers a query from the window, where it is sure to hold all that the
// backend would answer. A cursor that is not one of its blocks' is the
// backend's to judge.
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
	// From its low end on, what is asked for may begin before the window.
	whole := string(q.After) >= w.After || q.Last > 0 && len(blocks) == q.Last
	return blocks, whole
}

// pageOf is PageOf, for those who only look: where every block of a stretch is
// asked for, the page lies in the window itself.
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

// page reads a page from the backend and puts its errors in the API's terms.
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

// A reading is the key of a page that is read from the Backend. It includes what the
// Handler had shown: a read that began before a block was shown might answer
// without that block.
type reading struct {
	q         BlocksQuery // without its pointers
	workchain int32
	shard     uint64
	given     [2]bool // workchain, shard
	seen      string
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
