package chain_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	client "github.com/chaingql/chaingql/examples/clients/go"
	"github.com/chaingql/chaingql/memchain"
)

// A service is a test server with a Handler that can be replaced, as if the service restarted.
type service struct {
	t       *testing.T
	chain   *memchain.Chain
	handler atomic.Pointer[chaingql.Handler]
	address string
	rhythm  time.Duration // interval of the pings of the service
}

func serve(t *testing.T) *service { return serveAt(t, 20*time.Millisecond) } // frequent pings must be answered

func serveAt(t *testing.T, rhythm time.Duration) *service {
	t.Helper()
	s := &service{t: t, chain: memchain.New(), rhythm: rhythm}
	s.handler.Store(s.open())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{project}/graphql", func(w http.ResponseWriter, r *http.Request) {
		s.handler.Load().ServeHTTP(w, r)
	})
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		s.shutdown(s.handler.Load())
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	s.address = listener.Addr().String()
	return s
}

func (s *service) open() *chaingql.Handler { return s.openBackend(s.chain) }

func (s *service) openBackend(b chaingql.Backend) *chaingql.Handler {
	return chaingql.New(b, &chaingql.Options{
		Authorizer:        chaingql.StaticProjects{"shop": {Secret: "s3cret", RequireSecret: true}},
		KeepAliveInterval: s.rhythm,
		Logger:            slog.New(slog.DiscardHandler),
	})
}

func (s *service) shutdown(h *chaingql.Handler) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		s.t.Error(err)
	}
}

func (s *service) restart() { s.shutdown(s.handler.Swap(s.open())) }

var genesis = time.Unix(1573822385, 0)

// grow appends the given number of rounds. Each round consists of a shard block and a masterchain block.
func (s *service) grow(rounds int) {
	s.t.Helper()
	newest, err := s.chain.Blocks(s.t.Context(), chaingql.BlocksQuery{Last: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	n := uint32(1)
	if len(newest) > 0 {
		n += newest[0].SeqNo
	}
	for last := n + uint32(rounds); n < last; n++ {
		if err := s.chain.Append(
			chaingql.Block{Shard: 1 << 63, SeqNo: n, Time: genesis, Hash: [32]byte{0, byte(n >> 8), byte(n)},
				Cursor: chaingql.ChainOrder(0, 1<<63, n, n)},
			chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: n, Time: genesis,
				Hash: [32]byte{1, byte(n >> 8), byte(n)}, Cursor: chaingql.ChainOrder(-1, 1<<63, n, 0)},
		); err != nil {
			s.t.Error(err)
		}
	}
}

// cursors returns the cursors of all blocks in the chain for which of returns true.
func (s *service) cursors(of func(chaingql.Block) bool) (found []string) {
	s.t.Helper()
	for after := chaingql.Cursor(""); ; {
		page, err := s.chain.Blocks(s.t.Context(), chaingql.BlocksQuery{After: after, First: 1000})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, b := range page {
			if after = b.Cursor; of(b) {
				found = append(found, string(b.Cursor))
			}
		}
		if len(page) == 0 {
			return found
		}
	}
}

func (s *service) client() *client.Client { return client.New("http://"+s.address, "shop", "s3cret") }

func all(chaingql.Block) bool { return true }

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
