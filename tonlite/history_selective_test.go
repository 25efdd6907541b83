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
)

// TestServerThatWithholdsPagesDoesNotStopFirstPages uses three servers. Two have deleted the blocks below 500. The
// other one has older blocks and sends those that a search for the oldest block reads. As soon as it receives several
// lookups at once, as a page that begins there needs, it denies these blocks.
func TestServerThatWithholdsPagesDoesNotStopFirstPages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(700)
		hostile, one, two := m.start(chain), m.start(chain), m.start(chain)
		forget(one, 500)
		forget(two, 500)
		for _, s := range []interface{ Delay(time.Duration) }{hostile, one, two} {
			s.Delay(60 * time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var withholding sync.WaitGroup
		defer withholding.Wait()
		defer cancel()
		withholding.Go(func() {
			for low := uint32(1); ctx.Err() == nil; time.Sleep(time.Millisecond) {
				if hostile.Asked()["lookupBlock"] > 1 && low < 490 {
					low += 8
					hostile.Forget(low)
				}
			}
		})
		var log testkit.Buffer
		b := m.open(hostile.Config(one, two), &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for i := range 20 {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50})
			cancel()
			switch {
			case err != nil && i > 1:
				t.Errorf("page %d: got error %v", i, err)
			case err == nil && (len(page) != 50 || page[0].Cursor <= cursor(500)):
				t.Errorf("page %d: got %d blocks, the first of which is %v", i, len(page), page[0].Cursor)
			}
			time.Sleep(5 * time.Second)
		}
		if !strings.Contains(log.String(), "sent an old block, but not those after it") {
			t.Errorf("the log does not name the hostile server:\n%s", log.String())
		}
	})
}
