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

// changedBatcher applies change to the result of Balances.
type changedBatcher struct {
	*memchain.Chain
	change func([]*big.Int) []*big.Int
}

func (b changedBatcher) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	found, err := b.Chain.Balances(ctx, addrs)
	return b.change(found), err
}

// batchOverride is a chain with another Balances.
type batchOverride struct {
	*memchain.Chain
	balances func(context.Context, []chaingql.Address) ([]*big.Int, error)
}

func (b batchOverride) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	return b.balances(ctx, addrs)
}

// blockedBatcher ignores the context while the source is stalled.
type blockedBatcher struct{ stallable }

func (s blockedBatcher) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	if err := s.wait(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return s.Chain.Balances(ctx, addrs)
}

func changeBatch(change func([]*big.Int) []*big.Int) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) { h.Backend = changedBatcher{c, change} }
}

var brokenBatches = []brokenBackend{
	{"balances without unknown accounts", changeBatch(func(found []*big.Int) []*big.Int {
		return slices.DeleteFunc(found, func(v *big.Int) bool { return v == nil })
	}), "Balances returned 7 balances for 9 addresses"},
	{"balances out of order", changeBatch(func(found []*big.Int) []*big.Int {
		slices.Reverse(found)
		return found
	}), "they must be in the order of the addresses"},
	{"zero for unknown accounts in a batch", changeBatch(func(found []*big.Int) []*big.Int {
		for i, v := range found {
			if v == nil {
				found[i] = new(big.Int)
			}
		}
		return found
	}), "which the chain never saw: it must be nil"},
	{"a batch of balances shared with the caller", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var kept []*big.Int
		h.Backend = changedBatcher{c, func(found []*big.Int) []*big.Int {
			if kept == nil {
				kept = found
			}
			return slices.Clone(kept)
		}}
	}, "they must be in the order of the addresses"},
	{"a batch that ignores its context", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batchOverride{c, func(_ context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			return c.Balances(context.Background(), addrs)
		}}
	}, "a call whose context is done fails: Balances with a context that is done returned no error"},
	{"a stalled batch that ignores its context", func(_ context.Context, c *memchain.Chain, h *Harness) {
		s := stallable{c, new(atomic.Pointer[chan struct{}])}
		h.Stall = s.stall
		h.Backend = blockedBatcher{s}
	}, "Balances to a stalled source"},
	{"balances of at most 50 accounts", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batchOverride{c, func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			if len(addrs) > 50 {
				return nil, errors.New("too many parameters")
			}
			return c.Balances(ctx, addrs)
		}}
	}, "Balances takes 100 addresses: Balances of 100 addresses returned too many parameters"},
	{"pages older than Follow", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var asked atomic.Int64
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if q.Last == 2 && asked.Add(1) > 3 && len(page) > 0 {
				page = page[:len(page)-1]
			}
			return page, err
		}}
	}, "leaves out cursor"},
}
