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

// A service is a host program with a Handler, which can be replaced while the program runs.
type service struct {
	backend chaingql.Backend
	window  int
	logger  *slog.Logger
	server  *http.Server
	addr    string
	served  chan error
	running atomic.Pointer[running]

	// Numbers of delivered blocks by origin.
	live, fromWindow, fromBackend atomic.Int64

	expired    atomic.Int64 // number of subscriptions that ended because their session expired
	unrepaired atomic.Int64 // number of holes for which the service stopped searching

	newest atomic.Int64            // number of the newest block from Follow; -1 if there is none
	place  map[chaingql.Cursor]int // maps cursors to numbers of blocks
}

// running is the current Handler of a service.
type running struct {
	*chaingql.Handler
	number int // 0 for the first Handler of the service
}

// serviceHeader is the name of a response header that contains the number of the Handler.
const serviceHeader = "Chaos-Service"

// expiring is the name of a project with sessions that expire within a second.
const expiring = "expiring"

// Authorize implements [chaingql.Authorizer].
func (s *service) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if c.Project == expiring {
		lasts := 300*time.Millisecond + rand.N(600*time.Millisecond)
		limited, cancel := context.WithTimeout(ctx, lasts)
		context.AfterFunc(limited, cancel)
		ctx = limited
	}
	return ctx, nil
}

// tick is the Subscribe function of a subscription field that the host adds. It yields a number every
// 100 ms.
func tick(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for i := 0; pause(ctx, 100*time.Millisecond) && yield(i, nil); i++ {
		}
	}
}

// newService starts a service on 127.0.0.1. The caller must close it.
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
	go func() { s.served <- s.server.Serve(smallBuffers{listener}) }()
	return s, nil
}

// open creates a new Handler and makes it the current one.
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
					s.unrepaired.Add(1)
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

// raise sets the value of "to" to n if the value is smaller than n.
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
		s.live.Add(1)
	case chaingql.SourceWindow:
		s.fromWindow.Add(1)
	case chaingql.SourceBackend:
		s.fromBackend.Add(1)
	}
}

// replace does the same as a host that deploys a new version: it shuts down the old Handler, which sends
// its subscribers an error with a cursor, and opens a new Handler. Subscribers that read too slowly do
// not receive the error. It returns the number of the old Handler.
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
		return fmt.Errorf("Shutdown returned: %w", err)
	}
	return nil
}

// close stops the Handler and the HTTP server and waits until both have stopped.
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

// smallBuffers is a listener that sets small write buffers on its connections, so that writes to slow
// readers stall soon.
type smallBuffers struct{ net.Listener }

func (b smallBuffers) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err == nil {
		_ = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return conn, err
}
