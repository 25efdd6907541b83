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
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// searching runs 64 searches at a time until stop is called, as many as a Handler's calls in flight. They
// search for a shard that never existed, from many positions in the history.
func searching(b chaingql.Backend, masters uint32) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	workchain, never := int32(0), uint64(0x5<<60|0x08<<52)
	for i := range uint32(64) {
		running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				own, cancel := context.WithTimeout(ctx, 5*time.Second) // Limits.BackendTimeout
				before := chaingql.ChainOrder(-1, 1<<63, masters-(37*n)%(masters/2), 0)
				q := chaingql.BlocksQuery{Last: 50, Before: before, Workchain: &workchain, Shard: &never}
				_, _ = b.Blocks(own, q)
				cancel()
				time.Sleep(time.Millisecond) // most searches are refused at once
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	return func() { cancel(); running.Wait() }
}

// TestSearchesDoNotDelayBalancesAndNewBlocks reads balances, a page and new blocks while clients
// search the history for blocks that do not exist.
func TestSearchesDoNotDelayBalancesAndNewBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s := m.start(generate(1001))
		s.Advance(600)
		var log testkit.Buffer
		b := m.open(s.Config(), &tonlite.Options{
			Cache: 16, Timeout: 400 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		s.Delay(30 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		defer searching(b, 600)()

		within(t, 500*time.Millisecond, func() { // each call should take about 60 ms
			for range 5 {
				if _, err := b.Balance(ctx, chaingql.Address{Workchain: -1}); !errors.Is(err, chaingql.ErrNotFound) {
					t.Errorf("Balance: got error %v", err)
				}
			}
		})
		within(t, time.Second, func() {
			if page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 3}); err != nil || len(page) != 3 {
				t.Errorf("got a page of %d blocks and error %v", len(page), err)
			}
		})
		within(t, 3*time.Second, func() { // each block should take about 150 ms
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
		if text := log.String(); strings.Contains(text, "not used for a while") {
			t.Errorf("a working server was not used for a while: log %s", text)
		}
	})
}

// manyPages contains kinds of pages that need queries to lite servers. Each function returns the
// arguments of page n. Different numbers select different pages.
var manyPages = map[string]func(n uint32) string{
	"old pages": func(n uint32) string { return fmt.Sprintf("last:50,before:%q", cursor(600-37*n%300)) },
	"searches": func(n uint32) string {
		return fmt.Sprintf(`last:50,before:%q,workchain:0,shard:"5080000000000000"`, cursor(600-37*n%300))
	},
	"pages after cursors": func(n uint32) string {
		return fmt.Sprintf("first:%d,after:%q", 1+n%50, cursor(20+37*n%300))
	},
	"first pages of nonexistent workchains": func(n uint32) string {
		return fmt.Sprintf("first:1,workchain:%d", 1000+n)
	},
}

// A loadedHandler is a Handler from which 400 clients can request pages at the same time.
type loadedHandler struct {
	*chaingql.Handler
	t    *testing.T
	ctx  context.Context
	live chan uint32 // receives the seq_no of each new masterchain block that the Handler delivers
	wait *sync.WaitGroup
}

// newLoadedHandler returns a Handler that caches few blocks.
func newLoadedHandler(t *testing.T, m *memoryNetwork) (*loadedHandler, *liteservertest.Server) {
	t.Helper()
	return newCachingHandler(t, m, 16)
}

func (s *loadedHandler) ask(query string) (answer string) { return s.askFrom("192.0.2.1", query) }

// askFrom sends a query of the client with an address.
func (s *loadedHandler) askFrom(address, query string) (answer string) {
	body := strings.NewReader(fmt.Sprintf(`{"query":%q}`, query))
	r := httptest.NewRequestWithContext(s.ctx, http.MethodPost, "/demo/graphql", body)
	r.RemoteAddr = address
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Body.String()
}

// requestPages starts 400 clients that request pages in a loop until the test ends. arguments returns
// the arguments of a page.
func (s *loadedHandler) requestPages(arguments func(n uint32) string) {
	s.request(400, func(n uint32) string { return "{blockchain{blocks(" + arguments(n) + "){edges{cursor}}}}" })
}

