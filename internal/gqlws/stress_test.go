package gqlws

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Peers of both protocols send random messages over TCP while their streams have payloads at random times. Then the
// server shuts down. The fakeStreams check the order of calls.
func TestShutdownReleasesConnectionsOfRandomPeers(t *testing.T) {
	o := testOptions
	o.KeepAliveInterval = 20 * time.Millisecond
	o.MaxSockets = 100
	s := NewServer(o)
	peersCtx, stopPeers := context.WithCancel(t.Context())
	defer stopPeers()

	var wg sync.WaitGroup
	sessions := make(map[string]*fakeSession)
	for protocol, messageOf := range map[string]func(i int) string{
		"graphql-ws":           legacyMessage,
		"graphql-transport-ws": modernMessage,
	} {
		ss := newFakeSession(t)
		ss.shared = true
		sessions[protocol] = ss
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = s.Accept(w, r, ss)
		}))
		if protocol == "graphql-transport-ws" { // writes wait for the peer
			srv.Listener = countingListener{srv.Listener, new(atomic.Int64)}
		}
		srv.Start()
		defer srv.Close()
		wg.Go(func() { pushRandomly(peersCtx, ss) })
		for range 10 {
			wg.Go(func() {
				for peersCtx.Err() == nil {
					randomPeer(peersCtx, srv.Listener.Addr().String(), protocol, messageOf)
				}
			})
		}
	}

	ctx := testContext(t)
	for _, ss := range sessions {
		eventually(ctx, t, func() bool {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			return len(ss.streams) >= 1000
		})
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown returned %v, want nil", err)
	}
	for protocol, ss := range sessions {
		if n := ss.openStreams(); n != 0 {
			t.Errorf("%s: %d streams are open after Shutdown, want none", protocol, n)
		}
		if ss.sockets != 0 || ss.queries != 0 {
			t.Errorf("%s: %d Sessions are open and %d queries run, want none", protocol, ss.sockets, ss.queries)
		}
	}
	stopPeers()
	wg.Wait()
	if n := s.sockets.Members(); len(s.conns) != 0 || n != 0 {
		t.Errorf("%d connections and %d sockets are left, want none", len(s.conns), n)
	}
}

// pushRandomly adds payloads to the newest streams, makes some of them search, and ends some of them at random.
func pushRandomly(ctx context.Context, ss *fakeSession) {
	for ctx.Err() == nil {
		ss.mu.Lock()
		streams := ss.streams
		if len(streams) > 100 {
			streams = streams[len(streams)-100:]
		}
		ss.mu.Unlock()
		for _, st := range streams {
			switch rand.IntN(50) {
			case 0:
				st.end(io.EOF)
			case 1:
				st.startSearching(func() {})
			case 2, 3:
				st.stopSearching(`{"data":2}`)
			}
			if st.queued() < 100 { // payloads accumulate if a stream is closed or its peer is slow
				st.push(`{"data":1}`)
			}
		}
		runtime.Gosched()
	}
}

// queued returns the number of payloads that Next has not returned yet.
func (s *fakeStream) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// legacyMessage returns a random message. The legacy protocol allows each of these messages at any time.
func legacyMessage(int) string {
	id := rand.IntN(4)
	switch rand.IntN(9) {
	case 0:
		return `{"type":"connection_init"}`
	case 1, 2:
		return fmt.Sprintf(`{"id":%d,"type":"stop"}`, id)
	case 3:
		return fmt.Sprintf(`{"id":%d,"type":"start","payload":{"query":"{wait}"}}`, id)
	default:
		return fmt.Sprintf(`{"id":%d,"type":"start","payload":{"query":"subscription{a}"}}`, id)
	}
}

// modernMessage returns the ith message of a peer. Most messages follow the protocol, because any violation ends the
// connection. They are connection_init and then, for each id in turn, subscribe and complete.
func modernMessage(i int) string {
	id := i / 2 % 3
	switch n := rand.IntN(50); {
	case n == 0:
		return `{"type":"connection_init"}`
	case n == 1:
		return `{"type":"next"}`
	case i == 0:
		return `{"type":"connection_init"}`
	case n < 10:
		return `{"type":"ping","payload":{"a":1}}`
	case i%2 == 0:
		return fmt.Sprintf(`{"id":"%d","type":"complete"}`, id)
	case n < 20:
		return fmt.Sprintf(`{"id":"%d","type":"subscribe","payload":{"query":"{wait}"}}`, id)
	default:
		return fmt.Sprintf(`{"id":"%d","type":"subscribe","payload":{"query":"subscription{a}"}}`, id)
	}
}

