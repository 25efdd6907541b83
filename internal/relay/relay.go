// Package relay stands between a client and a server in tests, cuts their
// connections and falls silent, and finds addresses for servers. Only tests
// import it.
package relay

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

// Port finds a port of 127.0.0.1 that nobody listens on, for a program that
// cannot be given a listener. The system gives it to nobody who asks for any,
// neither before the program comes to it nor while that is started again.
func Port() (int, error) {
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

// Free is the address of such a port.
func Free(t testing.TB) string {
	t.Helper()
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// A Relay copies between the connections that it accepts and those that it makes
// to its target.
type Relay struct {
	listener net.Listener
	target   string
	copying  sync.WaitGroup

	mu    sync.Mutex
	flow  sync.Cond         // silent has changed
	conns map[net.Conn]bool // whether anything passes
	quiet bool
	shut  bool
}

// New listens on 127.0.0.1 until the test ends.
func New(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: l, target: target, conns: map[net.Conn]bool{}}
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

// Port is where it listens.
func (r *Relay) Port() int { return r.listener.Addr().(*net.TCPAddr).Port }

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.copying.Go(func() { r.serve(client) })
	}
}

func (r *Relay) serve(client net.Conn) {
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

// copy takes both ends down with it.
func (r *Relay) copy(to, from net.Conn) {
	_, _ = io.Copy(to, silencer{r, from})
	_, _ = from.Close(), to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, from)
}

// A silencer holds back what was read while the proxy is silent, and for good if the connection is forgotten.
type silencer struct {
	r    *Relay
	from net.Conn
}

func (s silencer) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for (s.r.quiet || !s.r.conns[s.from]) && !s.r.shut {
		s.r.flow.Wait()
	}
	return n, err
}

// Refuse closes all connections, and lets none be made.
func (r *Relay) Refuse() {
	_ = r.listener.Close()
	r.Cut()
}

// Cut closes all connections; new ones can be made.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// Stall makes nothing pass until resume is called.
func (r *Relay) Stall() (resume func()) {
	r.silent(true)
	return func() { r.silent(false) }
}

// Forget makes nothing pass on the connections that are open, as a firewall does that was restarted. New ones are not
// affected.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		r.conns[c] = false
	}
}

func (r *Relay) silent(quiet bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet = quiet
	r.flow.Broadcast()
}
