package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// The test binary is the service where the environment says so, and a leaking
// one where it says leaking.
const (
	asService = "CHAINGQL_SOAK_SERVICE"
	sound     = "sound"
	leaking   = "leaking"
)

const (
	secret     = "s3cret"
	pace       = 50 * time.Millisecond // a round of blocks
	interrupts = 150                   // a source breaks off each time after so many blocks
	restarting = time.Second           // what Shutdown is given
)

// A state is what the service says of itself.
type state struct {
	Goroutines int
	Heap       int64  // bytes of objects
	Free       int64  // bytes of pages that Go's runtime keeps for later
	Newest     int    // the newest block
	Stacks     string // where they were asked for
	Trouble    string // why it could not do what it was asked to
}

// A service is a host of a Handler, which can be replaced while it serves.
type service struct {
	backend chaingql.Backend
	chain   *memchain.Chain
	newest  atomic.Int64
	handler atomic.Pointer[chaingql.Handler]
}

// serve is the program of the service: it listens on 127.0.0.1, says where, and
// answers each line of its input with a state until that ends.
func serve(kind string) error {
	s := &service{chain: memchain.New()}
	for account := range accounts / 2 {
		s.chain.SetBalance(address(account), balance(account))
	}
	for n := first; n < first+kept; n++ {
		if err := s.chain.Append(blockAt(n, time.Now())); err != nil {
			return err
		}
		s.newest.Store(int64(n))
	}
	s.backend = slow{backendtest.Chaos(s.chain, backendtest.ChaosOptions{
		PageSlow: 0.05, Duplicate: 0.01, Replay: 0.01, Longest: 50 * time.Millisecond,
	})}
	s.handler.Store(s.open())
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.Load().ServeHTTP(w, r) })
	if kind == leaking {
		h = leaky(h)
	}
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/{project}/graphql/{$}", h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ // as SECURITY.md has it
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
	failed := make(chan error, 3)
	go func() { failed <- server.Serve(listener) }()
	go func() { failed <- s.grow() }()
	go func() { failed <- s.obey() }()
	fmt.Println(listener.Addr())
	return <-failed
}

func (s *service) open() *chaingql.Handler {
	return chaingql.New(s.backend, &chaingql.Options{
		Authorizer: chaingql.StaticProjects{"open": {}, "locked": {Secret: secret, RequireSecret: true}},
		KeepAlive:  2 * time.Second,
		// Full after seconds: a cache that fills for an hour cannot be told from a leak.
		Limits: chaingql.Limits{CacheBytes: 1 << 20},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// grow appends a round of blocks at each beat, drops the oldest, and breaks the
// source off now and then.
func (s *service) grow() error {
	for now := range time.Tick(pace) {
		for range shards {
			n := int(s.newest.Load()) + 1
			if err := s.chain.Append(blockAt(n, now)); err != nil {
				return err
			}
			s.newest.Store(int64(n))
			if n%interrupts == 0 {
				s.chain.Interrupt(errors.New("soak: the source broke off"))
				s.chain.Prune(blockAt(n-kept, now).Cursor)
			}
		}
	}
	return nil
}

// obey does what the process is told that started this one.
func (s *service) obey() error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var now state
		switch lines.Text() {
		case "replace":
			if err := s.replace(); err != nil {
				now.Trouble = err.Error()
			}
		case "free":
			debug.FreeOSMemory()
			debug.FreeOSMemory() // what was in a pool goes with the second one
		case "stacks":
			var text strings.Builder
			if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
				return err
			}
			now.Stacks = text.String()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now.Heap, now.Free = int64(m.HeapAlloc), int64(m.HeapIdle-m.HeapReleased)
		now.Goroutines, now.Newest = runtime.NumGoroutine(), int(s.newest.Load())
		if err := json.NewEncoder(os.Stdout).Encode(now); err != nil {
			return err
		}
	}
	return nil
}

// replace does as a host that puts a new version in place.
func (s *service) replace() error {
	ctx, cancel := context.WithTimeout(context.Background(), restarting)
	defer cancel()
	err := s.handler.Load().Shutdown(ctx)
	s.handler.Store(s.open())
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // who reads nothing is not to be told
	}
	return err
}

// slow answers for balances after a while.
type slow struct{ *backendtest.ChaosBackend }

func (b slow) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return b.ChaosBackend.Balance(ctx, a)
	}
}

// leaky keeps something of each request, and a goroutine of some.
func leaky(h http.Handler) http.Handler {
	var mu sync.Mutex
	var left [][]byte
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if len(left) < 50_000 { // enough to be seen
			left = append(left, []byte(strings.Repeat("x", 8<<10)))
			if len(left)%10 == 0 {
				go func() { select {} }()
			}
		}
		mu.Unlock()
		h.ServeHTTP(w, r)
	})
}
