package chain_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A badLine is a proxy that loses each connection after a random number of bytes, even inside a handshake or a block.
// It either cuts the connection or, if silent is set, stops forwarding bytes from the service.
type badLine struct {
	net.Listener
	target string
	least  int // minimum number of bytes before a loss
	most   int // upper bound of the number of bytes before a loss
	silent bool
	calls  atomic.Int64
	losses atomic.Int64

	running sync.WaitGroup
	mu      sync.Mutex
	open    map[net.Conn]bool
}

func newBadLine(t *testing.T, target string, least, most int, silent bool) *badLine {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &badLine{Listener: listener, target: target, least: least, most: most, silent: silent,
		open: map[net.Conn]bool{}}
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *badLine) accept() {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		l.calls.Add(1)
		l.running.Go(func() { l.carry(client) })
	}
}

func (l *badLine) carry(client net.Conn) {
	service, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !l.keep(client, service) {
		return
	}
	l.running.Go(func() {
		defer l.drop(client, service)
		_, _ = io.Copy(service, client)
	})
	_, err = io.CopyN(client, service, int64(l.least+rand.IntN(l.most-l.least)))
	if err == nil {
		l.losses.Add(1)
	}
	if err != nil || !l.silent {
		l.drop(client, service)
	}
}

// keep registers connections, so that close can close them. It returns false if close was already called.
func (l *badLine) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	closed := l.open == nil
	for _, c := range conns {
		if !closed {
			l.open[c] = true
		}
	}
	l.mu.Unlock()
	if closed {
		l.drop(conns...)
	}
	return !closed
}

func (l *badLine) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.open, c)
		_ = c.Close()
	}
}

// cut closes all connections.
func (l *badLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
	}
}

func (l *badLine) close() {
	_ = l.Listener.Close()
	l.mu.Lock()
	for c := range l.open {
		_ = c.Close()
	}
	l.open = nil
	l.mu.Unlock()
	l.running.Wait()
}
