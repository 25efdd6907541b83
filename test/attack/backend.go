package attack

import (
	"context"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A stalling backend blocks balance calls for accounts in stalledWorkchain. A blocked call ignores its
// context and lasts stallTime.
type stalling struct {
	*memchain.Chain
	blocked    atomic.Int64 // number of calls that block now
	maxBlocked atomic.Int64 // maximum of blocked since the last reset
}

const (
	stalledWorkchain = 1000
	stallTime        = 10 * time.Second
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
	if addr.Workchain != stalledWorkchain {
		return
	}
	n := b.blocked.Add(1)
	defer b.blocked.Add(-1)
	for old := b.maxBlocked.Load(); n > old && !b.maxBlocked.CompareAndSwap(old, n); old = b.maxBlocked.Load() {
	}
	time.Sleep(stallTime)
}
