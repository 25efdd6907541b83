package natschain_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands between a Backend and a NATS server, and can cut its connections
// or fall silent.
type proxy struct {
	listener net.Listener
	target   string
	copying  sync.WaitGroup

	mu    sync.Mutex
	flow  sync.Cond // silent has changed
	conns map[net.Conn]bool
	quiet bool
	shut  bool
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.flow.L = &p.mu
	p.copying.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.shut = true
		p.flow.Broadcast()
		p.mu.Unlock()
		p.cut()
		p.copying.Wait()
	})
	return p
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.copying.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	shut := p.shut
	p.mu.Unlock()
	if shut {
		p.cut()
	}
	p.copying.Go(func() { p.copy(client, server) })
	p.copy(server, client)
}

// copy takes both ends down with it.
func (p *proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, silencer{p, from})
	_, _ = from.Close(), to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, from)
}

// A silencer holds back what was read while the proxy is silent.
type silencer struct {
	p *proxy
	io.Reader
}

func (s silencer) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for s.p.quiet && !s.p.shut {
		s.p.flow.Wait()
	}
	return n, err
}

// cut closes all connections; new ones can be made.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// stall makes nothing pass until resume is called.
func (p *proxy) stall() (resume func()) {
	p.silent(true)
	return func() { p.silent(false) }
}

func (p *proxy) silent(quiet bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = quiet
	p.flow.Broadcast()
}
