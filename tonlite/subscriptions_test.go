package tonlite_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestSearchesDoNotDelayLiveBlocksAfterMerges follows a chain whose shards merge, while clients search for blocks of a
// shard. Before the Handler delivers the first block after a merge, it reads the last blocks of the merged shards.
func TestSearchesDoNotDelayLiveBlocksAfterMerges(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newLoadedHandler(t, m)
		server.Delay(40 * time.Millisecond)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		s.request(12, func(n uint32) string {
			return "{blockchain{blocks(" + manyPages["searches"](n) + "){edges{cursor}}}}"
		})
		for n := uint32(602); n <= 614; n++ {
			server.Advance(n)
			within(t, 4*time.Second, func() { // a block takes about 0.2 s, or 1 s after a merge
				for seqNo := uint32(0); seqNo < n; {
					seqNo = <-s.live
				}
			})
		}
	})
}

// TestPagesDoNotStopClientsThatResume subscribes after an old cursor, while other clients read more old pages than may
// wait.
func TestPagesDoNotStopClientsThatResume(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newLoadedHandler(t, m)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		s.requestPages(manyPages["old pages"])
		ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second) // without other clients, the page takes about 6 s
		defer cancel()
		w := &untilBlock{ResponseRecorder: httptest.NewRecorder(), stop: cancel}
		s.subscribe(ctx, w, cursor(300))
		if !w.came {
			t.Error("received no block within 20 seconds")
		}
	})
}

// TestClientsThatResumeDoNotDelayBalances reads balances while clients subscribe after many old cursors.
func TestClientsThatResumeDoNotDelayBalances(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newLoadedHandler(t, m)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		for n := range uint32(40) {
			s.wait.Go(func() { s.subscribe(s.ctx, httptest.NewRecorder(), cursor(20+13*n)) })
		}
		time.Sleep(500 * time.Millisecond)
		within(t, 550*time.Millisecond, func() { // each balance should take 100 ms
			for range 5 {
				if text := s.balance(); !strings.Contains(text, `"balance":"0x0"`) {
					t.Errorf("balance: got response %s", text)
				}
			}
		})
	})
}

// TestClientsThatResumeAgainDoNotDelayBalances reads balances while clients subscribe again and again, each time a few
// blocks before the last. The Backend has cached the blocks after these cursors, so that it reads only those before.
func TestClientsThatResumeAgainDoNotDelayBalances(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newCachingHandler(t, m, 1024)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		first, cached := make(chan bool), make(chan bool)
		for n := range uint32(8) {
			s.wait.Go(func() {
				for master := 580 - 70*n; s.ctx.Err() == nil && master > 20; master -= 8 {
					ctx, cancel := context.WithCancel(s.ctx)
					w := &untilBlock{ResponseRecorder: httptest.NewRecorder(), stop: cancel}
					s.subscribe(ctx, w, cursor(master))
					if cancel(); master == 580-70*n {
						first <- true
						<-cached
					}
				}
			})
		}
		for range 8 {
			<-first
		}
		close(cached)
		time.Sleep(500 * time.Millisecond)
		within(t, 1100*time.Millisecond, func() { // each balance should take 100 ms
			for range 10 {
				if text := s.balance(); !strings.Contains(text, `"balance":"0x0"`) {
					t.Errorf("balance: got response %s", text)
				}
			}
		})
	})
}

func newCachingHandler(t *testing.T, m *memoryNetwork, cache int) (*loadedHandler, *liteservertest.Server) {
	t.Helper()
	server := m.start(generate(1001))
	server.Advance(600)
	server.Forget(10)
	b := m.open(server.Config(), &tonlite.Options{Cache: cache})
	server.Delay(100 * time.Millisecond)
	live := make(chan uint32, 100)
	ctx, cancel := context.WithCancel(context.Background())
	s := &loadedHandler{t: t, ctx: ctx, live: live, wait: new(sync.WaitGroup)}
	s.Handler = chaingql.New(b, &chaingql.Options{
		Logger: slog.New(slog.DiscardHandler),
		Hooks: chaingql.Hooks{BlockReceived: func(block chaingql.Block, _ time.Duration) {
			if block.Workchain == -1 {
				live <- block.SeqNo
			}
		}},
	})
	t.Cleanup(func() {
		server.Delay(0) // lets queries in flight end soon
		cancel()
		s.wait.Wait()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, server
}

// subscribe sends all blocks after the cursor to w until ctx is done.
func (s *loadedHandler) subscribe(ctx context.Context, w http.ResponseWriter, after chaingql.Cursor) {
	query := url.Values{"query": {fmt.Sprintf("subscription{blocks(after:%q){seq_no}}", after)}}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/demo/graphql?"+query.Encode(), nil)
	r.Header.Set("Accept", "text/event-stream")
	s.ServeHTTP(w, r)
}

// untilBlock is a response that calls stop when it contains a block.
type untilBlock struct {
	*httptest.ResponseRecorder
	stop func()
	came bool
}

func (w *untilBlock) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("seq_no")) {
		w.came = true
		w.stop()
	}
	return w.ResponseRecorder.Write(p)
}
