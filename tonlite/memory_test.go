package tonlite_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// A memoryNetwork connects Backends to servers in memory. The clock of a synctest bubble would not advance while a
// goroutine is blocked on a real connection.
type memoryNetwork struct {
	t *testing.T

	mu        sync.Mutex
	listeners map[string]*memoryListener // by address
}

// inBubble runs test in a synctest bubble, in which delays take no real time.
func inBubble(t *testing.T, test func(t *testing.T, m *memoryNetwork)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &memoryNetwork{t: t, listeners: make(map[string]*memoryListener)})
	})
}

// start starts a server that is a millisecond away.
func (m *memoryNetwork) start(chain *liteservertest.Chain) *liteservertest.Server {
	m.t.Helper()
	s, err := liteservertest.StartOn(chain, m.listen)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.Stop)
	s.Delay(time.Millisecond)
	return s
}

// startTwo starts two servers with 20 masterchain blocks of the chain. The Backend prefers the first one.
func (m *memoryNetwork) startTwo(chain *liteservertest.Chain) (one, two *liteservertest.Server, b *tonlite.Backend) {
	m.t.Helper()
	one, two = m.start(chain), m.start(chain)
	one.Advance(20)
	two.Advance(20)
	b = m.open(one.Config(two), nil)
	b.Prefer(0)
	return one, two, b
}

func (m *memoryNetwork) open(config []byte, opts *tonlite.Options) *tonlite.Backend {
	m.t.Helper()
	return open(m.t, config, opts.With(m.dial))
}

func (m *memoryNetwork) listen(_, addr string) (net.Listener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[addr] != nil {
		return nil, syscall.EADDRINUSE
	}
	m.listeners[addr] = &memoryListener{m: m, addr: tcp, conns: make(chan net.Conn), closed: make(chan struct{})}
	return m.listeners[addr], nil
}

func (m *memoryNetwork) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[addr]
	m.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A memoryListener accepts the connections of a memoryNetwork to one address.
type memoryListener struct {
	m      *memoryNetwork
	addr   *net.TCPAddr
	conns  chan net.Conn
	closed chan struct{}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.listeners, l.addr.String())
	close(l.closed)
	return nil
}

func (l *memoryListener) Addr() net.Addr { return l.addr }
