package backendtest

import (
	"context"
	"errors"
	"math/big"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// following breaks Follow by what goes through.
func following(change func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool)) func(context.Context, *memchain.Chain, *Harness) {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return func(yield func(block, error) bool) { change(c, ctx, after, yield) }
		}}
	}
}

var brokenFollows = []breach{
	{"a context that pages ignore", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			return c.Blocks(context.WithoutCancel(ctx), q)
		}}
	}, "with a context that is done returned no error"},
	{"a context that Balance ignores", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			return c.Balance(context.WithoutCancel(ctx), a)
		}}
	}, "Balance with a context that is done returned no error"},
	{"a context that Follow ignores", func(stop context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, follow: func(_ context.Context, after chaingql.Cursor) seq { return c.Follow(stop, after) }}
	}, "did not return within 2s of its context's end"},
	{"a stall that no context ends", func(stop context.Context, c *memchain.Chain, h *Harness) {
		var stalled atomic.Bool
		h.Stall = func() func() { stalled.Store(true); return func() { stalled.Store(false) } }
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if stalled.Load() {
				<-stop.Done()
			}
			return c.Blocks(ctx, q)
		}}
	}, "to a stalled source, whose context ends meanwhile, did not return within"},

	{"a hole between stored and new blocks", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		page, err := c.Blocks(ctx, query{First: 100_000, After: after})
		for _, b := range page {
			if !yield(b, nil) {
				return
			}
		}
		if newest, _ := c.Blocks(ctx, query{Last: 1}); err == nil && len(newest) > 0 {
			after = max(after, newest[0].Cursor)
		}
		c.Follow(ctx, after)(yield)
	}), "Follow has no seam between stored and new blocks: Follow(after \"\") yielded nothing for 10s"},
	{"a block three times between stored and new ones", seamRepeats(3), "again: blocks must ascend"},
	{"blocks that change places", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		var held *block
		var n int
		c.Follow(ctx, after)(func(b block, err error) bool {
			if n++; n == 5 && err == nil {
				held = &b
				return true
			}
			if held != nil {
				first := *held
				held = nil
				return yield(b, err) && yield(first, nil)
			}
			return yield(b, err)
		})
	}), "skipped cursor"},
	{"blocks that come again", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		var last []block
		c.Follow(ctx, after)(func(b block, err error) bool {
			last = append(last, b)
			return yield(b, err) && (len(last) != 4 || yield(last[1], nil))
		})
	}), "blocks must ascend"},
	{"a Follow that jumps to the newest", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		if newest, _ := c.Blocks(ctx, query{Last: 1}); len(newest) > 0 {
			after = max(after, newest[0].Cursor)
		}
		c.Follow(ctx, after)(yield)
	}), "yielded nothing for 10s"},
	{"a Follow that ends with the stored blocks", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		page, err := c.Blocks(ctx, query{First: 100_000, After: after})
		for _, b := range page {
			if !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(block{}, err)
		}
	}), "ended without an error"},
	{"a Follow that will not wait past the newest", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		if newest, _ := c.Blocks(ctx, query{Last: 1}); len(newest) > 0 && after > newest[0].Cursor {
			yield(block{}, errors.New("no such block"))
			return
		}
		c.Follow(ctx, after)(yield)
	}), "where it must wait for new blocks: no such block"},
	{"two errors", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		c.Follow(ctx, after)(func(b block, err error) bool {
			return yield(b, err) && (err == nil || yield(b, err))
		})
	}), "it must yield one error and end"},
	{"a Follow that goes on when it is left", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		c.Follow(ctx, after)(func(b block, err error) bool { yield(b, err); return err == nil })
	}), "went on after its loop was left"},
	{"a Follow that panics", following(func(_ *memchain.Chain, _ context.Context, _ chaingql.Cursor, _ func(block, error) bool) {
		panic("index out of range")
	}), "panicked: index out of range"},
	{"an interruption that is passed over", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		for again := true; again; {
			again = false
			c.Follow(ctx, after)(func(b block, err error) bool {
				if err != nil && ctx.Err() == nil && !errors.Is(err, chaingql.ErrCursorTooOld) && !errors.Is(err, chaingql.ErrBadCursor) {
					again = true
					return false
				}
				after = max(after, b.Cursor)
				return yield(b, err)
			})
		}
	}), "where an error, because the source was interrupted, was due"},
	{"an interruption that loses a block", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		var held *block
		c.Follow(ctx, after)(func(b block, err error) bool {
			if held != nil && err == nil && !yield(*held, nil) {
				return false
			}
			if held = &b; err == nil {
				return true
			}
			return yield(b, err)
		})
	}), "where cursor"},
}

// oldest is just short of the oldest block that is kept: the place from which
// nothing is missing.
func oldest(c *memchain.Chain) chaingql.Cursor {
	page, _ := c.Blocks(context.Background(), query{First: 1})
	return page[0].Cursor
}
