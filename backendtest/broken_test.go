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

// override is a chain. If one of its functions is not nil, it replaces the method of that
// name.
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

// changeQuery breaks Blocks: it applies change to each query.
func changeQuery(change func(*query)) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			change(&q)
			return c.Blocks(ctx, q)
		}}
	}
}

// changePage breaks Blocks: it applies change to each page.
func changePage(change func(query, []block) []block) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			return change(q, page), err
		}}
	}
}

// changeBalance breaks Balance: it applies change to each result.
func changeBalance(change func(*big.Int, error) (*big.Int, error)) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			return change(c.Balance(ctx, addr))
		}}
	}
}

// A breakFunc changes h, a Harness for c, so that its Backend violates a rule. stop is
// canceled when the rule ends.
type breakFunc func(stop context.Context, c *memchain.Chain, h *Harness)

// A brokenBackend makes a Backend that violates a rule.
type brokenBackend struct {
	name   string
	breaks breakFunc
	want   string // a substring of the failure that a rule must report
}

// brokenResults return wrong results from Balance, Blocks or Follow.
var brokenResults = []brokenBackend{
	{"Balance returns the same big.Int to all callers", func(_ context.Context, c *memchain.Chain, h *Harness) {
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
	}, "Balance must return a copy"},
	{"SetBalance keeps a reference to its argument", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var kept sync.Map
		h.SetBalance = func(addr chaingql.Address, nano *big.Int) error { kept.Store(addr, nano); return nil }
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			v, ok := kept.Load(addr)
			if !ok {
				return nil, errors.Join(chaingql.ErrNotFound, ctx.Err())
			}
			return new(big.Int).Set(v.(*big.Int)), ctx.Err()
		}}
	}, "passed it to SetBalance, which must copy it"},
	{"balances are float64 values", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			return v, err
		}
		f, _ := v.Float64()
		v, _ = big.NewFloat(f).Int(nil)
		return v, nil
	}), "returned 9007199254740992, want 9007199254740993: balances up to 2^120-1 must be exact to the nano-unit"},
	{"balances are truncated to 64 bits", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			return v, err
		}
		return new(big.Int).SetUint64(v.Uint64()), nil
	}), "returned 0, want 18446744073709551616"},
	{"the workchain of an account is ignored", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.SetBalance = func(a chaingql.Address, nano *big.Int) error {
			a.Workchain = 0
			c.SetBalance(a, nano)
			return nil
		}
		h.Backend = override{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			a.Workchain = 0
			return c.Balance(ctx, a)
		}}
	}, "accounts with the same ID in different workchains must have separate balances"},
	{"Balance returns nil for an unknown account", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if errors.Is(err, chaingql.ErrNotFound) {
			return nil, nil
		}
		return v, err
	}), "returned <nil> and error <nil>: the error must be ErrNotFound"},
	{"Balance returns ErrNotFound for each error", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			err = chaingql.ErrNotFound
		}
		return v, err
	}), "this error is an answer, which the source did not give"},
	{"Balance returns zero for an unknown account", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		if errors.Is(err, chaingql.ErrNotFound) {
			return new(big.Int), nil
		}
		return v, err
	}), "returned 0 and error <nil>: the error must be ErrNotFound"},
	{"Balance panics for an unknown account", changeBalance(func(v *big.Int, err error) (*big.Int, error) {
		return new(big.Int).Set(v), err
	}), "panicked: "},

	{"Blocks returns an error for an empty chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if err == nil && len(page) == 0 {
				err = errors.New("no rows")
			}
			return page, err
		}}
	}, "Blocks returns no blocks and no error for an empty chain: Blocks(First 1) failed: no rows"},
	{"Last returns blocks in descending order", changePage(func(q query, page []block) []block {
		if q.Last > 0 {
			slices.Reverse(page)
		}
		return page
	}), "blocks must ascend, for First and for Last"},
	{"Last returns the first blocks", changeQuery(func(q *query) {
		q.First, q.Last = q.First+q.Last, 0
	}), "matching blocks with the highest cursors"},
	{"After is inclusive", changePage(func(q query, page []block) []block {
		if q.After != "" && q.First > 1 && len(page) > 0 {
			page = append([]block{{Cursor: q.After}}, page[:len(page)-1]...)
		}
		return page
	}), "which is equal to After: the cursors of a page must be greater than After"},
	{"After skips a block", changePage(func(q query, page []block) []block {
		if q.After != "" && q.First > 0 && len(page) > 0 {
			page = page[1:]
		}
		return page
	}), "matching blocks with the lowest cursors"},
	{"Before is inclusive", changeQuery(func(q *query) {
		if q.Before != "" {
			q.Before += "0"
		}
	}), "which is equal to Before: the cursors of a page must be less than Before"},
	{"After is ignored", changeQuery(func(q *query) { q.After = "" }), "which is less than After"},
	{"Before is ignored", changeQuery(func(q *query) { q.Before = "" }), "which is equal to Before"},
	{"Shard is ignored", changeQuery(func(q *query) { q.Shard = nil }), "only blocks of the requested shard"},
	{
		"Workchain is ignored", changeQuery(func(q *query) { q.Workchain = nil }),
		"only blocks of the requested workchain",
	},
	{"seq_no is used as a unique key", changePage(func(_ query, page []block) []block {
		return slices.CompactFunc(page, func(a, b block) bool { return a.SeqNo == b.SeqNo })
	}), "omitted cursor"},
	{"blocks have a wrong hash", changePage(func(_ query, page []block) []block {
		for i := range page {
			page[i].Hash = chaingql.Hash{}
		}
		return page
	}), "with hash 0000000000000000000000000000000000000000000000000000000000000000, but the stored block has"},
	{"pages have at most 100 blocks", changeQuery(func(q *query) {
		q.First, q.Last = min(q.First, 100), min(q.Last, 100)
	}), "and returned 100 blocks: it must return the "},
	{"pages share memory between callers", func(_ context.Context, c *memchain.Chain, h *Harness) {
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
	}, "the caller must own each page"},
	{"Blocks accepts foreign cursors", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrBadCursor) {
				return nil, nil
			}
			return page, err
		}}
	}, "the error must be ErrBadCursor"},
	{
		"Follow accepts foreign cursors",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if after == defaultForeign {
				after = ""
			}
			c.Follow(ctx, after)(yield)
		}),
		"it must yield ErrBadCursor",
	},
	{"Blocks silently skips pruned blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
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
		"Follow silently skips pruned blocks",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			if _, err := c.Blocks(ctx, query{First: 1, After: after}); errors.Is(err, chaingql.ErrCursorTooOld) {
				after = oldest(c)
			}
			c.Follow(ctx, after)(yield)
		}),
		"it must yield ErrCursorTooOld",
	},
	{"pages come from a stale cache", func(_ context.Context, c *memchain.Chain, h *Harness) {
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
	}, "while blocks were appended, omitted cursor"},
}
