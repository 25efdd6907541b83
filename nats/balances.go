package natschain

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Balance returns an account's balance, or [chaingql.ErrNotFound] if the bucket does
// not contain the account.
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	f, found, err := b.get(ctx, b.names.balances, getRequest{Last: b.names.balanceSubject(&addr)})
	switch {
	case err != nil:
		return nil, failed("read balance", err)
	case !found || strings.Contains(string(f.Message.Header), "KV-Operation:"): // the key was deleted
		return nil, chaingql.ErrNotFound
	}
	nano, ok := new(big.Int), len(f.Message.Data) <= maxDigits
	if ok {
		_, ok = nano.SetString(string(f.Message.Data), 10)
	}
	if !ok || nano.Sign() < 0 {
		return nil, failed("read balance",
			fmt.Errorf("the value %.80q of %v is not a number of nano-units", f.Message.Data, addr))
	}
	return nano, nil
}

// maxDigits is far above any balance. It bounds the time to parse a value: a number
// of a million digits takes long.
const maxDigits = 1000

// concurrentBalances is the maximum number of concurrent requests of one Balances call.
const concurrentBalances = 64

// Balances returns the balances of accounts, nil for accounts that the bucket does
// not contain. It sends the requests concurrently.
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg  sync.WaitGroup
		sem = make(chan struct{}, concurrentBalances)
		all = make([]*big.Int, len(addrs))
	)
	for i := range addrs {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			nano, err := b.Balance(ctx, addrs[i])
			if err != nil && err != chaingql.ErrNotFound {
				cancel(err)
			}
			all[i] = nano
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return all, nil
}

// SetBalance sets the balance of an account, in nano-units. An account with a balance of
// zero exists.
func (w *Writer) SetBalance(ctx context.Context, addr chaingql.Address, nano *big.Int) error {
	return w.SetBalances(ctx, map[chaingql.Address]*big.Int{addr: nano})
}

// SetBalances is SetBalance for many accounts. On error some may be set. The last call
// for an account wins, so only one process at a time should write an account.
func (w *Writer) SetBalances(ctx context.Context, balances map[chaingql.Address]*big.Int) error {
	left := make([]*nats.Msg, 0, len(balances))
	for addr, nano := range balances {
		if nano == nil || nano.Sign() < 0 {
			return fmt.Errorf("natschain: balance %v of %v is not a number of nano-units", nano, addr)
		}
		// With an id, the server stores a message once, even if it is sent again.
		left = append(left, &nats.Msg{Subject: w.b.names.balanceSubject(&addr), Data: []byte(nano.String()),
			Header: nats.Header{jetstream.MsgIDHeader: {nuid.Next()}}})
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	for len(left) > 0 {
		n, err := w.send(ctx, left, func(int, *jetstream.PubAck) error { return nil })
		left = left[n:]
		if err != nil && (!w.b.retryable(err) || ctx.Err() != nil) {
			return failed("set balances", err)
		}
		if err != nil {
			pause(ctx, pauseBetween)
		}
	}
	return nil
}
