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

// changedBatcher is a chain that applies change to each result of Balances.
type changedBatcher struct {
	*memchain.Chain
	change func([]*big.Int) []*big.Int
}

func (b changedBatcher) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	found, err := b.Chain.Balances(ctx, addrs)
	return b.change(found), err
}

// batchOverride is a chain. Its Balances method is replaced with a function.
type batchOverride struct {
	*memchain.Chain
	balances func(context.Context, []chaingql.Address) ([]*big.Int, error)
}

func (b batchOverride) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	return b.balances(ctx, addrs)
}

// blockedBatcher is a stallable. Its Balances ignores its context while the source is
// stalled.
type blockedBatcher struct{ stallable }

func (s blockedBatcher) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	if err := s.wait(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return s.Chain.Balances(ctx, addrs)
}

// changeBatch breaks Balances: it applies change to each result.
func changeBatch(change func([]*big.Int) []*big.Int) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) { h.Backend = changedBatcher{c, change} }
}

// brokenBatches have wrong Balances or Blocks.
var brokenBatches = []brokenBackend{
	{"Balances omits unknown accounts", changeBatch(func(found []*big.Int) []*big.Int {
		return slices.DeleteFunc(found, func(v *big.Int) bool { return v == nil })
	}), "Balances returned 7 values for 9 addresses"},
	{"Balances returns values in the wrong order", changeBatch(func(found []*big.Int) []*big.Int {
		slices.Reverse(found)
		return found
	}), "it must return new values, in the order of the addresses"},
	{"Balances returns zero for unknown accounts", changeBatch(func(found []*big.Int) []*big.Int {
		for i, v := range found {
			if v == nil {
				found[i] = new(big.Int)
			}
		}
		return found
	}), "it must return nil for an account that has never been on the chain"},
	{"Balances returns the same values to all callers", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var kept []*big.Int
		h.Backend = changedBatcher{c, func(found []*big.Int) []*big.Int {
			if kept == nil {
				kept = found
			}
			return slices.Clone(kept)
		}}
	}, "it must return new values, in the order of the addresses"},
	{"Balances returns the first balance of each account", func(_ context.Context, c *memchain.Chain, h *Harness) {
		first := make(map[chaingql.Address]*big.Int)
		h.Backend = batchOverride{c, func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			found, err := c.Balances(ctx, addrs)
			for i, a := range addrs[:len(found)] {
				if first[a] == nil {
					first[a] = found[i]
				}
				if first[a] != nil {
					found[i] = new(big.Int).Set(first[a])
				}
			}
			return found, err
		}}
	}, "want 8: it must return new values"},
	{"Balances ignores its context", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batchOverride{c, func(_ context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			return c.Balances(context.Background(), addrs)
		}}
	}, "a call whose context is already done fails: Balances with a done context returned no error"},
	{"Balances ignores its context during a stall", func(_ context.Context, c *memchain.Chain, h *Harness) {
		s := stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}])}
		h.Stall = s.stall
		h.Backend = blockedBatcher{s}
	}, "Balances, whose context expired while the source was stalled, did not return"},
	{"Balances accepts at most 50 addresses", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batchOverride{c, func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			if len(addrs) > 50 {
				return nil, errors.New("too many parameters")
			}
			return c.Balances(ctx, addrs)
		}}
	}, "Balances accepts 100 addresses: Balances of 100 addresses failed: too many parameters"},
	{"pages lack a block that Follow has yielded", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var asked atomic.Int64
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			if q.Last == 2 && asked.Add(1) > 3 && len(page) > 0 {
				page = page[:len(page)-1]
			}
			return page, err
		}}
	}, "omitted cursor"},
}
