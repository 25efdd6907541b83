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

// Values of the environment variable serviceKindEnv, with which the test binary runs as the service. A
// leaking service keeps memory and goroutines of requests.
const (
	serviceKindEnv = "CHAINGQL_SOAK_SERVICE"
	sound          = "sound"
	leaking        = "leaking"
)

const (
	secret          = "s3cret"
	pace            = 50 * time.Millisecond // time between two rounds of blocks
	interruptEvery  = 150                   // number of blocks between two failures of the source
	shutdownTimeout = time.Second           // timeout of Shutdown
)

// A state is the service's reply to a command.
type state struct {
	Goroutines int
	Heap       int64  // bytes of heap objects
	Free       int64  // bytes of free pages that the Go runtime has not returned
	Newest     int    // number of the newest block
	Stacks     string // reply to "stacks"
	Trouble    string // error of the command
}

// A service is a host with a Handler that can be replaced while it runs.
type service struct {
	backend chaingql.Backend
	chain   *memchain.Chain
	newest  atomic.Int64
	handler atomic.Pointer[chaingql.Handler]
}

// serve runs the service on 127.0.0.1. It prints its address and replies to each line of standard
// input with a state.
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
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handler.Load().ServeHTTP(w, r)
	})
	if kind == leaking {
		h = leaky(h)
	}
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ // as SECURITY.md recommends
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
	go func() { failed <- s.execute() }()
	fmt.Println(listener.Addr())
	return <-failed
}

func (s *service) open() *chaingql.Handler {
	return chaingql.New(s.backend, &chaingql.Options{
		Authorizer:        chaingql.StaticProjects{"open": {}, "locked": {Secret: secret, RequireSecret: true}},
		KeepAliveInterval: 2 * time.Second,
		// Full after a few seconds: a cache that grows for an hour would look like a leak.
		Limits: chaingql.Limits{CacheBytes: 1 << 20},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// grow appends a block per shard at each tick. After every interruptEvery blocks, it interrupts the source and prunes
// the oldest blocks.
func (s *service) grow() error {
	for now := range time.Tick(pace) {
		for range shards {
			n := int(s.newest.Load()) + 1
			if err := s.chain.Append(blockAt(n, now)); err != nil {
				return err
			}
			s.newest.Store(int64(n))
			if n%interruptEvery == 0 {
				s.chain.Interrupt(errors.New("soak: the source was interrupted"))
				s.chain.Prune(blockAt(n-kept, now).Cursor)
			}
		}
	}
	return nil
}

// execute runs the commands on standard input.
func (s *service) execute() error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var now state
		switch lines.Text() {
		case "replace":
			if err := s.replace(); err != nil {
				now.Trouble = err.Error()
			}
		case "free":
			debug.FreeOSMemory()
			debug.FreeOSMemory() // the second collection empties sync.Pools
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

// replace behaves like a host that deploys a new version.
func (s *service) replace() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := s.handler.Load().Shutdown(ctx)
	s.handler.Store(s.open())
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // clients that read nothing cannot be informed
	}
	return err
}

// slow delays balances by 1 ms.
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

// leaky keeps 8 KiB of each request and a goroutine for every tenth.
func leaky(h http.Handler) http.Handler {
	var mu sync.Mutex
	var left [][]byte
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if len(left) < 50_000 { // enough to be detected
			left = append(left, []byte(strings.Repeat("x", 8<<10)))
			if len(left)%10 == 0 {
				go func() { select {} }()
			}
		}
		mu.Unlock()
		h.ServeHTTP(w, r)
	})
}
