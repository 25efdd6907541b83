package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// searching keeps as many searches going as a Handler has calls under way, for a
// shard that there never was and from many places of the history, until the test ends.
func searching(t *testing.T, b chaingql.Backend, masters uint32) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	workchain, never := int32(0), uint64(0x5<<60|0x08<<52)
	for i := range uint32(64) {
		running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				own, cancel := context.WithTimeout(ctx, 5*time.Second) // Limits.BackendTimeout
				before := chaingql.ChainOrder(-1, 1<<63, masters-(37*n)%(masters/2), 0)
				_, _ = b.Blocks(own, chaingql.BlocksQuery{Last: 50, Before: before, Workchain: &workchain, Shard: &never})
				cancel()
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
}

// TestSearchesHoldUpNobodyElse reads balances and new blocks while clients search the
// history for blocks that do not exist.
func TestSearchesHoldUpNobodyElse(t *testing.T) {
	chain := liteservertest.Made(610)
	s := start(t, chain, nil)
	s.Advance(600)
	var log safeLog
	b := open(t, s.Config(), &tonlite.Options{Cache: 16, Timeout: 400 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.Delay(30 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	searching(t, b, 600)

	within(t, 1500*time.Millisecond, func() { // 60 ms each
		for range 5 {
			if _, err := b.Balance(ctx, chaingql.Address{Workchain: -1}); !errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("Balance: %v", err)
			}
		}
	})
	within(t, 3*time.Second, func() {
		if page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 3}); err != nil || len(page) != 3 {
			t.Errorf("a page of %d, %v", len(page), err)
		}
	})
	within(t, 5*time.Second, func() { // 150 ms each
		n := uint32(600)
		for block, err := range b.Follow(ctx, chaingql.ChainOrder(-1, 1<<63, n-1, 0)) {
			if err != nil {
				t.Error(err)
				break
			}
			if block.Workchain != -1 {
				continue
			}
			if n++; n > 610 {
				break
			}
			s.Advance(n)
		}
	})
	if said := log.String(); strings.Contains(said, "left alone") {
		t.Errorf("a server that does well is left alone: %s", said)
	}
}

// TestPagesLeaveCallsOfTheHandlerToBalances has more clients than a Handler has calls
// under way. All of them ask for pages that servers must be asked for.
func TestPagesLeaveCallsOfTheHandlerToBalances(t *testing.T) {
	for name, filter := range map[string]string{"pages": "", "searches": `,workchain:0,shard:"5080000000000000"`} {
		t.Run(name, func(t *testing.T) {
			s := start(t, liteservertest.Made(600), nil)
			b := open(t, s.Config(), &tonlite.Options{Cache: 16})
			s.Delay(30 * time.Millisecond)
			h := chaingql.New(b, &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(context.Background())
			defer func() {
				if err := h.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			ask := func(query string) string {
				body := strings.NewReader(fmt.Sprintf(`{"query":%q}`, query))
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/demo/graphql", body)
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Body.String()
			}
			for i := range uint32(100) {
				running.Go(func() {
					for n := i; ctx.Err() == nil; n++ {
						before := chaingql.ChainOrder(-1, 1<<63, 600-37*n%300, 0)
						ask(fmt.Sprintf(`{blockchain{blocks(last:50,before:%q%s){edges{cursor}}}}`, before, filter))
					}
				})
			}
			time.Sleep(500 * time.Millisecond)
			within(t, 3*time.Second, func() { // 60 ms each
				for range 5 {
					text := ask(`{blockchain{account(address:"-1:` + strings.Repeat("00", 32) + `"){info{balance}}}}`)
					if !strings.Contains(text, `"balance":"0x0"`) {
						t.Error(text)
					}
				}
			})
		})
	}
}

// TestSearchesAreFewAtATime has more of them than may be: the others end soon.
func TestSearchesAreFewAtATime(t *testing.T) {
	s := start(t, liteservertest.Made(200), nil)
	b := open(t, s.Config(), &tonlite.Options{Cache: 1})
	s.Delay(30 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	workchain, never := int32(0), uint64(0x5<<60|0x08<<52)
	ended := make(chan error, 12)
	for range cap(ended) {
		go func() {
			_, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 5, Workchain: &workchain, Shard: &never})
			ended <- err
		}()
	}
	for range 4 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "searched for at a time") {
			t.Errorf("a search more than may be: %v", err)
		}
	}
	cancel()
	for range 8 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a search that may be: %v", err)
		}
	}
	if page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 5, Workchain: &workchain}); err != nil || len(page) != 5 {
		t.Errorf("a page of %d, %v", len(page), err)
	}
}

type safeLog struct {
	mu sync.Mutex
	strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}
