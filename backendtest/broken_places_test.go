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

// unfiltered reports whether q selects all workchains and shards.
func unfiltered(q query) bool { return q.Workchain == nil && q.Shard == nil }

// brokenPlaces are correct for most calls. They are wrong for queries with a workchain or
// shard, for cursors that no block has, for a Follow whose first cursor is pruned, or after
// a restart.
var brokenPlaces = []brokenBackend{
	{"a query with a filter reads only 1,000 blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Prune = nil
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if unfiltered(q) {
				return c.Blocks(ctx, q)
			}
			all := query{After: q.After, Before: q.Before, First: min(q.First, 1) * 1000, Last: min(q.Last, 1) * 1000}
			page, err := c.Blocks(ctx, all)
			return chaingql.PageOf(page, q), err
		}}
	}, "First and Last may be up to 1,000: Blocks("},
	{"pages of queries with a filter share memory", func(_ context.Context, c *memchain.Chain, h *Harness) {
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
	}, "Blocks returns a page that the caller owns: Blocks("},
	{"a cursor that no block has is never too old", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
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
	}), "a cursor before a pruned block is too old: Blocks("},
	{"Follow from a cursor that no block has skips the stored blocks",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if at, _ := c.Blocks(ctx, query{Last: 1, Before: after + "0"}); len(at) > 0 && at[0].Cursor != after {
				if newest, _ := c.Blocks(ctx, query{Last: 1}); newest[0].Cursor > after {
					after = newest[0].Cursor
				}
			}
			c.Follow(ctx, after)(yield)
		}), "Follow yields the stored blocks and then waits: Follow("},
	{"Blocks with a shard returns ErrCursorTooOld for the newest pruned cursor", changePruned(
		func(r *pruneRecord, c *memchain.Chain) override {
			return override{blocks: func(ctx context.Context, q query) ([]block, error) {
				if newest := r.newestPruned(); q.Shard != nil && q.After != "" && q.After == newest {
					return nil, chaingql.ErrCursorTooOld
				}
				return c.Blocks(ctx, q)
			}}
		},
	), "the cursor of the newest pruned block is not too old: Blocks("},
	{"Follow ends when its first cursor becomes too old", func(_ context.Context, c *memchain.Chain, h *Harness) {
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
	}, "Follow continues if blocks that it has yielded are pruned: Follow("},
	{"balances are lost at a restart", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			return override{Chain: c, balance: func(context.Context, chaingql.Address) (*big.Int, error) {
				return nil, chaingql.ErrNotFound
			}}, nil
		}
	}, "balances survive a restart: Balance("},
	{"after a restart, balances do not change", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			var known sync.Map
			return override{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
				if nano, cached := known.Load(a); cached {
					return new(big.Int).Set(nano.(*big.Int)), nil
				}
				nano, err := c.Balance(ctx, a)
				if err == nil {
					known.Store(a, new(big.Int).Set(nano))
				}
				return nano, err
			}}, nil
		}
	}, "want 7: a balance may change after a restart"},
	{"after a restart, Blocks has no new blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			return override{Chain: c, blocks: frozen(c).Blocks}, nil
		}
	}, "blocks survive a restart: Blocks("},
	{"after a restart, Follow has no new blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			return override{Chain: c, follow: frozen(c).Follow}, nil
		}
	}, "blocks survive a restart: Follow("},
	{"after a restart, lookups do not find new blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			return lookupOverride{Chain: c, byHash: frozen(c).BlockByHash}, nil
		}
	}, "find the stored blocks after a restart: BlockByHash("},
}

// frozen returns a copy of c that does not change.
func frozen(c *memchain.Chain) *memchain.Chain {
	snapshot := memchain.New()
	snapshot.Replace(c.Epoch())
	blocks, err := c.Blocks(context.Background(), query{First: chaingql.MaxPage})
	if err = errors.Join(err, snapshot.Append(blocks...)); err != nil {
		panic(err)
	}
	return snapshot
}
