//go:build unix

package gqlws

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// blockNextCall makes the next call to st.Next wait until gate is closed.
func blockNextCall(st *fakeStream, gate chan struct{}) {
	st.mu.Lock()
	st.blockNext = gate
	st.mu.Unlock()
	st.push("1")
}

func TestWriterPoolLimitsWorkers(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	s.writers.maxWorkers = 2
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	free := ss.waitStream(ctx, 1)
	const busy = 5
	for n := range busy {
		dialLoopback(t, url)
		st := ss.waitStream(ctx, n+2)
		eventually(ctx, t, func() bool { return st.countNextCalls() == 1 })
	}
	gate := make(chan struct{})
	defer cutAll(t, s)
	defer close(gate)
	blockNextCall(ss.waitStream(ctx, 2), gate)
	free.push("1") // the other worker writes it
	c.expect(`{"type":"data","id":"a","payload":1}`)
	for n := range busy - 1 {
		blockNextCall(ss.waitStream(ctx, n+3), gate)
	}
	s.writers.mu.Lock()
	defer s.writers.mu.Unlock()
	if s.writers.workers != 2 {
		t.Errorf("%d workers run, want 2", s.writers.workers)
	}
}

func TestNextIsCalledAtMostOncePerPayload(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	st := ss.waitStream(ctx, 1)
	eventually(ctx, t, func() bool { return st.countNextCalls() == 1 }) // after Open
	for n := range 3 {
		st.push("1", "2")
		c.expect(`{"type":"data","id":"a","payload":1}`, `{"type":"data","id":"a","payload":2}`)
		if calls, want := st.countNextCalls(), 1+2*(n+1); calls > want {
			t.Errorf("Next was called %d times, want %d", calls, want)
		}
	}
	c.nc.Close()
	<-ss.closed
	shutdown(t, s)
}

// On one CPU, the first of many connections must not wait until all of them have been woken.
func TestWriterStartsBeforeAllConnectionsAreWoken(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	st := ss.waitStream(ctx, 1)
	eventually(ctx, t, func() bool { return st.countNextCalls() == 1 }) // after Open
	st.push("1")
	for range 4 * wakesPerYield { // the scheduler may continue this goroutine after the first yields
		st.wake.Wake()
	}
	if st.countNextCalls() == 1 {
		t.Error("no writer has started")
	}
	c.expect(`{"type":"data","id":"a","payload":1}`)
	c.nc.Close()
	<-ss.closed
	shutdown(t, s)
}

func TestWriterPoolDoesNotWaitForStalledPeers(t *testing.T) {
	for name, stall := range map[string]func(*client, *fakeStream){
		"does not read": func(_ *client, st *fakeStream) { st.push(numberedPayload(0, 10_000_000)) },
		"does not respond to a close frame": func(c *client, _ *fakeStream) {
			c.send(strings.Repeat(" ", 600))
			c.expect(legacyError("Message is larger than 512 bytes", "LIMIT_EXCEEDED"), "CLOSE 1009 message too big")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := withoutPings()
			o.WriteTimeout = time.Hour
			s, ss := NewServer(o), newCloseSession(t)
			s.writers.maxWorkers = 2
			url, _ := serveLoopback(t, s, ss)
			ctx := testContext(t)
			c := dialLoopback(t, url)
			st := ss.waitStream(ctx, 1)
			for i := range s.writers.maxWorkers {
				stalled := dialLoopback(t, url)
				its := ss.waitStream(ctx, i+2)
				shrinkSendBuffers(s)
				stall(stalled, its)
			}
			for i := range 3 { // quickly, because a close handshake lasts at most three seconds
				st.push(numberedPayload(i, 10))
				c.expect(`{"type":"data","id":"a","payload":` + numberedPayload(i, 10) + `}`)
			}
			if len(ss.closed) > 0 {
				t.Errorf("a stalled connection ended with %v before the other peer received data", <-ss.closed)
			}
			cutAll(t, s)
		})
	}
}

// The unsent rest of a partial write must not change while the worker writes for other connections.
func TestSlowPeersReceiveTheirOwnFrames(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	s.writers.maxWorkers = 1
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	const peers, n = 4, 200
	var clients []*client
	for i := range peers {
		clients = append(clients, dialLoopback(t, url))
		ss.waitStream(ctx, i+1)
	}
	shrinkSendBuffers(s)
	for k := range n {
		for i := range peers {
			ss.waitStream(ctx, i+1).push(numberedPayload(i*n+k, 5000))
		}
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for k := range n {
				_, got, err := readServerFrame(c.br)
				if want := `{"type":"data","id":"a","payload":` + numberedPayload(i*n+k, 5000) + `}`; err != nil ||
					string(got) != want {
					t.Errorf("peer %d, frame %d: received %.60s, %v, want %.60s", i, k, got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
	cutAll(t, s)
}

func TestWriteBatchWritesAllReadyPayloads(t *testing.T) {
	defer func(was time.Duration) { maxGatherTime = was }(maxGatherTime)
	maxGatherTime = time.Hour // a busy machine may take longer than the default
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	st := ss.waitStream(ctx, 1)
	cn := onlyConn(s)
	takeWriter(ctx, t, cn, st)
	st.push("1", "2", "3")
	p := newTryWriter()
	cn.writeBatch(p)
	var want []byte
	for i := range 3 {
		want = appendText(want, fmt.Appendf(nil, `{"type":"data","id":"a","payload":%d}`, i+1))
	}
	if string(p.bytes) != string(want) {
		t.Errorf("wrote %q, want %q", p.bytes, want)
	}
	c.nc.Close()
	shutdown(t, s)
}

func TestWriteErrorBecomesCloseReason(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	dialLoopback(t, url)
	st := ss.waitStream(testContext(t), 1)
	if err := onlyConn(s).net.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	st.push("1")
	if why := <-ss.closed; !errors.Is(why, ErrGone) || !strings.Contains(why.Error(), "write failed") {
		t.Errorf("Session.Closed received %v, want ErrGone and \"write failed\"", why)
	}
	shutdown(t, s)
}

func TestUnixSocketSupportsNonblockingWrites(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if rawOf(there) != nil {
		t.Error("rawOf(net.Pipe) is not nil")
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if rawOf(nc) == nil {
		t.Error("rawOf of a Unix socket is nil")
	}
}

// A deadlineConn records its write deadlines.
type deadlineConn struct {
	discardConn
	set []time.Time
}

func (d *deadlineConn) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// If the deadline of a blocking write remained, the next non-blocking write would fail.
func TestBlockingWriteRemovesItsDeadline(t *testing.T) {
	var d deadlineConn
	n := &netConn{Conn: &d, writeTimeout: time.Minute}
	if _, err := n.writeAll([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if len(d.set) != 2 || d.set[0].IsZero() || !d.set[1].IsZero() {
		t.Errorf("SetWriteDeadline received %v, want a deadline and then the zero time", d.set)
	}
}
