package tonlite_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// recordings is the directory of recorded blocks and accounts in JSON. Tests of the core module
// use it, too.
const recordings = "../testdata/recordings"

var packs = sync.OnceValues(func() (*liteservertest.Chain, error) {
	return liteservertest.Recorded("testdata/packs")
})

var states = sync.OnceValues(func() (*liteservertest.Chain, error) {
	return liteservertest.RecordedStates("testdata/blocks", "testdata/states")
})

var generated struct {
	mu     sync.Mutex
	chains map[int]*liteservertest.Chain // by number of masterchain blocks
}

// generate is like liteservertest.Generate, but generates each chain only once. A thousand masterchain blocks take
// seconds.
func generate(masters int) *liteservertest.Chain {
	generated.mu.Lock()
	defer generated.mu.Unlock()
	if generated.chains == nil {
		generated.chains = make(map[int]*liteservertest.Chain)
	}
	if generated.chains[masters] == nil {
		generated.chains[masters] = liteservertest.Generate(masters)
	}
	return generated.chains[masters]
}

// facts loads a recording of blocks or accounts.
func facts(t testing.TB, file string) memchain.Recording {
	t.Helper()
	f, err := os.Open(filepath.Join(recordings, file+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := memchain.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(t testing.TB, chain *liteservertest.Chain, err error) *liteservertest.Server {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s, err := liteservertest.Start(chain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func open(t testing.TB, config []byte, opts *tonlite.Options) *tonlite.Backend {
	t.Helper()
	b, err := tonlite.Open(context.Background(), config, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

var unproven = tonlite.Options{Unproven: true}

// readPage reads a page within the default of Limits.BackendTimeout, checks it, and returns the time that it took.
func readPage(t testing.TB, b *tonlite.Backend, chain *liteservertest.Chain, q chaingql.BlocksQuery) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	begin := time.Now()
	page, err := b.Blocks(ctx, q)
	took := time.Since(begin)
	if err != nil {
		t.Fatalf("page after %v: %v", q.After, err)
	}
	same(t, page, chaingql.PageOf(chain.Blocks(), q))
	return took
}

// forget makes a server delete all blocks below the masterchain block with this seq_no.
func forget(s *liteservertest.Server, below uint32) {
	s.Forget(below)
	s.ForgetShards(below)
}

// same fails the test unless got and want contain the same blocks.
func same(t testing.TB, got, want []chaingql.Block) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		g.Time, w.Time = g.Time.UTC(), w.Time.UTC()
		if g != w {
			t.Fatalf("block %d of %d: got %+v, want %+v", i, len(want), g, w)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d blocks, want %d", len(got), len(want))
	}
}
