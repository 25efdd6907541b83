package tonlite_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
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
