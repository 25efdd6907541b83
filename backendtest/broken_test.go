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

// twisted is a chain with one method in place of its own.
type twisted struct {
	*memchain.Chain
	balance func(context.Context, chaingql.Address) (*big.Int, error)
	blocks  func(context.Context, query) ([]block, error)
	follow  func(context.Context, chaingql.Cursor) seq
}

func (w twisted) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if w.balance == nil {
		return w.Chain.Balance(ctx, addr)
	}
	return w.balance(ctx, addr)
}

func (w twisted) Blocks(ctx context.Context, q query) ([]block, error) {
	if w.blocks == nil {
		return w.Chain.Blocks(ctx, q)
	}
	return w.blocks(ctx, q)
}

func (w twisted) Follow(ctx context.Context, after chaingql.Cursor) seq {
	if w.follow == nil {
		return w.Chain.Follow(ctx, after)
	}
	return w.follow(ctx, after)
}

// asking breaks Blocks by what it asks the chain for.
func asking(change func(*query)) func(context.Context, *memchain.Chain, *Harness) {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			change(&q)
			return c.Blocks(ctx, q)
		}}
	}
}

// answering breaks Blocks by what it makes of the chain's page.
func answering(change func(query, []block) []block) func(context.Context, *memchain.Chain, *Harness) {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			return change(q, page), err
		}}
	}
}

// paying breaks Balance by what it makes of the chain's answer.
func paying(change func(*big.Int, error) (*big.Int, error)) func(context.Context, *memchain.Chain, *Harness) {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			return change(c.Balance(ctx, addr))
		}}
	}
}

// A breach is a backend that keeps every rule but one.
type breach struct {
	name   string
	breaks func(stop context.Context, c *memchain.Chain, h *Harness)
	want   string // in what is said of it
}

var brokenAnswers = []breach{
	{"balances that are shared with the caller", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var shared sync.Map
		h.Backend = twisted{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
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
	{"balances that are kept by reference", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var kept sync.Map
		h.SetBalance = func(addr chaingql.Address, nano *big.Int) error { kept.Store(addr, nano); return nil }
		h.Backend = twisted{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			v, ok := kept.Load(addr)
			if !ok {
				return nil, errors.Join(chaingql.ErrNotFound, ctx.Err())
			}
			return new(big.Int).Set(v.(*big.Int)), ctx.Err()
		}}
	}, "the source must have kept a copy"},
	{"balances as floats", paying(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			return v, err
		}
		f, _ := v.Float64()
		v, _ = big.NewFloat(f).Int(nil)
		return v, nil
	}), "is 9007199254740992, where it is 9007199254740993 in the source: a balance must come back to the last nano-unit"},
	{"balances in 64 bits", paying(func(v *big.Int, err error) (*big.Int, error) {
		if err != nil {
			return v, err
		}
		return new(big.Int).SetUint64(v.Uint64()), nil
	}), "is 0, where it is 18446744073709551616"},
	{"accounts without their workchain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.SetBalance = func(a chaingql.Address, nano *big.Int) error { a.Workchain = 0; c.SetBalance(a, nano); return nil }
		h.Backend = twisted{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			a.Workchain = 0
			return c.Balance(ctx, a)
		}}
	}, "live in every workchain, negative ones too"},
	{"nil for an unknown account", paying(func(v *big.Int, err error) (*big.Int, error) {
		if errors.Is(err, chaingql.ErrNotFound) {
			return nil, nil
		}
		return v, err
	}), "returned <nil> and error <nil>: the error must be ErrNotFound"},
	{"zero for an unknown account", paying(func(v *big.Int, err error) (*big.Int, error) {
		if errors.Is(err, chaingql.ErrNotFound) {
			return new(big.Int), nil
		}
		return v, err
	}), "returned 0 and error <nil>: the error must be ErrNotFound"},
	{"Balance that panics", paying(func(v *big.Int, err error) (*big.Int, error) { return new(big.Int).Set(v), err }), "panicked: "},

	{"an error for an empty chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if err == nil && len(page) == 0 {
				err = errors.New("no rows")
			}
			return page, err
		}}
	}, "an empty chain has no blocks and no error: Blocks(First 1) returned no rows"},
	{"Last from the newest down", answering(func(q query, page []block) []block {
		if q.Last > 0 {
			slices.Reverse(page)
		}
		return page
	}), "blocks must ascend, whichever end was asked for"},
	{"Last from the wrong end", asking(func(q *query) { q.First, q.Last = q.First+q.Last, 0 }), "it must hold the highest that match"},
	{"After inclusive", answering(func(q query, page []block) []block {
		if q.After != "" && q.First > 1 && len(page) > 0 {
			page = append([]block{{Cursor: q.After}}, page[:len(page)-1]...)
		}
		return page
	}), "which is After itself: a page begins past it"},
	{"After one too far", answering(func(q query, page []block) []block {
		if q.After != "" && q.First > 0 && len(page) > 0 {
			page = page[1:]
		}
		return page
	}), "it must hold the lowest that match"},
	{"Before inclusive", asking(func(q *query) {
		if q.Before != "" {
			q.Before += "0"
		}
	}), "which is Before itself: a page ends short of it"},
	{"After ignored", asking(func(q *query) { q.After = "" }), "which is below After"},
	{"Before ignored", asking(func(q *query) { q.Before = "" }), "which is Before itself"},
	{"Shard ignored", asking(func(q *query) { q.Shard = nil }), "only the shard asked for may come"},
	{"Workchain ignored", asking(func(q *query) { q.Workchain = nil }), "only the workchain asked for may come"},
	{"seq_no taken for unique", answering(func(_ query, page []block) []block {
		return slices.CompactFunc(page, func(a, b block) bool { return a.SeqNo == b.SeqNo })
	}), "leaves out cursor"},
	{"blocks with another's hash", answering(func(_ query, page []block) []block {
		for i := range page {
			page[i].Hash = chaingql.Hash{}
		}
		return page
	}), "with hash 0000000000000000000000000000000000000000000000000000000000000000, stored as"},
	{"pages of at most 100", asking(func(q *query) { q.First, q.Last = min(q.First, 100), min(q.Last, 100) }), "and has 100 blocks of "},
	{"pages that are shared", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var mu sync.Mutex
		var all []block
		h.Append = func(blocks []block) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all[:len(all):len(all)], blocks...)
			return c.Append(blocks...)
		}
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			if q.First > 0 && q.After == "" && q.Workchain == nil && q.Shard == nil && q.Before == "" {
				page = all[:min(len(all), q.First)]
			}
			return page, err
		}}
	}, "must be the caller's own"},
	{"foreign cursors taken", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrBadCursor) {
				return nil, nil
			}
			return page, err
		}}
	}, "the error must be ErrBadCursor"},
	{"foreign cursors followed", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		if after == defaultForeign {
			after = ""
		}
		c.Follow(ctx, after)(yield)
	}), "it must yield ErrBadCursor"},
	{"pruned history passed over in a page", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrCursorTooOld) {
				q.After = ""
				return c.Blocks(ctx, q)
			}
			return page, err
		}}
	}, "the error must be ErrCursorTooOld"},
	{"pruned history passed over by Follow", following(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield func(block, error) bool) {
		if _, err := c.Blocks(ctx, query{First: 1, After: after}); errors.Is(err, chaingql.ErrCursorTooOld) {
			after = oldest(c)
		}
		c.Follow(ctx, after)(yield)
	}), "it must yield ErrCursorTooOld"},
	{"pages from a cache", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var calls atomic.Int64
		var stale atomic.Pointer[[]block]
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
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
