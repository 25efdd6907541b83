package natschain

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/chaingql/chaingql"
)

// Balance returns an account's balance, or [chaingql.ErrNotFound] where the
// bucket does not have the account.
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	f, some, err := b.get(ctx, b.names.values, wanted{Last: b.names.value(&addr)})
	switch {
	case err != nil:
		return nil, failed("read balance", err)
	case !some || strings.Contains(string(f.Message.Header), "KV-Operation:"): // a mark that it was deleted
		return nil, chaingql.ErrNotFound
	}
	nano, ok := new(big.Int), len(f.Message.Data) <= maxDigits
	if ok {
		_, ok = nano.SetString(string(f.Message.Data), 10)
	}
	if !ok || nano.Sign() < 0 {
		return nil, failed("read balance",
			fmt.Errorf("the value of %v, %.80q, is no number of nano-units", addr, f.Message.Data))
	}
	return nano, nil
}

// maxDigits is far above any balance; to read a number of a million digits takes
// a while.
const maxDigits = 1000

// together is how many balances are asked for at once.
const together = 64

// Balances returns the balances of accounts, nil for those that the bucket does
// not have. All are asked for at once, and answered in the time of one.
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		asking sync.WaitGroup
		turns  = make(chan struct{}, together)
		all    = make([]*big.Int, len(addrs))
	)
	for i := range addrs {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			nano, err := b.Balance(ctx, addrs[i])
			if err != nil && err != chaingql.ErrNotFound {
				cancel(err)
			}
			all[i] = nano
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return all, nil
}
