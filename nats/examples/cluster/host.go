package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// A host is the program that runs on each serving machine: a Backend that reads from the
// brokers, a Handler and an HTTP server. A host can be stopped or killed, and can start
// again at the same address.
type host struct {
	brokers string
	addr    string
	logger  *slog.Logger

	backend *natschain.Backend
	handler *chaingql.Handler
	server  *http.Server
	conns   *connTracker
	served  chan error
}

// newHost returns a host with an unused address. Its server runs after start is called.
func newHost(brokers string, logger *slog.Logger) (*host, error) {
	ports, err := freePorts(1, stablePorts)
	if err != nil {
		return nil, err
	}
	addr := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports[0]}
	return &host{brokers: brokers, addr: addr.String(), logger: logger}, nil
}

func (h *host) start(ctx context.Context) (err error) {
	if h.backend, err = natschain.Open(ctx, h.brokers, nil); err != nil {
		return err
	}
	l, err := net.Listen("tcp", h.addr)
	if err != nil {
		h.backend.Close()
		return err
	}
	h.conns = &connTracker{Listener: l, open: map[net.Conn]bool{}}
	h.handler = chaingql.New(h.backend, &chaingql.Options{AllowedOrigins: []string{"*"}, Logger: h.logger})
	h.server = &http.Server{
		Handler:           mount(h.handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // for request bodies; WebSockets and event streams last longer
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}
	h.served = make(chan error, 1)
	go func() { h.served <- h.server.Serve(h.conns) }()
	return nil
}

// stop shuts the host down. Each subscriber receives the cursor from which to resume, and
// running queries may finish.
func (h *host) stop(within time.Duration) error {
	if h.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	drained := make(chan error, 1)
	h.server.RegisterOnShutdown(func() { drained <- h.handler.Shutdown(ctx) })
	err := h.server.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) { // kill has closed the listener
		err = nil
	}
	err = errors.Join(err, <-drained)
	h.backend.Close()
	// If kill has closed the listener, Serve returned net.ErrClosed.
	if served := <-h.served; !errors.Is(served, http.ErrServerClosed) && !errors.Is(served, net.ErrClosed) {
		err = errors.Join(err, served)
	}
	h.server = nil
	return err
}

// kill resets all connections, as if the host's process died, and then stops the host.
func (h *host) kill() error {
	h.conns.reset()
	return h.stop(drain)
}

// A connTracker is a listener that keeps track of its open connections. Unlike http.Server,
// it also tracks connections that have become WebSockets.
type connTracker struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
	dead bool // whether reset was called
}

func (l *connTracker) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close()
	}
	l.open[c] = true
	return trackedConn{c.(*net.TCPConn), l}, nil
}

// reset closes the listener and all connections without sending the remaining data.
func (l *connTracker) reset() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

type trackedConn struct {
	*net.TCPConn
	l *connTracker
}

func (c trackedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c.TCPConn)
	c.l.mu.Unlock()
	return c.TCPConn.Close()
}
