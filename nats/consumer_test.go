package natschain_test

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A slowDialer dials connections that together receive at most rate bytes per second.
type slowDialer struct {
	rate float64

	mu   sync.Mutex
	free time.Time // when the bytes received so far have passed the link
}

type slowConn struct {
	net.Conn
	*slowDialer
}

func (d *slowDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &slowConn{conn, d}, conn.(*net.TCPConn).SetReadBuffer(128 << 10)
}

func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 16<<10)])
	c.mu.Lock()
	if now := time.Now(); c.free.Before(now) {
		c.free = now
	}
	c.free = c.free.Add(time.Duration(float64(n) / c.rate * float64(time.Second)))
	free := c.free
	c.mu.Unlock()
	time.Sleep(time.Until(free))
	return n, err
}

// TestFollowContinuesBehindLargeStrayMessagesOverSlowConnection publishes more stray messages between two blocks than
// the server keeps for a slow connection. If Follow had requested all of them at once, the server would disconnect it.
func TestFollowContinuesBehindLargeStrayMessagesOverSlowConnection(t *testing.T) {
	t.Parallel()
	s, all := newBroker(t, func(o *server.Options) { o.MaxPending, o.MaxPayload = 4<<20, 2<<20 }), blocks(60)
	w, js := writer(t, open(t, s.ClientURL(), (&logbook{}).options())), raw(t, s.ClientURL())
	if err := w.Append(t.Context(), all[:40]...); err != nil {
		t.Fatal(err)
	}
	opts := (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(&slowDialer{rate: 20 << 20})}
	b := open(t, s.ClientURL(), opts)
	for i := range 150 {
		size := 100_000
		if i%50 == 7 {
			size = 1 << 20 // with its subject, more than Follow requests at a time
		}
		if _, err := js.Publish(t.Context(), subjectOf(&all[0]), bytes.Repeat([]byte("x"), size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(t.Context(), all[40:]...); err != nil {
		t.Fatal(err)
	}
	follow(t, b, all[9].Cursor).expect(all[10:])
}

// TestFollowContinuesAfterMessagesOfExactlyTheRequestedSize publishes stray messages that have exactly the size that
// Follow requests at a time. The server then ends the request without a response.
func TestFollowContinuesAfterMessagesOfExactlyTheRequestedSize(t *testing.T) {
	t.Parallel()
	const requested, strays, later = 1 << 20, 20, 5
	s, all := newBroker(t), blocks(40+later)
	b, js := open(t, s.ClientURL(), (&logbook{}).options()), raw(t, s.ClientURL())
	w := writer(t, b)
	if err := w.Append(t.Context(), all[:40]...); err != nil {
		t.Fatal(err)
	}
	left := requested
	for i := range strays {
		reply := fmt.Sprintf("$JS.ACK.chain_blocks.consumer.1.%d.%d.%d.%d", 41+i, 1+i, time.Now().UnixNano(),
			strays+later-1-i)
		size := left/(strays-i) - len(subjectOf(&all[0])) - len(reply)
		left -= left / (strays - i)
		if _, err := js.Publish(t.Context(), subjectOf(&all[0]), bytes.Repeat([]byte("x"), size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(t.Context(), all[40:]...); err != nil {
		t.Fatal(err)
	}
	follow(t, b, all[39].Cursor).expect(all[40:])
}
