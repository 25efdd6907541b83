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

// Balance returns the balance of an account in nano-units, or [chaingql.ErrNotFound] if
// the bucket does not contain the account.
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	if err := b.balances.acquire(ctx); err != nil {
		return nil, failed("read balance", err)
	}
	defer b.balances.release()
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
			fmt.Errorf("the stored value %.80q of account %v is not a non-negative integer of at most %d digits",
				f.Message.Data, addr, maxDigits))
	}
	return nano, nil
}

// maxDigits is the maximum number of digits of a stored balance, far above any real one.
// It limits the time that parsing takes, which is long for a million digits.
const maxDigits = 1000

const (
	// concurrentBalances is the maximum number of requests that one Balances call has in flight or waiting.
	concurrentBalances = 64
	// maxBalances is the maximum number of requests for balances that a Backend has in flight. A server queues up to
	// 10,000 requests of all hosts. If more arrive, it drops the whole queue.
	maxBalances = 128
)

// Balances returns the balances of several accounts in nano-units. The balance of an
// account that the bucket does not contain is nil. Balances sends its requests
// concurrently.
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

// SetBalance sets the balance of an account, in nano-units. Unlike an account whose
// balance was never set, an account with the balance 0 exists.
func (w *Writer) SetBalance(ctx context.Context, addr chaingql.Address, nano *big.Int) error {
	return w.SetBalances(ctx, map[chaingql.Address]*big.Int{addr: nano})
}

// SetBalances sets the balances of several accounts, in nano-units. After an error, some
// of them may be set, and the next call sends those again that were not acknowledged. If
// several calls set the balance of an account, the last one wins, so only one process at
// a time should write an account.
//
// A new Writer does not send the balances of failed calls of another Writer again, also
// if the process was started again after it was killed during a call. Such balances may
// still arrive, even after newer ones. Therefore set the newest balances of the accounts
// of that call again at once, and once more after some minutes.
func (w *Writer) SetBalances(ctx context.Context, balances map[chaingql.Address]*big.Int) error {
	messages := make([]*nats.Msg, 0, len(balances))
	for addr, nano := range balances {
		if nano == nil || nano.Sign() < 0 {
			return fmt.Errorf("natschain: balance %v of account %v is not a non-negative integer", nano, addr)
		}
		// Because of its ID, the server stores a message only once, even if it is sent again.
		messages = append(messages, &nats.Msg{Subject: w.b.names.balanceSubject(&addr), Data: []byte(nano.String()),
			Header: nats.Header{jetstream.MsgIDHeader: {nuid.Next()}}})
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	if err := w.b.checkEpoch(ctx, w.epoch); err != nil {
		return err
	}
	if err := w.resendBalances(ctx); err != nil {
		return failed("set balances", err)
	}
	return failed("set balances", w.sendBalances(ctx, messages))
}

// unackedBalances contains the messages of SetBalances calls that failed before the server acknowledged them. Such a
// message may still be on its way. If it arrived after a newer balance of the account, it would replace that balance.
// Therefore it is sent again, with its ID, before newer balances, so that the server ignores the late copy.
type unackedBalances struct {
	sem      semaphore // held by the call that sends the messages again
	mu       sync.Mutex
	messages []*nats.Msg
}

func (w *Writer) resendBalances(ctx context.Context) error {
	if err := w.balances.sem.acquire(ctx); err != nil {
		return err
	}
	defer w.balances.sem.release()
	w.balances.mu.Lock()
	messages := w.balances.messages
	w.balances.messages = nil
	w.balances.mu.Unlock()
	err := w.sendBalances(ctx, messages)
	if err != nil && ctx.Err() == nil {
		return nil // the server rejects them
	}
	return err
}

// sendBalances sends messages until the server has acknowledged all of them. If ctx is done before that, it keeps the
// others in w.balances.
func (w *Writer) sendBalances(ctx context.Context, messages []*nats.Msg) error {
	for len(messages) > 0 {
		n, err := w.send(ctx, messages, func(int, *jetstream.PubAck) error { return nil })
		messages = messages[n:]
		switch {
		case err == nil:
		case ctx.Err() != nil:
			w.balances.mu.Lock()
			defer w.balances.mu.Unlock()
			w.balances.messages = append(w.balances.messages, messages...)
			return err
		case !w.b.retryable(err):
			return err
		default:
			pause(ctx, pauseBetween)
		}
	}
	return nil
}
