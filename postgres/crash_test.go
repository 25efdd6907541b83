package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
)

const crashes = 3 // number of times that the server is killed

// The test kills PostgreSQL while an indexer writes, a loop resumes Follow whenever it fails, and a client
// subscribes through a Handler.
func TestServerCrashLosesNoBlocks(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	opts := &postgres.Options{Schema: "live"}
	backend := open(t, s.tcp(s.port, "postgres", "postgres"), opts)
	w := writer(t, open(t, s.dsn("postgres"), opts))
	all := backendtest.Chain(900, 7)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	url := serve(t, backend)
	var (
		running  sync.WaitGroup
		wrote    = make(chan int, len(all))
		followed []chaingql.Cursor
		failures int
		heard    []chaingql.Cursor
		wanted   = cursorsOf(all)
	)
	running.Go(func() { // the indexer, which repeats each Append until it succeeds
		defer close(wrote)
		for i := range all {
			for w.Append(ctx, all[i]) != nil && sleep(ctx, 5*time.Millisecond) {
			}
			wrote <- i
		}
	})
	running.Go(func() {
		last := chaingql.Cursor("")
		for len(followed) < len(all) && ctx.Err() == nil {
			for b, err := range backend.Follow(ctx, last) {
				if err != nil {
					failures++
					sleep(ctx, 5*time.Millisecond)
					break
				}
				followed, last = append(followed, b.Cursor), b.Cursor
				if len(followed) == len(all) {
					break
				}
			}
		}
	})
	running.Go(func() { heard = subscribe(ctx, url, "", len(all)) })

	for n := range wrote {
		if n%(len(all)/(crashes+1)) == 100 {
			if err := errors.Join(s.crash(), s.start()); err != nil {
				cancel()
				t.Error(err)
			}
		}
	}
	running.Wait()
	if !slices.Equal(followed, wanted) {
		t.Errorf("resumed Follow: %s", difference(followed, wanted))
	}
	if failures < crashes {
		t.Errorf("Follow failed %d times in %d crashes, want at least once per crash", failures, crashes)
	}
	if !slices.Equal(heard, wanted) {
		t.Errorf("subscriber: %s", difference(heard, wanted))
	}
	page, err := backend.Blocks(ctx, chaingql.BlocksQuery{First: chaingql.MaxPage})
	if err != nil || !slices.Equal(cursorsOf(page), wanted) {
		t.Errorf("stored blocks: %s; error %v", difference(cursorsOf(page), wanted), err)
	}
}

// sleep waits for d. It returns false if ctx is done earlier.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func cursorsOf(blocks []chaingql.Block) []chaingql.Cursor {
	cursors := make([]chaingql.Cursor, len(blocks))
	for i, b := range blocks {
		cursors[i] = b.Cursor
	}
	return cursors
}

// difference describes the first difference of two lists.
func difference(got, want []chaingql.Cursor) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("block %d of %d has cursor %q, want %q", i+1, len(want), got[i], want[i])
		}
	}
	return fmt.Sprintf("got %d blocks, want %d", len(got), len(want))
}