// randomPeer connects, sends some messages, and disconnects in a random way.
func randomPeer(ctx context.Context, addr, protocol string, messageOf func(i int) string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer nc.Close()
	if upgradeRequest(protocol).Write(nc) != nil {
		return
	}
	if rand.IntN(4) > 0 { // the other peers do not read
		go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(nc)) }()
	}
	for i := range rand.IntN(60) {
		if ctx.Err() != nil {
			return
		}
		var b []byte
		switch message := []byte(messageOf(i)); rand.IntN(12) {
		case 0:
			b = append(frameOf(true, opPing, []byte("x")), frameOf(true, opText, message)...)
		case 1:
			b = append(frameOf(true, opPong, nil), frameOf(true, opText, message)...)
		case 2:
			b = append(frameOf(false, opText, message[:5]), frameOf(true, 0, message[5:])...)
		default:
			b = frameOf(true, opText, message)
		}
		if _, err := nc.Write(b); err != nil {
			return
		}
		if rand.IntN(10) == 0 {
			runtime.Gosched()
		}
	}
	last := [][]byte{
		nil,
		{0x81},
		{0xff, 0xff},
		frameOf(true, opText, make([]byte, 600)),
		frameOf(true, opText, []byte(`{"type":"connection_terminate"}`)),
		closeFrame(1000, ""),
	}
	_, _ = nc.Write(last[rand.IntN(len(last))])
}

// Each client sends frames in parts at random times while it receives data. No message may be lost when the reader is
// parked or started again.
func TestNoMessageIsLostWhenReaderParksOrRestarts(t *testing.T) {
	const n = 40
	o := withoutPings()
	o.MaxSockets = n
	s, ss := NewServer(o), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	sending, stop := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	for i := range n {
		c := dialLoopback(t, url)
		st := ss.waitStream(ctx, i+1)
		pongs, data := make(chan string, 1), make(chan string, 1)
		wg.Go(func() {
			for {
				op, payload, err := readServerFrame(c.br)
				if err != nil {
					return
				}
				if op == opPong {
					pongs <- string(payload)
				} else {
					data <- string(payload)
				}
			}
		})
		var both sync.WaitGroup
		both.Go(func() {
			for k := 0; sending.Err() == nil; k++ {
				want := fmt.Sprint(k)
				writeInParts(c, frameOf(true, opPing, []byte(want)))
				if got := receive(ctx, pongs); got != want {
					t.Errorf("client %d: received %q, want the pong %s", i, got, want)
					return
				}
			}
		})
		both.Go(func() {
			for k := 0; sending.Err() == nil; k++ {
				size := 10
				if rand.IntN(300) == 0 {
					size = 1_000_000 // more than the kernel accepts at once
				}
				payload := numberedPayload(k, size)
				st.push(payload)
				if got, want := receive(ctx, data), `{"type":"data","id":"a","payload":`+payload+`}`; got != want {
					t.Errorf("client %d: received %.60q, want %.60q", i, got, want)
					return
				}
			}
		})
		wg.Go(func() { both.Wait(); c.nc.Close() })
	}
	wg.Wait()
	shutdown(t, s)
}

// writeInParts writes a frame, sometimes in two parts.
func writeInParts(c *client, frame []byte) {
	if at := rand.IntN(3 * len(frame)); at < len(frame) {
		_, _ = c.nc.Write(frame[:at])
		frame = frame[at:]
		if rand.IntN(3) == 0 {
			for range 100 {
				runtime.Gosched()
			}
		}
	}
	_, _ = c.nc.Write(frame) // if this fails, receive returns no response
}

func receive(ctx context.Context, from <-chan string) string {
	select {
	case got := <-from:
		return got
	case <-ctx.Done():
		return "nothing"
	}
}
