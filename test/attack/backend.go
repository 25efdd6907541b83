package attack

import (
	"context"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A stalling backend blocks in balance calls for one workchain and ignores their context.
type stalling struct {
	*memchain.Chain
	under, most atomic.Int64 // blocked calls: current and maximum
}

const (
	stalledChain = 1000
	stallTime    = 10 * time.Second
)

func (b *stalling) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	b.stall(addr)
	return b.Chain.Balance(ctx, addr)
}

func (b *stalling) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	b.stall(addrs[0])
	return b.Chain.Balances(ctx, addrs)
}

func (b *stalling) stall(addr chaingql.Address) {
	if addr.Workchain != stalledChain {
		return
	}
	under := b.under.Add(1)
	defer b.under.Add(-1)
	for most := b.most.Load(); under > most && !b.most.CompareAndSwap(most, under); most = b.most.Load() {
	}
	time.Sleep(stallTime)
}
