package natschain_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A stalledLeader receives requests for balances. It responds to those for the account quick at once, and to all others
// after open was called.
type stalledLeader struct {
	*natschain.Backend // sends its requests to the stalledLeader

	arrived atomic.Int64  // number of requests
	news    chan struct{} // receives a value after each of them, unless it is full
	open    func()
}

var quick = chaingql.Address{ID: [32]byte{0x11}}

func newStalledLeader(t *testing.T) *stalledLeader {
	s := newBroker(t, func(o *server.Options) { o.JetStream = false })
	connect := func() *nats.Conn {
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	l, opened, leader := &stalledLeader{news: make(chan struct{}, 1)}, make(chan struct{}), connect()
	l.open = func() { close(opened) }
	if _, err := leader.Subscribe("$JS.API.STREAM.MSG.GET.KV_chain_balances", func(m *nats.Msg) {
		l.arrived.Add(1)
		select {
		case l.news <- struct{}{}:
		default:
		}
		go func() {
			if !strings.Contains(string(m.Data), "_11") {
				<-opened
			}
			_ = m.Respond([]byte(`{"message":{"data":"Nw=="}}`))
		}()
	}); err != nil {
		t.Fatal(err)
	}
	if err := leader.Flush(); err != nil {
		t.Fatal(err)
	}
	l.Backend = natschain.Bare(connect(), &natschain.Options{Timeout: time.Hour})
	return l
}

// callMany starts 8 calls for the balances of 50 accounts each.
func (l *stalledLeader) callMany(t *testing.T, calls *sync.WaitGroup) {
	for range 8 {
		calls.Go(func() {
			all, err := l.Balances(t.Context(), make([]chaingql.Address, 50))
			if err != nil || all[49].Int64() != 7 {
				t.Errorf("Balances: got %v and error %v, want 7 for each account", all, err)
			}
		})
	}
}

// await waits until n requests have arrived.
func (l *stalledLeader) await(t *testing.T, n int64) {
	t.Helper()
	late := time.After(5 * time.Second)
	for l.arrived.Load() < n {
		select {
		case <-l.news:
		case <-late:
			t.Errorf("got %d requests in flight, want %d", l.arrived.Load(), n)
			return
		}
	}
}

// expectAtMost checks that no more than n requests have arrived.
func (l *stalledLeader) expectAtMost(t *testing.T, n int64) {
	t.Helper()
	if got := l.arrived.Load(); got > n {
		t.Errorf("got %d requests, want at most %d", got, n)
	}
}

// TestRequestsForBalancesAreBounded starts many calls for balances while the server does not respond. Append, Follow
// and pages would wait for all requests in the queue of the leader, so there must be few. A waiting call must end with
// its context.
func TestRequestsForBalancesAreBounded(t *testing.T) {
	l := newStalledLeader(t)
	var calls sync.WaitGroup
	l.callMany(t, &calls)
	for range 100 {
		calls.Go(func() {
			if nano, err := l.Balance(t.Context(), chaingql.Address{}); err != nil || nano.Int64() != 7 {
				t.Errorf("Balance: got %v and error %v, want 7", nano, err)
			}
		})
	}
	l.await(t, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Balance(ctx, quick); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("Balance without a free place: got error %v, want ErrUnavailable", err)
	}
	if _, err := l.Balances(ctx, []chaingql.Address{quick}); err == nil {
		t.Error("Balances without a free place returned no error")
	}
	l.expectAtMost(t, 8)
	l.open()
	calls.Wait()
}

// TestManyBalancesDelayNoSingleOne reads a balance while strangers read many, whose responses are late.
func TestManyBalancesDelayNoSingleOne(t *testing.T) {
	l := newStalledLeader(t)
	var calls sync.WaitGroup
	l.callMany(t, &calls)
	l.await(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if nano, err := l.Balance(ctx, quick); err != nil || nano.Int64() != 7 {
		t.Errorf("Balance: got %v and error %v, want 7", nano, err)
	}
	l.expectAtMost(t, 5)
	l.open()
	calls.Wait()
}

// TestFewBalancesDoNotWaitForAllAccountsOfOthers starts as many calls for many balances as a Handler has in flight.
func TestFewBalancesDoNotWaitForAllAccountsOfOthers(t *testing.T) {
	l := newStalledLeader(t)
	var calls sync.WaitGroup
	const others = 8
	for range others {
		calls.Go(func() {
			if _, err := l.Balances(t.Context(), make([]chaingql.Address, 30)); err != nil {
				t.Errorf("Balances of 30 accounts: got error %v", err)
			}
		})
	}
	l.await(t, 4)
	calls.Go(func() {
		if _, err := l.Balances(t.Context(), make([]chaingql.Address, 4)); err != nil {
			t.Errorf("Balances of 4 accounts: got error %v", err)
		}
		l.expectAtMost(t, others*30/2)
	})
	if _, err := l.Balance(t.Context(), quick); err != nil { // meanwhile, the call above begins to wait
		t.Errorf("Balance: got error %v", err)
	}
	l.open()
	calls.Wait()
}
