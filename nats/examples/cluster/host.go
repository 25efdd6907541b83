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

// A host is what runs on each machine that serves: a Backend on the brokers, a
// Handler and an HTTP server. It can be stopped or killed, and started again at
// the same address.
type host struct {
	brokers string
	addr    string
	logger  *slog.Logger

	backend *natschain.Backend
	handler *chaingql.Handler
	server  *http.Server
	lines   *lines
	served  chan error
}

// newHost takes an address; start makes it serve.
func newHost(brokers string, logger *slog.Logger) (*host, error) {
	ports, err := free(1, lasting)
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
	h.lines = &lines{Listener: l, open: map[net.Conn]bool{}}
	h.handler = chaingql.New(h.backend, &chaingql.Options{AllowedOrigins: []string{"*"}, Logger: h.logger})
	h.server = &http.Server{
		Handler:           mount(h.handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // of bodies; sockets and event streams outlive it
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}
	h.served = make(chan error, 1)
	go func() { h.served <- h.server.Serve(h.lines) }()
	return nil
}

// stop tells all subscribers where to go on, and lets queries finish.
func (h *host) stop(within time.Duration) error {
	if h.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	drained := make(chan error, 1)
	h.server.RegisterOnShutdown(func() { drained <- h.handler.Shutdown(ctx) })
	err := h.server.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) { // the listener of a host that was killed
		err = nil
	}
	err = errors.Join(err, <-drained)
	h.backend.Close()
	if served := <-h.served; !errors.Is(served, http.ErrServerClosed) && !errors.Is(served, net.ErrClosed) { // killed
		err = errors.Join(err, served)
	}
	h.server = nil
	return err
}

// kill cuts everything first, as a process that dies does, and clears up then.
func (h *host) kill() error {
	h.lines.cut()
	return h.stop(drain)
}

// lines are a host's connections, WebSockets too, of which http.Server knows
// nothing.
type lines struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
	dead bool
}

func (l *lines) Accept() (net.Conn, error) {
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
	return line{c.(*net.TCPConn), l}, nil
}

// cut loses what was written and not yet read, too.
func (l *lines) cut() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

type line struct {
	*net.TCPConn
	l *lines
}

func (c line) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c.TCPConn)
	c.l.mu.Unlock()
	return c.TCPConn.Close()
}
