package natschain_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestRequestsForBalancesAreBounded starts many calls for balances while the server does not respond. If hosts had too
// many requests in flight, a server would drop all of them. A waiting call must end with its context.
func TestRequestsForBalancesAreBounded(t *testing.T) {
	const bound = 128
	s := newBroker(t, func(o *server.Options) { o.JetStream = false })
	connect := func() *nats.Conn {
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	var arrived atomic.Int64
	open, full := make(chan struct{}), make(chan struct{})
	leader := connect()
	if _, err := leader.Subscribe("$JS.API.STREAM.MSG.GET.KV_chain_balances", func(m *nats.Msg) {
		if arrived.Add(1) == bound {
			close(full)
		}
		go func() {
			<-open
			_ = m.Respond([]byte(`{"message":{"data":"Nw=="}}`))
		}()
	}); err != nil {
		t.Fatal(err)
	}
	if err := leader.Flush(); err != nil {
		t.Fatal(err)
	}
	b := natschain.Bare(connect(), &natschain.Options{Timeout: time.Hour})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			all, err := b.Balances(t.Context(), make([]chaingql.Address, 50))
			if err != nil || all[49].Int64() != 7 {
				t.Errorf("Balances: got %v and error %v, want 7 for each account", all, err)
			}
		})
	}
	<-full
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Balance(ctx, chaingql.Address{}); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("Balance without a free slot: got error %v, want ErrUnavailable", err)
	}
	if n := arrived.Load(); n != bound {
		t.Errorf("got %d requests in flight, want %d", n, bound)
	}
	close(open)
	calls.Wait()
}
