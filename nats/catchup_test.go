package natschain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

// A meteredDialer dials connections that call exceeded when they have received more than the number of bytes in left.
type meteredDialer struct {
	left     atomic.Int64
	exceeded atomic.Pointer[context.CancelFunc]
}

type meteredConn struct {
	net.Conn
	*meteredDialer
}

func (d *meteredDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &meteredConn{conn, d}, err
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if cancel := c.exceeded.Load(); c.left.Add(int64(-n)) < 0 && cancel != nil {
		(*cancel)()
	}
	return n, err
}

// TestReadsContinueThroughStrayMessagesWhereInterrupted publishes more stray messages between two blocks than one call
// can read in its time. Each call must continue where the previous one was interrupted.
func TestReadsContinueThroughStrayMessagesWhereInterrupted(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 50)
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	if err := w.Append(ctx, all[:40]...); err != nil {
		t.Fatal(err)
	}
	d, opts := &meteredDialer{}, (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(d)}
	b := open(t, s.ClientURL(), opts)
	const strays, perCall = 1000, 9 << 20 // each stray has 15 KB
	text := payloadOf(&all[45])
	text = fmt.Appendf(text[:len(text)-1], `,"prev":"0999","more":"%s"}`, bytes.Repeat([]byte("x"), 15_000))
	js := raw(t, s.ClientURL())
	for range strays {
		if _, err := js.PublishAsync(subjectOf(&all[45]), text); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if err := w.Append(ctx, all[40:]...); err != nil {
		t.Fatal(err)
	}
	for calls := 1; ; calls++ {
		ctx, cancel := context.WithCancel(ctx)
		d.left.Store(perCall)
		d.exceeded.Store(&cancel)
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 50})
		cancel()
		switch {
		case err == nil && slices.Equal(page, all) && calls > 1:
			if n := b.StrayCount(); n != strays {
				t.Errorf("got StrayCount %d, want %d", n, strays)
			}
			return
		case !errors.Is(err, context.Canceled) || calls == 10:
			t.Fatalf("call %d: got page %v and error %v", calls, cursorsOf(page), err)
		}
	}
}
