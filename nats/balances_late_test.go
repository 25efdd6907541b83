package natschain_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// A delayingDialer dials connections that keep the next balances instead of sending them while delaying is set.
type delayingDialer struct {
	delaying atomic.Bool
	late     chan []byte
}

type delayingConn struct {
	net.Conn
	*delayingDialer
}

func (d *delayingDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &delayingConn{conn, d}, err
}

func (c *delayingConn) Write(p []byte) (int, error) {
	if c.delaying.Load() && bytes.Contains(p, []byte("PUB $KV.")) {
		c.late <- bytes.Clone(p)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestLateBalanceReplacesNoNewerOne sets a balance while the network delays the message. The call fails and is
// repeated, and then the balance changes. When the delayed message finally arrives, the account must keep its newer
// balance.
func TestLateBalanceReplacesNoNewerOne(t *testing.T) {
	t.Parallel()
	s, ctx := newBroker(t), context.Background()
	d, opts := &delayingDialer{late: make(chan []byte, 100)}, (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(d)}
	b := open(t, s.ClientURL(), opts)
	w, account, other := writer(t, b), chaingql.Address{ID: [32]byte{7}}, chaingql.Address{ID: [32]byte{8}}
	set := func(ctx context.Context, account chaingql.Address, nano int64) error {
		return w.SetBalance(ctx, account, big.NewInt(nano))
	}
	for name, then := range map[string]func(late []byte) error{
		"repeated":        func([]byte) error { return set(ctx, account, 100) },
		"another account": func([]byte) error { return set(ctx, other, 1) },
		"newer balance":   func([]byte) error { return nil },
		"arrived before the newer balance": func(late []byte) error {
			deliverLate(t, s, late)
			return nil
		},
	} {
		if err := set(ctx, account, 1); err != nil {
			t.Fatal(err)
		}
		d.delaying.Store(true)
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		if err := set(short, account, 100); err == nil {
			t.Fatalf("%s: a balance that did not arrive was set without an error", name)
		}
		cancel()
		d.delaying.Store(false)
		late := <-d.late
		if err := then(late); err != nil {
			t.Fatal(err)
		}
		if err := set(ctx, account, 200); err != nil {
			t.Fatal(err)
		}
		deliverLate(t, s, late)
		if nano, err := b.Balance(ctx, account); err != nil || nano.Int64() != 200 {
			t.Errorf("%s: after the late message: got balance %v and error %v, want 200", name, nano, err)
		}
	}
}

// TestFailedBalanceReplacesNoneOfAnotherWriter lets one indexer fail to set a balance, and another one set newer
// balances of the account. The first indexer then sets another account, which must not change this one.
func TestFailedBalanceReplacesNoneOfAnotherWriter(t *testing.T) {
	t.Parallel()
	s, ctx := newBroker(t), context.Background()
	d, opts := &delayingDialer{late: make(chan []byte, 100)}, (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(d)}
	first, host := writer(t, open(t, s.ClientURL(), opts)), open(t, s.ClientURL(), (&logbook{}).options())
	second, account, other := writer(t, host), chaingql.Address{ID: [32]byte{7}}, chaingql.Address{ID: [32]byte{8}}
	if err := first.SetBalance(ctx, account, big.NewInt(1)); err != nil {
		t.Fatal(err)
	}
	d.delaying.Store(true)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := first.SetBalance(short, account, big.NewInt(100)); err == nil {
		t.Fatal("a balance that did not arrive was set without an error")
	}
	d.delaying.Store(false)
	for _, nano := range []int64{100, 200} {
		if err := second.SetBalance(ctx, account, big.NewInt(nano)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.SetBalance(ctx, other, big.NewInt(1)); err != nil {
		t.Fatal(err)
	}
	if nano, err := host.Balance(ctx, account); err != nil || nano.Int64() != 200 {
		t.Errorf("got balance %v and error %v, want 200, which the second indexer set last", nano, err)
	}
}

func TestBalancesThatFailedLongAgoNeedNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n := natschain.KeepUnacked(1000, time.Minute); n > 11 {
			t.Errorf("after a failed balance per minute: got %d IDs, want those of the last 10 minutes", n)
		}
	})
}

// deliverLate sends data, messages in the protocol of NATS, to the server.
func deliverLate(t *testing.T, s *broker, data []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err = fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"no_responders\":true}\r\n%sPING\r\n", data); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(conn); in.Scan(); {
		if strings.HasPrefix(in.Text(), "PONG") {
			return
		}
	}
	t.Fatal("the server closed the connection")
}
