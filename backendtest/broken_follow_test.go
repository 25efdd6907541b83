package backendtest

import (
	"context"
	"errors"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A yieldFunc receives the blocks and errors that Follow yields.
type yieldFunc = func(block, error) bool

// changeFollow replaces Follow with change, which may call c.Follow.
func changeFollow(
	change func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc),
) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return func(yield yieldFunc) { change(c, ctx, after, yield) }
		}}
	}
}

// failingPages is a chain whose Blocks keeps a connection that is dead.
type failingPages struct {
	stallable
	dead *atomic.Bool
}

func (f failingPages) Blocks(ctx context.Context, q query) ([]block, error) {
	if f.dead.Load() {
		return nil, errors.New("the connection is broken")
	}
	return f.stallable.Blocks(ctx, q)
}

// brokenFollows have a wrong Follow, or a method that ignores its context.
var brokenFollows = []brokenBackend{
	{"Blocks ignores its context", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			return c.Blocks(context.WithoutCancel(ctx), q)
		}}
	}, "with a done context returned no error"},
	{"Balance ignores its context", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			return c.Balance(context.WithoutCancel(ctx), a)
		}}
	}, "Balance with a done context returned no error"},
	{"Follow ignores its context", func(stop context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, follow: func(_ context.Context, after chaingql.Cursor) seq {
			return c.Follow(stop, after)
		}}
	}, "did not return within 2s after its context was canceled"},
	{"Follow yields ErrCursorTooOld for each error", changeFollow(
		func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool {
				if err != nil && !errors.Is(err, chaingql.ErrBadCursor) {
					err = chaingql.ErrCursorTooOld
				}
				return yield(b, err)
			})
		}), "this error is an answer, which the source did not give"},
	{"Blocks ignores its context during a stall", func(stop context.Context, c *memchain.Chain, h *Harness) {
		var stalled atomic.Bool
		h.Stall = func() func() { stalled.Store(true); return func() { stalled.Store(false) } }
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if stalled.Load() {
				<-stop.Done()
			}
			return c.Blocks(ctx, q)
		}}
	}, "whose context expired while the source was stalled, did not return within"},
	{"Blocks fails after a stall", func(_ context.Context, c *memchain.Chain, h *Harness) {
		s := stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}])}
		dead := failingPages{s, new(atomic.Bool)}
		h.Backend, h.Patience = dead, time.Second
		h.Stall = func() func() {
			resume := s.stall()
			return func() { dead.dead.Store(true); resume() }
		}
	}, "repeated after the source had stalled, failed: the connection is broken"},
	{"Blocks fails after an interruption", func(_ context.Context, c *memchain.Chain, h *Harness) {
		dead := failingPages{stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}])}, new(atomic.Bool)}
		h.Backend, h.Patience = dead, time.Second
		h.Interrupt = func() { dead.dead.Store(true); c.Interrupt(nil) }
	}, "repeated after the source was interrupted, failed: the connection is broken"},

	{
		"Follow skips blocks between the stored and the new ones",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
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
		}),
		"Follow skips no block between the stored and the new blocks: Follow(after \"\") yielded nothing for 10s",
	},
	{"Follow yields the newest stored block three times", repeatNewest(3), "again: blocks must ascend"},
	{
		"Follow yields two blocks in the wrong order",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
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
		}),
		"skipped cursor",
	},
	{
		"Follow repeats an old block",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			var last []block
			c.Follow(ctx, after)(func(b block, err error) bool {
				last = append(last, b)
				return yield(b, err) && (len(last) != 4 || yield(last[1], nil))
			})
		}),
		"blocks must ascend",
	},
	{
		"Follow ends without an error at the deadline of its context",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool {
				return !errors.Is(err, context.DeadlineExceeded) && yield(b, err)
			})
		}),
		"yielded no error before it returned",
	},
	{
		"Follow starts after the newest block instead of its cursor",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if newest, _ := c.Blocks(ctx, query{Last: 1}); len(newest) > 0 {
				after = max(after, newest[0].Cursor)
			}
			c.Follow(ctx, after)(yield)
		}),
		"yielded nothing for 10s",
	},
	{
		"Follow returns after the stored blocks",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			page, err := c.Blocks(ctx, query{First: 100_000, After: after})
			for _, b := range page {
				if !yield(b, nil) {
					return
				}
			}
			if err != nil {
				yield(block{}, err)
			}
		}),
		"yielded no error before it returned",
	},
	{
		"Follow yields an error for a cursor after the newest block",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if newest, _ := c.Blocks(ctx, query{Last: 1}); len(newest) > 0 && after > newest[0].Cursor {
				yield(block{}, errors.New("no such block"))
				return
			}
			c.Follow(ctx, after)(yield)
		}),
		"with error no such block: it must wait for new blocks",
	},
	{
		"Follow yields two errors",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool {
				return yield(b, err) && (err == nil || yield(b, err))
			})
		}),
		"it must yield only one error and then return",
	},
	{
		"Follow continues after its caller breaks out of the loop",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool { yield(b, err); return err == nil })
		}),
		"called yield again after yield had returned false",
	},
	{
		"Follow panics",
		changeFollow(func(_ *memchain.Chain, _ context.Context, _ chaingql.Cursor, _ yieldFunc) {
			panic("index out of range")
		}),
		"panicked: index out of range",
	},
	{
		"Follow hides an interruption",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			for again := true; again; {
				again = false
				c.Follow(ctx, after)(func(b block, err error) bool {
					cursorError := errors.Is(err, chaingql.ErrCursorTooOld) || errors.Is(err, chaingql.ErrBadCursor)
					if err != nil && ctx.Err() == nil && !cursorError {
						again = true
						return false
					}
					after = max(after, b.Cursor)
					return yield(b, err)
				})
			}
		}),
		"want an error because the source was interrupted",
	},
	{
		"Follow loses a block when it is interrupted",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
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
		}),
		"want cursor",
	},
}

// oldest returns the cursor of the oldest stored block.
func oldest(c *memchain.Chain) chaingql.Cursor {
	page, _ := c.Blocks(context.Background(), query{First: 1})
	return page[0].Cursor
}