// request starts clients that send queries from one address in a loop until the test ends.
func (s *loadedHandler) request(clients uint32, query func(n uint32) string) {
	for i := range clients {
		s.wait.Go(func() {
			for n := i; s.ctx.Err() == nil; n += clients { // few equal pages at a time, which would share a call
				text := s.askFrom("192.0.2.2", query(n))
				if strings.Contains(text, "INTERNAL_SERVER_ERROR") {
					s.t.Errorf("query %s: got response %s, but a retry would succeed", query(n), text)
				}
				if strings.Contains(text, "errors") {
					time.Sleep(200 * time.Millisecond) // refused; time passes only while all clients wait
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
}

// awaitBlock adds a block each second until the Handler receives one, for at most 20 seconds. The
// Handler may need that long, because its start takes about 30 queries in sequence and its check
// for missing blocks may take 5 seconds.
func (s *loadedHandler) awaitBlock(server *liteservertest.Server, from uint32) {
	s.t.Helper()
	for n := from; n < from+20; n++ {
		server.Advance(n)
		select {
		case <-s.live:
			return
		case <-time.After(time.Second):
		}
	}
	s.t.Error("the Handler received no block within 20 seconds")
}

// balance requests the balance of an account that does not exist.
func (s *loadedHandler) balance() string {
	return s.ask(`{blockchain{account(address:"-1:` + strings.Repeat("00", 32) + `"){info{balance}}}}`)
}

// TestPagesDoNotDelayBalances reads balances while more clients request pages than a Handler may
// have Backend calls in flight. All pages need queries to lite servers.
func TestPagesDoNotDelayBalances(t *testing.T) {
	for name, query := range manyPages {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				s, server := newLoadedHandler(t, m)
				s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
				s.awaitBlock(server, 601)
				s.requestPages(query)
				within(t, time.Second, func() { // each balance should take about 100 ms
					for range 5 {
						if text := s.balance(); !strings.Contains(text, `"balance":"0x0"`) {
							t.Errorf("balance: got response %s", text)
						}
					}
				})
			})
		})
	}
}

// TestPagesDoNotPreventFollowFromStarting starts a Handler while clients already request pages.
// The Handler must still receive new blocks.
func TestPagesDoNotPreventFollowFromStarting(t *testing.T) {
	for _, name := range []string{"old pages", "first pages of nonexistent workchains"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				s, server := newLoadedHandler(t, m)
				s.requestPages(manyPages[name])
				s.awaitBlock(server, 601)
			})
		})
	}
}

// cursor returns the cursor of a masterchain block.
func cursor(master uint32) chaingql.Cursor { return chaingql.ChainOrder(-1, 1<<63, master, 0) }

// TestConcurrentSearchesAreLimited runs 12 searches at once. Four of them may run and four may
// wait. The remaining ones must fail at once.
func TestConcurrentSearchesAreLimited(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s := m.start(generate(200))
		b := m.open(s.Config(), &tonlite.Options{Cache: 1})
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
			err := <-ended
			tooMany := strings.Contains(fmt.Sprint(err), "too many concurrent searches")
			if !tooMany || !errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("search above the limit: got error %v, want ErrUnavailable because of too many searches", err)
			}
		}
		cancel()
		for range 8 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("search within the limit: got error %v, want Canceled", err)
			}
		}
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 5, Workchain: &workchain})
		if err != nil || len(page) != 5 {
			t.Errorf("got a page of %d blocks and error %v", len(page), err)
		}
	})
}

// TestPageSpansAtMost1000MasterchainBlocks searches as many masterchain blocks as one page may
// span, and one more.
func TestPageSpansAtMost1000MasterchainBlocks(t *testing.T) {
	s := start(t, generate(1001), nil)
	b := open(t, s.Config(), nil)
	workchain, never := int32(0), uint64(0x5<<60|0x08<<52)
	first, last := chaingql.ChainOrder(-1, 1<<63, 1, 0), chaingql.ChainOrder(-1, 1<<63, 1000, 0)
	for _, row := range []struct {
		q    chaingql.BlocksQuery
		want string
	}{
		{chaingql.BlocksQuery{First: 60}, "more than 1000"},
		{chaingql.BlocksQuery{Last: 60}, "more than 1000"},
		{chaingql.BlocksQuery{First: 60, After: first}, "<nil>"},
		{chaingql.BlocksQuery{Last: 60, After: first}, "<nil>"},
		{chaingql.BlocksQuery{Last: 60, Before: last}, "<nil>"},
	} {
		row.q.Workchain, row.q.Shard = &workchain, &never
		if page, err := b.Blocks(t.Context(), row.q); len(page) != 0 || !strings.Contains(fmt.Sprint(err), row.want) {
			t.Errorf("%+v: got %d blocks and error %v, want %s", row.q, len(page), err, row.want)
		}
	}
}
