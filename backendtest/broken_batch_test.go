package backendtest

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// batching breaks Balances by what it makes of the chain's answer.
type batching struct {
	*memchain.Chain
	change func([]*big.Int) []*big.Int
}

func (b batching) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	found, err := b.Chain.Balances(ctx, addrs)
	return b.change(found), err
}

// batch is a chain with a Balances in place of its own.
type batch struct {
	*memchain.Chain
	balances func(context.Context, []chaingql.Address) ([]*big.Int, error)
}

func (b batch) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	return b.balances(ctx, addrs)
}

// stuck waits for a stalled source however long it takes.
type stuck struct{ stallable }

func (s stuck) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	if err := s.wait(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return s.Chain.Balances(ctx, addrs)
}

func batched(change func([]*big.Int) []*big.Int) func(context.Context, *memchain.Chain, *Harness) {
	return func(_ context.Context, c *memchain.Chain, h *Harness) { h.Backend = batching{c, change} }
}

var brokenBatches = []breach{
	{"balances without those that are not known", batched(func(found []*big.Int) []*big.Int {
		return slices.DeleteFunc(found, func(v *big.Int) bool { return v == nil })
	}), "Balances returned 7 balances for 9 addresses"},
	{"balances in another order", batched(func(found []*big.Int) []*big.Int {
		slices.Reverse(found)
		return found
	}), "they must be in the order of the addresses"},
	{"zero for accounts that are not known", batched(func(found []*big.Int) []*big.Int {
		for i, v := range found {
			if v == nil {
				found[i] = new(big.Int)
			}
		}
		return found
	}), "which the chain never saw: it must be nil"},
	{"balances together that are shared with the caller", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var kept []*big.Int
		h.Backend = batching{c, func(found []*big.Int) []*big.Int {
			if kept == nil {
				kept = found
			}
			return slices.Clone(kept)
		}}
	}, "they must be in the order of the addresses"},
	{"balances together whose context nobody looks at", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batch{c, func(_ context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			return c.Balances(context.Background(), addrs)
		}}
	}, "a call whose context is done fails: Balances with a context that is done returned no error"},
	{"balances together that a stalled source holds up", func(_ context.Context, c *memchain.Chain, h *Harness) {
		s := stallable{c, new(atomic.Pointer[chan struct{}])}
		h.Stall = s.stall
		h.Backend = stuck{s}
	}, "Balances to a stalled source"},
	{"balances of at most 50 accounts", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batch{c, func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			if len(addrs) > 50 {
				return nil, errors.New("too many parameters")
			}
			return c.Balances(ctx, addrs)
		}}
	}, "Balances takes 100 addresses: Balances of 100 addresses returned too many parameters"},
	{"pages that lag behind Follow", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var asked atomic.Int64
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if q.Last == 2 && asked.Add(1) > 3 && len(page) > 0 {
				page = page[:len(page)-1]
			}
			return page, err
		}}
	}, "leaves out cursor"},
}
