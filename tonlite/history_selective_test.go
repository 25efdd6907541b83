package tonlite_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestServerThatWithholdsPagesDoesNotStopFirstPages uses three servers. Two have deleted the blocks below 500, or only
// the shard blocks. The other one has older blocks and sends those that a search for the oldest block reads. As soon as
// it receives several lookups at once, as a page that begins there needs, it denies these blocks.
func TestServerThatWithholdsPagesDoesNotStopFirstPages(t *testing.T) {
	for name, shardsOnly := range map[string]bool{"all older blocks": false, "older shard blocks": true} {
		t.Run("others have deleted "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) { withholdPages(t, m, shardsOnly) })
		})
	}
}

func withholdPages(t *testing.T, m *memoryNetwork, shardsOnly bool) {
	chain := generate(700)
	hostile, one, two := m.start(chain), m.start(chain), m.start(chain)
	one.ForgetShards(500)
	two.ForgetShards(500)
	if !shardsOnly {
		one.Forget(500)
		two.Forget(500)
	}
	for _, s := range []*liteservertest.Server{hostile, one, two} {
		s.Delay(60 * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var withholding sync.WaitGroup
	defer withholding.Wait()
	defer cancel()
	withholding.Go(func() {
		for low := uint32(1); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if hostile.Asked()["lookupBlock"] > 1 && low < 480 {
				low += 20
				hostile.Forget(low)
				hostile.ForgetShards(low)
			}
		}
	})
	var log testkit.Buffer
	b := m.open(one.Config(hostile, two), &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 20 {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50})
		cancel()
		switch {
		case shardsOnly: // the server does not notice all pages
		case err != nil && i > 1:
			t.Errorf("page %d: got error %v", i, err)
		case err == nil && (len(page) != 50 || page[0].Cursor <= cursor(499)):
			t.Errorf("page %d: got %d blocks, the first of which is %v", i, len(page), page[0].Cursor)
		}
		time.Sleep(5 * time.Second)
	}
	named := false
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "sent an old block, but not those after it") {
			named = true
			if !strings.Contains(line, hostile.Addr()) {
				t.Errorf("the log names another server than %s: %s", hostile.Addr(), line)
			}
		}
	}
	if !named && !shardsOnly {
		t.Errorf("the log does not name the hostile server:\n%s", log.String())
	}
}
