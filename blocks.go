package chaingql

import (
	"context"
	"errors"
	"math"
	"slices"
	"sort"
	"unsafe"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A page is a BlockchainBlocksConnection with its PageInfo.
type page struct {
	blocks               blocklog.List[Block]
	suffixed             []suffixedBlock // the blocks that are not prepared, with their suffix; nil if there are none
	suffix               string
	hasNext, hasPrevious bool
}

type edges page

func (e *edges) Len() int { return e.blocks.Len() }

func (e *edges) At(i int) any {
	if p := e.blocks.Prepared(i); p != nil {
		return p
	}
	if e.suffixed != nil {
		return &e.suffixed[i]
	}
	return e.blocks.At(i)
}

// A pageQuery is a BlocksQuery without pointers. It is comparable, and needs no memory of its own if the page comes
// from the window.
type pageQuery struct {
	in            blocklog.Filter
	after, before Cursor
	first, last   int
}

// forBackend converts q to a BlocksQuery.
func (q pageQuery) forBackend() BlocksQuery {
	b := BlocksQuery{After: q.after, Before: q.before, First: q.first, Last: q.last}
	if q.in.ByWorkchain {
		b.Workchain = &q.in.Workchain
	}
	if q.in.ByShard {
		b.Shard = &q.in.Shard
	}
	return b
}

// read returns a page from the window of recent blocks, or else from the Backend. If the response may still be final,
// read stores that window in c.
func (r *resolvers) read(ctx context.Context, c *call, q *pageQuery) (blocklog.List[Block], error) {
	ch := r.chainOf(c)
	w := ch.window()
	if blocks, ok := within(&w, q); ok {
		if c.final {
			c.window = w
		}
		return blocks, nil
	}
	c.stored = true
	c.window = blocklog.Window[Block]{}
	blocks, err := r.readStored(ctx, c, ch, *q, w.Reached)
	return blocklog.ListOf(blocks), err
}

// readStored returns a page of chain ch from the Backend. Concurrent identical reads share one Backend call. seen is
// the cursor of the newest block that clients have seen.
func (r *resolvers) readStored(
	ctx context.Context, c *call, ch *chain, q pageQuery, seen string,
) (blocks []Block, err error) {
	if err := r.wait(ctx, c); err != nil {
		return nil, err
	}
	defer r.waited(c, &err)
	slot := r.slot(c, r.slots.pages)
	blocks, err = ch.reads.Do(ctx, pageKey{q, seen}, slot, func(shared context.Context) ([]Block, error) {
		return r.page(r.reading(shared, ctx), ch, q.forBackend())
	})
	if len(blocks) > 0 {
		ch.blocks.Observed(string(blocks[len(blocks)-1].Cursor))
	}
	return blocks, r.sharedError(ctx, err)
}

// sharedError returns a timeout error if err means that the shared call of another request took too long, and otherwise
// err.
func (r *resolvers) sharedError(ctx context.Context, err error) error {
	if errors.Is(err, xsync.ErrWaited) {
		r.limit(ctx, "BackendTimeout")
		return late()
	}
	return err
}

// within returns a page from the window, and true if the window certainly has all blocks that the Backend would return.
// It returns false if a cursor of q is not in the window, because only the Backend knows whether that cursor is valid.
// It copies no block.
func within(w *blocklog.Window[Block], q *pageQuery) (page blocklog.List[Block], whole bool) {
	known := func(c Cursor) bool {
		if c == "" || string(c) == w.After {
			return true
		}
		_, found := place(w.Blocks, c)
		return found
	}
	if !w.Live || !known(q.after) || !known(q.before) {
		return page, false
	}
	page = w.Select(q.in)
	from, to := 0, page.Len()
	if q.after != "" {
		from = sort.Search(to, func(i int) bool { return page.At(i).Cursor > q.after })
	}
	if q.before != "" {
		to = max(from, sort.Search(to, func(i int) bool { return page.At(i).Cursor >= q.before }))
	}
	if q.last > 0 {
		from = max(from, to-q.last)
	} else {
		to = min(to, from+q.first)
	}
	// If q.after is before the window, the page is whole only if q.last blocks were found.
	whole = string(q.after) >= w.After || q.last > 0 && to-from == q.last
	return page.Slice(from, to), whole
}

// page reads a page of chain c from the Backend and translates the Backend's errors into errors of the API.
func (r *resolvers) page(ctx context.Context, c *chain, q BlocksQuery) ([]Block, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	blocks, err := r.backend.Blocks(ctx, q)
	err = r.chains.verify(c, err, blocks...)
	switch {
	case errors.Is(err, ErrBadCursor):
		return nil, invalidCursor()
	case errors.Is(err, ErrCursorTooOld):
		oldest, err := r.backend.Blocks(ctx, BlocksQuery{First: 1})
		if err = r.chains.verify(c, err, oldest...); err != nil {
			return nil, r.explain(ctx, err)
		}
		return nil, c.tooOld(blocklog.ListOf(oldest))
	case err != nil:
		return nil, r.explain(ctx, err)
	}
	c.blocks.Retry() // the Backend works again, so Follow may work too
	return blocks, nil
}

func (c *chain) tooOld(oldest blocklog.List[Block]) *plan.Error {
	e := &plan.Error{Message: "The blocks after this cursor are no longer kept.", Code: codeCursorTooOld}
	if oldest.Len() > 0 {
		e.Details = map[string]string{"oldest": c.cursor(string(oldest.At(0).Cursor), 0)}
	}
	return e
}

// A pageKey identifies a read of a page from the Backend; reads with equal keys share one call. It includes the cursor
// of the newest block that clients have seen, because a read that began before that block might lack it.
type pageKey struct {
	q    pageQuery
	seen string
}

// A preparedBlock is a block of the window with its fields as JSON. Most queries are for recent blocks, and formatting
// their fields would take most of the time of a query. It implements [plan.Prepared].
type preparedBlock struct {
	Block
	suffix string // of the cursor
	text   string
	ends   [9]uint16 // one more than the number of preparedFields
}

// preparedFields are the fields of a block in a page, followed by the cursor of its edge.
var preparedFields = func() []plan.Field {
	fields := slices.Concat([]plan.Field{
		{Name: "id", Type: "ID!",
			Desc: `The unique id: "block/" followed by the hash.`, Append: func(dst []byte, src any) []byte {
				dst = append(dst, `"block/`...)
				return append(blockOf(src).Hash.append(dst), '"')
			}},
		{Name: "hash", Type: "String",
			Desc: "The hash of the block, as 64 hex digits in lower case.", Append: appendHash},
	}, blockFields, []plan.Field{
		{Name: "cursor", Type: "String!", Desc: "The cursor of the block.", Append: appendCursor},
	})
	for i := range fields {
		fields[i].Part = i + 1
	}
	return fields
}()

// prepare returns b as a preparedBlock, and its size in bytes.
func (c *chain) prepare(b Block) (any, int) {
	p := &preparedBlock{Block: b, suffix: c.suffix}
	text := make([]byte, 0, 512)
	for i, f := range preparedFields {
		text = append(append(append(text, `,"`...), f.Name...), `":`...)
		if text = f.Append(text, p); len(text) > math.MaxUint16 {
			return nil, 0 // its cursor is extremely long
		}
		p.ends[i+1] = uint16(len(text))
	}
	p.text = string(text)
	return p, int(unsafe.Sizeof(*p)) + len(p.text)
}

// Parts implements [plan.Prepared].
func (p *preparedBlock) Parts() (text string, ends []uint16) { return p.text, p.ends[:] }
