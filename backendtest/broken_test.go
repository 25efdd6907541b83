package backendtest

import (
	"context"
	"errors"
	"iter"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

type (
	block = chaingql.Block
	query = chaingql.BlocksQuery
	seq   = iter.Seq2[block, error]
)

var pow120 = balances()[6]

// override is a chain with one replaced method.
type override struct {
	*memchain.Chain
	balance func(context.Context, chaingql.Address) (*big.Int, error)
	blocks  func(context.Context, query) ([]block, error)
	follow  func(context.Context, chaingql.Cursor) seq
}

func (w override) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if w.balance == nil {
		return w.Chain.Balance(ctx, addr)
	}
	return w.balance(ctx, addr)
}

func (w override) Blocks(ctx context.Context, q query) ([]block, error) {
	if w.blocks == nil {
		return w.Chain.Blocks(ctx, q)
	}
	return w.blocks(ctx, q)
}

func (w override) Follow(ctx context.Context, after chaingql.Cursor) seq {
	if w.follow == nil {
		return w.Chain.Follow(ctx, after)
	}
	return w.follow(ctx, after)
}

// changeQuery applies change to the queries of Blocks.
func changeQuery(change func(*query)) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			change(&q)
			return c.Blocks(ctx, q)
		}}
	}
}

// changePage applies change to the results of Blocks.
func changePage(change func(query, []block) []block) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			return change(q, page), err
		}}
	}
}

// changeBalance applies change to the results of Balance.
func changeBalance(change func(*big.Int, error) (*big.Int, error)) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			return change(c.Balance(ctx, addr))
		}}
	}
}

// A breakFunc changes h, a Harness for c, so that it violates a rule. stop ends at the end of the rule.
type breakFunc func(stop context.Context, c *memchain.Chain, h *Harness)

// A brokenBackend violates one rule.
type brokenBackend struct {
	name   string
	breaks breakFunc
	want   string // substring of the reported failure
}

