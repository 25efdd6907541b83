package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
)

// A service is a host with a Handler that can be replaced while it runs.
type service struct {
	backend chaingql.Backend
	window  int
	logger  *slog.Logger
	server  *http.Server
	addr    string
	served  chan error
	running atomic.Pointer[running]

	// Delivered blocks by origin: live, window, backend.
	handed, recent, stored atomic.Int64

	expired atomic.Int64 // subscriptions ended by an expired session
	givenUp atomic.Int64 // holes that the service gave up

	newest atomic.Int64 // number of the newest block from Follow; -1 for none
	place  map[chaingql.Cursor]int
}

// running is the current Handler of a service.
type running struct {
	*chaingql.Handler
	number int // counted from 0
}

// serviceHeader is the response header with the number of the Handler.
const serviceHeader = "Chaos-Service"

// brief is the project whose sessions expire within a second.
const brief = "brief"

// Authorize implements [chaingql.Authorizer].
func (s *service) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if c.Project == brief {
		lasts := 300*time.Millisecond + rand.N(600*time.Millisecond)
		expiring, cancel := context.WithTimeout(ctx, lasts)
		context.AfterFunc(expiring, cancel)
		ctx = expiring
	}
	return ctx, nil
}

// tick is a subscription field of the host; it yields a number every 100 ms.
func tick(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for i := 0; pause(ctx, 100*time.Millisecond) && yield(i, nil); i++ {
		}
	}
}

// newService listens on 127.0.0.1. The caller must close it.
func newService(
	b chaingql.Backend, place map[chaingql.Cursor]int, window int, logger *slog.Logger,
) (*service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{
		backend: b, place: place, window: window, logger: logger,
		addr: listener.Addr().String(), served: make(chan error, 1),
	}
	s.open(0)
	mux := http.NewServeMux()
	mux.HandleFunc("/{project}/graphql", func(w http.ResponseWriter, r *http.Request) {
		h := s.running.Load()
		w.Header().Set(serviceHeader, strconv.Itoa(h.number))
		h.ServeHTTP(w, r)
	})
	s.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	go func() { s.served <- s.server.Serve(narrowing{listener}) }()
	return s, nil
}

func (s *service) open(number int) {
	s.newest.Store(-1)
	h := chaingql.New(s.backend, &chaingql.Options{
		WindowSize: s.window, KeepAliveInterval: 5 * time.Second, Logger: s.logger, Authorizer: s,
		Limits: chaingql.Limits{BackendTimeout: time.Second},
		Hooks: chaingql.Hooks{
			BlockReceived:  func(b chaingql.Block, _ time.Duration) { raise(&s.newest, s.place[b.Cursor]) },
			BlockDelivered: s.delivered, OperationFinished: s.finished,
			SourceFailed: func(err error, _ time.Duration) {
				if errors.Is(err, chaingql.ErrGap) {
					s.givenUp.Add(1)
				}
			},
		},
		Schema: chaingql.SchemaExtension{
			Subscriptions: map[string]chaingql.SubscriptionField{
				"tick": {Field: &graphql.Field{Type: graphql.Int}, Subscribe: tick},
			},
		},
	})
	s.running.Store(&running{h, number})
}

// raise sets a number to n if it is smaller.
func raise(to *atomic.Int64, n int) {
	for now := to.Load(); int64(n) > now && !to.CompareAndSwap(now, int64(n)); now = to.Load() {
	}
}

func (s *service) finished(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) {
	if o.Reason == chaingql.ReasonExpired {
		s.expired.Add(1)
	}
}

func (s *service) delivered(_ context.Context, d chaingql.Delivery) {
	switch d.Source {
	case chaingql.SourceLive:
		s.handed.Add(1)
	case chaingql.SourceWindow:
		s.recent.Add(1)
	case chaingql.SourceBackend:
		s.stored.Add(1)
	}
}

// replace behaves like a host that deploys a new version. It shuts the old Handler down, which
// informs its subscribers, and starts a new one. Subscribers that read too slowly miss the message.
// It returns the number of the old Handler.
func (s *service) replace() (old int, err error) {
	old = s.running.Load().number
	err = s.shutdown(time.Second)
	s.open(old + 1)
	if errors.Is(err, context.DeadlineExceeded) {
		return old, nil
	}
	return old, err
}

func (s *service) shutdown(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := s.running.Load().Shutdown(ctx); err != nil {
		return fmt.Errorf("Shutdown: %w", err)
	}
	return nil
}

// close stops everything and waits for it.
func (s *service) close() error {
	err := s.shutdown(progressTimeout)
	if closing := s.server.Close(); closing != nil {
		err = errors.Join(err, closing)
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// narrowing sets small write buffers on connections, so that slow readers stall writes soon.
type narrowing struct{ net.Listener }

func (b narrowing) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err == nil {
		_ = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return conn, err
}
