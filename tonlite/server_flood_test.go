package tonlite_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestServerThatFloodsConnectionsIsNotUsed prefers a server that answers each query with packets that answer no query.
func TestServerThatFloodsConnectionsIsNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(40)
		flooding, honest := m.start(chain), m.start(chain)
		var log testkit.Buffer
		opts := &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Cache: 1}
		b := m.open(flooding.Config(honest), opts)
		b.Prefer(0)
		flooding.Asked()
		flooding.SetLie(liteservertest.Flood)
		for range 50 {
			b.Prefer(0)
			if page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 3}); err != nil || len(page) != 3 {
				t.Fatalf("got a page of %d blocks and error %v", len(page), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		n := 0
		for _, k := range flooding.Asked() {
			n += k
		}
		if n > 20 {
			t.Errorf("the flooding server received %d queries for 50 pages, want at most 20", n)
		}
		if text := log.String(); !strings.Contains(text, "floods") || strings.Contains(text, honest.Addr()) {
			t.Errorf("got log %q, want lines about the flooding server only", text)
		}
	})
}
