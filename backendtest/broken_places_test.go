package backendtest

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func unfiltered(q query) bool { return q.Workchain == nil && q.Shard == nil }

// brokenPlaces are right for most queries, and wrong for those of a workchain or shard, for cursors without a block,
// or after a restart.
var brokenPlaces = []brokenBackend{
	{"a workchain among the first 1,000 blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Prune = nil
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if unfiltered(q) {
				return c.Blocks(ctx, q)
			}
			all := query{After: q.After, Before: q.Before, First: min(q.First, 1) * 1000, Last: min(q.Last, 1) * 1000}
			page, err := c.Blocks(ctx, all)
			return chaingql.PageOf(page, q), err
		}}
	}, "First and Last go up to 1,000: Blocks("},
	{"pages of a workchain that are shared", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var mu sync.Mutex
		pages := make(map[string][]block)
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if unfiltered(q) || len(page) == 0 {
				return page, err
			}
			mu.Lock()
			defer mu.Unlock()
			key := describe(q) + string(page[len(page)-1].Cursor)
			if pages[key] == nil {
				pages[key] = page
			}
			return pages[key], nil
		}}
	}, "a page is the caller's own: Blocks("},
	{"a cursor without a block that is never too old", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			isBlock := func(b block) bool { return b.Cursor == q.After }
			if slices.ContainsFunc(Chain(1201, 1), isBlock) {
				return page, err
			}
			if errors.Is(err, chaingql.ErrCursorTooOld) {
				q.After = ""
				return c.Blocks(ctx, q)
			}
			return page, err
		}}
	}), "pruned history is ErrCursorTooOld: Blocks("},
	{"a Follow from a cursor without a block that begins with the newest",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if at, _ := c.Blocks(ctx, query{Last: 1, Before: after + "0"}); len(at) > 0 && at[0].Cursor != after {
				if newest, _ := c.Blocks(ctx, query{Last: 1}); newest[0].Cursor > after {
					after = newest[0].Cursor
				}
			}
			c.Follow(ctx, after)(yield)
		}), "Follow yields the stored blocks and waits: Follow("},
	{"a page of a shard after the newest pruned block that is too old", changePruned(
		func(r *pruneRecord, c *memchain.Chain) override {
			return override{blocks: func(ctx context.Context, q query) ([]block, error) {
				if newest := r.newestPruned(); q.Shard != nil && q.After != "" && q.After == newest {
					return nil, chaingql.ErrCursorTooOld
				}
				return c.Blocks(ctx, q)
			}}
		},
	), "the newest pruned block's own cursor is not too old: Blocks("},
	{"a Follow that ends when its first cursor is too old", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Interrupt = nil
		h.Backend = override{Chain: c, follow: func(ctx context.Context, first chaingql.Cursor) seq {
			return chaingql.Poll(ctx, func(ctx context.Context, q query) ([]block, error) {
				if _, err := c.Blocks(ctx, query{First: 1, After: max(first, "0")}); err != nil {
					return nil, err
				}
				q.After = max(q.After, "0")
				return c.Blocks(ctx, q)
			}, first, time.Millisecond)
		}}
	}, "a Follow that has read what is pruned goes on: Follow("},
	{"balances that are lost at a restart", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			return override{Chain: c, balance: func(context.Context, chaingql.Address) (*big.Int, error) {
				return nil, chaingql.ErrNotFound
			}}, nil
		}
	}, "balances are remembered after a restart: Balance("},
}
