package backendtest

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"sync"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// cachePages caches the pages that it selects forever.
func cachePages(selects func(query, []block) bool) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		var mu sync.Mutex
		pages := make(map[string][]block)
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			mu.Lock()
			defer mu.Unlock()
			if page, cached := pages[describe(q)]; cached {
				return slices.Clone(page), nil
			}
			page, err := c.Blocks(ctx, q)
			if err == nil && selects(q, page) {
				pages[describe(q)] = slices.Clone(page)
			}
			return page, err
		}}
	}
}

// brokenCaches serve results that were right before the chain grew.
var brokenCaches = []brokenBackend{
	{
		"empty pages that are cached", cachePages(func(_ query, page []block) bool { return len(page) == 0 }),
		"Blocks returns each block that Follow has yielded: Blocks(After",
	},
	{
		"empty pages of a workchain that are cached",
		cachePages(func(q query, page []block) bool { return len(page) == 0 && !unfiltered(q) }),
		"Blocks returns no blocks and no error for an empty chain: Blocks(Workchain",
	},
	{
		"a newest block that is cached", cachePages(func(q query, _ []block) bool { return q == query{Last: 1} }),
		"Blocks returns each block that Follow has yielded: Blocks(Last 1)",
	},
	{
		"pages before a cursor that are cached", cachePages(func(q query, _ []block) bool { return q.Before != "" }),
		"Follow from a cursor after the newest block waits: Blocks(Before",
	},
	{
		"complete pages after a cursor that are cached",
		cachePages(func(q query, page []block) bool { return q.After != "" && len(page) == q.First }),
		"a cursor before a pruned block is too old: Blocks(After",
	},
	{"unknown accounts that are cached", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var unknown sync.Map
		h.Backend = override{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			if _, cached := unknown.Load(a); cached {
				return nil, chaingql.ErrNotFound
			}
			nano, err := c.Balance(ctx, a)
			if errors.Is(err, chaingql.ErrNotFound) {
				unknown.Store(a, true)
			}
			return nano, err
		}}
	}, "Balance returns the exact value that was set: Balance("},
	{"pages before a pruned cursor that are too old", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if q.Before != "" && q.Before <= r.newestPruned() {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "a cursor before a pruned block is too old: Blocks(Before"},
}