var brokenAnswers = []brokenBackend{
	{"balances shared with the caller", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var shared sync.Map
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			if v, ok := shared.Load(addr); ok {
				return v.(*big.Int), nil
			}
			v, err := c.Balance(ctx, addr)
			if err == nil {
				shared.Store(addr, v)
			}
			return v, err
		}}
	}, "and it must be the caller's own"},
	{"balances stored by reference", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var kept sync.Map
		h.SetBalance = func(addr chaingql.Address, nano *big.Int) error { kept.Store(addr, nano); return nil }
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			v, ok := kept.Load(addr)
			if !ok {
				return nil, errors.Join(chaingql.ErrNotFound, ctx.Err())
			}
			return new(big.Int).Set(v.(*big.Int)), ctx.Err()
		}}
	}, "the source must have kept a copy"},
	{"balances as floats", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			return v, err
		}
		f, _ := v.Float64()
		v, _ = big.NewFloat(f).Int(nil)
		return v, nil
	}), "is 9007199254740992, want 9007199254740993: a balance must come back to the last nano-unit"},
	{"balances in 64 bits", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			return v, err
		}
		return new(big.Int).SetUint64(v.Uint64()), nil
	}), "is 0, want 18446744073709551616"},
	{"accounts of all workchains mixed up", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.SetBalance = func(a chaingql.Address, nano *big.Int) error {
			a.Workchain = 0
			c.SetBalance(a, nano)
			return nil
		}
		h.Backend = override{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			a.Workchain = 0
			return c.Balance(ctx, a)
		}}
	}, "live in every workchain, negative ones too"},
	{"nil for an unknown account", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if errors.Is(err, chaingql.ErrNotFound) {
			return nil, nil
		}
		return v, err
	}), "returned <nil> and error <nil>: the error must be ErrNotFound"},
	{"zero for an unknown account", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if errors.Is(err, chaingql.ErrNotFound) {
			return new(big.Int), nil
		}
		return v, err
	}), "returned 0 and error <nil>: the error must be ErrNotFound"},
	{"Balance that panics", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		return new(big.Int).Set(v), err
	}), "panicked: "},

	{"an error for an empty chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if err == nil && len(page) == 0 {
				err = errors.New("no rows")
			}
			return page, err
		}}
	}, "an empty chain has no blocks and no error: Blocks(First 1) returned no rows"},
	{"Last in descending order", changePage(func(q query, page []block) []block {
		if q.Last > 0 {
			slices.Reverse(page)
		}
		return page
	}), "blocks must ascend, whichever end was asked for"},
	{"Last returns the first blocks", changeQuery(func(q *query) {
		q.First, q.Last = q.First+q.Last, 0
	}), "it must hold the highest that match"},
	{"After inclusive", changePage(func(q query, page []block) []block {
		if q.After != "" && q.First > 1 && len(page) > 0 {
			page = append([]block{{Cursor: q.After}}, page[:len(page)-1]...)
		}
		return page
	}), "which is After itself: a page begins past it"},
	{"After skips a block", changePage(func(q query, page []block) []block {
		if q.After != "" && q.First > 0 && len(page) > 0 {
			page = page[1:]
		}
		return page
	}), "it must hold the lowest that match"},
	{"Before inclusive", changeQuery(func(q *query) {
		if q.Before != "" {
			q.Before += "0"
		}
	}), "which is Before itself: a page ends short of it"},
	{"After ignored", changeQuery(func(q *query) { q.After = "" }), "which is below After"},
	{"Before ignored", changeQuery(func(q *query) { q.Before = "" }), "which is Before itself"},
	{"Shard ignored", changeQuery(func(q *query) { q.Shard = nil }), "only the shard asked for may come"},
	{"Workchain ignored", changeQuery(func(q *query) { q.Workchain = nil }), "only the workchain asked for may come"},
	{"seq_no used as a unique key", changePage(func(_ query, page []block) []block {
		return slices.CompactFunc(page, func(a, b block) bool { return a.SeqNo == b.SeqNo })
	}), "leaves out cursor"},
	{"blocks with another's hash", changePage(func(_ query, page []block) []block {
		for i := range page {
			page[i].Hash = chaingql.Hash{}
		}
		return page
	}), "with hash 0000000000000000000000000000000000000000000000000000000000000000, stored as"},
	{"pages of at most 100", changeQuery(func(q *query) {
		q.First, q.Last = min(q.First, 100), min(q.Last, 100)
	}), "and has 100 blocks of "},
	{"pages shared between callers", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var mu sync.Mutex
		var all []block
		h.Append = func(blocks []block) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all[:len(all):len(all)], blocks...)
			return c.Append(blocks...)
		}
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			if q.First > 0 && q.After == "" && q.Workchain == nil && q.Shard == nil && q.Before == "" {
				page = all[:min(len(all), q.First)]
			}
			return page, err
		}}
	}, "must be the caller's own"},
	{"foreign cursors accepted by Blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrBadCursor) {
				return nil, nil
			}
			return page, err
		}}
	}, "the error must be ErrBadCursor"},
	{
		"foreign cursors accepted by Follow",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if after == defaultForeign {
				after = ""
			}
			c.Follow(ctx, after)(yield)
		}),
		"it must yield ErrBadCursor",
	},
	{"pruned history skipped in a page", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrCursorTooOld) {
				q.After = ""
				return c.Blocks(ctx, q)
			}
			return page, err
		}}
	}, "the error must be ErrCursorTooOld"},
	{
		"pruned history skipped by Follow",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if _, err := c.Blocks(ctx, query{First: 1, After: after}); errors.Is(err, chaingql.ErrCursorTooOld) {
				after = oldest(c)
			}
			c.Follow(ctx, after)(yield)
		}),
		"it must yield ErrCursorTooOld",
	},
	{"pages from a cache", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var calls atomic.Int64
		var stale atomic.Pointer[[]block]
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			all := stale.Load()
			if calls.Add(1)%10 == 1 || all == nil {
				now, _ := c.Blocks(ctx, query{First: 100_000})
				all = &now
				stale.Store(all)
			}
			if err == nil {
				page = chaingql.PageOf(*all, q)
			}
			return page, err
		}}
	}, "while blocks were appended, leaves out cursor"},
}
