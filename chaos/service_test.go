package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
)

// A service is a host with a Handler, which can be replaced while it runs.
type service struct {
	backend  chaingql.Backend
	window   int
	logger   *slog.Logger
	server   *http.Server
	addr     string
	served   chan error
	handler  atomic.Pointer[chaingql.Handler]
	replaced int

	handed, recent, stored atomic.Int64 // blocks handed to connections as they came; caught up from the window, from the backend
}

// newService listens on 127.0.0.1. It must be closed.
func newService(b chaingql.Backend, window int, logger *slog.Logger) (*service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{backend: b, window: window, logger: logger, addr: listener.Addr().String(), served: make(chan error, 1)}
	s.handler.Store(s.open())
	mux := http.NewServeMux()
	mux.HandleFunc("/{project}/graphql", func(w http.ResponseWriter, r *http.Request) { s.handler.Load().ServeHTTP(w, r) })
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)}
	go func() { s.served <- s.server.Serve(brief{listener}) }()
	return s, nil
}

func (s *service) open() *chaingql.Handler {
	return chaingql.New(s.backend, &chaingql.Options{
		Window: s.window, KeepAlive: 5 * time.Second, Logger: s.logger,
		Limits: chaingql.Limits{BackendTimeout: time.Second},
		Hooks:  chaingql.Hooks{BlockDelivered: s.delivered},
	})
}

func (s *service) delivered(_ context.Context, d chaingql.Delivery) {
	switch d.From {
	case "live":
		s.handed.Add(1)
	case "window":
		s.recent.Add(1)
	case "backend":
		s.stored.Add(1)
	}
}

// replace does as a host that puts a new version in place: the old Handler is
// shut down, which tells all subscribers, and a new one takes over. Those that
// read too slowly to be told in time are left behind.
func (s *service) replace() error {
	s.replaced++
	err := s.shutdown(2 * time.Second)
	s.handler.Store(s.open())
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (s *service) shutdown(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := s.handler.Load().Shutdown(ctx); err != nil {
		return fmt.Errorf("Shutdown: %w", err)
	}
	return nil
}

// close ends everything and waits for it.
func (s *service) close() error {
	err := s.shutdown(patience)
	if closing := s.server.Close(); closing != nil {
		err = errors.Join(err, closing)
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// brief gives connections small buffers, so that it shows soon when a client
// reads slowly.
type brief struct{ net.Listener }

func (b brief) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err == nil {
		_ = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return conn, err
}
