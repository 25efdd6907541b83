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

// FreePort returns a port of 127.0.0.1 that nobody listens on, for a program that cannot inherit a listener. The system
// does not assign it to programs that ask for any port, so it stays free until the program listens, and while the program
// restarts.
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

// FreeAddress returns the address of a free port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// A Proxy copies between connections that it accepts and connections that it makes to its target. Tests cut and stall
// them.
type Proxy struct {
	listener net.Listener
	target   string
	copying  sync.WaitGroup

	mu    sync.Mutex
	flow  sync.Cond         // quiet or shut has changed
	conns map[net.Conn]bool // false if the connection's bytes are dropped
	quiet bool
	shut  bool
}

// NewProxy listens on 127.0.0.1 until the test ends.
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
		r.shut = true
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
	shut := r.shut
	r.mu.Unlock()
	if shut {
		r.Cut()
	}
	r.copying.Go(func() { r.copy(client, server) })
	r.copy(server, client)
}

// copy copies until either connection fails, and closes both.
func (r *Proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, stallingReader{r, from})
	_, _ = from.Close(), to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, from)
}

// A stallingReader delays the bytes that it read while the proxy is stalled, and forever if Forget was called.
type stallingReader struct {
	r    *Proxy
	from net.Conn
}

func (s stallingReader) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for (s.r.quiet || !s.r.conns[s.from]) && !s.r.shut {
		s.r.flow.Wait()
	}
	return n, err
}

// Refuse closes all connections and accepts no others.
func (r *Proxy) Refuse() {
	_ = r.listener.Close()
	r.Cut()
}

// Cut closes all connections. New ones are accepted.
func (r *Proxy) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// Stall holds all bytes back until resume is called.
func (r *Proxy) Stall() (resume func()) {
	r.silent(true)
	return func() { r.silent(false) }
}

// Forget drops all further bytes of the open connections, like a restarted firewall. New connections are not affected.
func (r *Proxy) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		r.conns[c] = false
	}
}

func (r *Proxy) silent(quiet bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet = quiet
	r.flow.Broadcast()
}
