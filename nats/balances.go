package natschain

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"
	"time"

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
	return b.balance(ctx, addr)
}

func (b *Backend) balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
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

// maxBalances is the maximum number of requests that a Backend has in flight for calls of Balance, and likewise for
// those of Balances, so that neither wait for the others. A server answers all requests from one queue, and loads a
// file of 8 MB, which takes milliseconds, for a balance that it does not have in memory. Append, Follow and pages wait
// for the requests before theirs, several times in a row.
const maxBalances = 4

// Balances returns the balances of several accounts in nano-units. The balance of an
// account that the bucket does not contain is nil. Balances sends its requests
// concurrently. The accounts of all calls take turns.
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg  sync.WaitGroup
		all = make([]*big.Int, len(addrs))
	)
	for i := range addrs {
		once, done := context.WithTimeout(ctx, b.opts.Timeout)
		if err := b.batched.acquire(once); err != nil {
			done()
			cancel(failed("read balances", err))
			break
		}
		wg.Go(func() {
			defer done()
			defer b.batched.release()
			nano, err := b.balance(once, addrs[i])
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
// of them may be set. If several calls set the balance of an account, the last one wins,
// so only one process at a time should write an account.
//
// The balances of a failed call may still arrive later. A new Writer does not know them, so
// they may replace newer balances that it has set, also if the process was started again
// after it was killed during a call. Therefore set the newest balances of the accounts of
// that call again at once, and once more after some minutes.
func (w *Writer) SetBalances(ctx context.Context, balances map[chaingql.Address]*big.Int) error {
	var messages, resolving []*nats.Msg
	for addr, nano := range balances {
		if nano == nil || nano.Sign() < 0 {
			return fmt.Errorf("natschain: balance %v of account %v is not a non-negative integer", nano, addr)
		}
		m := &nats.Msg{Subject: w.b.names.balanceSubject(&addr), Data: []byte(nano.String()), Header: nats.Header{}}
		if id := w.unacked.id(m.Subject); id != "" {
			m.Header.Set(jetstream.MsgIDHeader, id)
			resolving = append(resolving, m)
		} else {
			messages = append(messages, withNewID(m))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	if err := w.b.checkEpoch(ctx, w.epoch); err != nil {
		return err
	}
	err := w.sendBalances(ctx, resolving, func(m *nats.Msg, ack *jetstream.PubAck) {
		if ack.Duplicate { // the server has stored the earlier message, and not this one
			messages = append(messages, withNewID(m))
		}
	})
	if err == nil {
		err = w.sendBalances(ctx, messages, func(*nats.Msg, *jetstream.PubAck) {})
	}
	return failed("set balances", err)
}

// withNewID sets the ID of m. Because of it, the server stores m only once, even if m is sent again.
func withNewID(m *nats.Msg) *nats.Msg {
	m.Header.Set(jetstream.MsgIDHeader, nuid.Next())
	return m
}

// unackedIDs contains, by subject, the IDs of balances that were sent, but not acknowledged before SetBalances failed.
// Such a message may still be on its way. If it arrived after the account's next balance, it would replace that
// balance. Therefore the next message has the same ID, and the server stores only one of them. The server's response
// shows which one that was.
type unackedIDs struct {
	mu  sync.Mutex
	ids map[string]unackedID
}

type unackedID struct {
	id   string
	sent time.Time // when SetBalances failed
}

// unackedFor is the time after which a message that was not acknowledged counts as lost.
const unackedFor = 10 * time.Minute

func (x *unackedIDs) id(subject string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ids[subject].id
}

func (x *unackedIDs) add(messages []*nats.Msg) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ids == nil {
		x.ids = make(map[string]unackedID)
	}
	now := time.Now()
	maps.DeleteFunc(x.ids, func(_ string, u unackedID) bool { return now.Sub(u.sent) > unackedFor })
	for _, m := range messages {
		x.ids[m.Subject] = unackedID{m.Header.Get(jetstream.MsgIDHeader), now}
	}
}

func (x *unackedIDs) remove(m *nats.Msg) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ids[m.Subject].id == m.Header.Get(jetstream.MsgIDHeader) {
		delete(x.ids, m.Subject)
	}
}

// sendBalances sends messages until the server has acknowledged all of them, and calls acked for each. If it fails, it
// adds those to w.unacked that may be on their way.
func (w *Writer) sendBalances(
	ctx context.Context, messages []*nats.Msg, acked func(*nats.Msg, *jetstream.PubAck),
) error {
	for len(messages) > 0 {
		n, err := w.send(ctx, messages, func(i int, ack *jetstream.PubAck) error {
			w.unacked.remove(messages[i])
			acked(messages[i], ack)
			return nil
		})
		messages = messages[n:]
		if err != nil && (!w.b.retryable(err) || ctx.Err() != nil) {
			w.unacked.add(messages[:min(len(messages), maxPending)])
			return err
		}
		if err != nil {
			pause(ctx, pauseBetween)
		}
	}
	return nil
}
