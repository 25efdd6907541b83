package testkit

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
)

// FreePort returns a port of 127.0.0.1 on which no program listens, for a program that cannot inherit a listener. The
// system does not assign the port to programs that ask for any free port. So the port stays free until the program
// listens, and while the program restarts.
func FreePort() (int, error) {
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			return l.Addr().(*net.TCPAddr).Port, l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, err
		}
	}
}

// FreeAddress returns the address of 127.0.0.1 with a port that [FreePort] returned. If there is none, the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// A Proxy is a TCP proxy for tests. For each connection that it accepts, it connects to its target and copies bytes in
// both directions. Its methods cut and stall these connections.
type Proxy struct {
	listener net.Listener
	target   string
	copying  sync.WaitGroup

	mu      sync.Mutex
	flow    sync.Cond         // signaled when stalled or closed changes
	conns   map[net.Conn]bool // false if the connection's bytes are dropped
	stalled bool
	closed  bool
}

// NewProxy returns a Proxy to the address target. It listens on 127.0.0.1 until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	r.flow.L = &r.mu
	r.copying.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		r.closed = true
		r.flow.Broadcast()
		r.mu.Unlock()
		r.Cut()
		r.copying.Wait()
	})
	return r
}

// Port returns the port that the proxy listens on.
func (r *Proxy) Port() int { return r.listener.Addr().(*net.TCPAddr).Port }

func (r *Proxy) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.copying.Go(func() { r.serve(client) })
	}
}

func (r *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	r.conns[client], r.conns[server] = true, true
	closed := r.closed
	r.mu.Unlock()
	if closed {
		r.Cut()
	}
	r.copying.Go(func() { r.copy(client, server) })
	r.copy(server, client)
}

// copy copies from one connection to the other until either connection fails, and then closes both.
func (r *Proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, stallingReader{r, from})
	_, _ = from.Close(), to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, from)
}

// A stallingReader reads from a connection. It holds back the bytes while the proxy is stalled, or forever if Forget
// was called.
type stallingReader struct {
	r    *Proxy
	from net.Conn
}

func (s stallingReader) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for (s.r.stalled || !s.r.conns[s.from]) && !s.r.closed {
		s.r.flow.Wait()
	}
	return n, err
}

// Refuse closes all connections and the listener, so that new connections are refused.
func (r *Proxy) Refuse() {
	_ = r.listener.Close()
	r.Cut()
}

// Cut closes all open connections. The Proxy continues to accept new ones.
func (r *Proxy) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// Stall holds back all bytes of all connections until resume is called.
func (r *Proxy) Stall() (resume func()) {
	r.setStalled(true)
	return func() { r.setStalled(false) }
}

// Forget drops all further bytes of the connections that are open now, like a restarted firewall. It does not affect
// new connections.
func (r *Proxy) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		r.conns[c] = false
	}
}

func (r *Proxy) setStalled(stalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = stalled
	r.flow.Broadcast()
}
