package tonlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestServerThatDelaysChecksIsReplaced prefers a server that invents the ids of blocks, or the newest block. It denies
// late that it has them, and then does not respond any more until the call has ended.
func TestServerThatDelaysChecksIsReplaced(t *testing.T) {
	for name, lie := range map[string]liteservertest.Lie{
		"ids": liteservertest.FalseIDs, "newest block": liteservertest.FarHead,
	} {
		for _, late := range []time.Duration{1200 * time.Millisecond, 2300 * time.Millisecond, 4 * time.Second} {
			t.Run(fmt.Sprintf("%s, denied after %v", name, late), func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *memoryNetwork) { readFromLateLiar(t, m, lie, late) })
			})
		}
	}
}

func readFromLateLiar(t *testing.T, m *memoryNetwork, lie liteservertest.Lie, late time.Duration) {
	chain := generate(400)
	liar, one, two := m.start(chain), m.start(chain), m.start(chain)
	b := m.open(liar.Config(one, two), nil)
	liar.SetLie(lie)
	liar.DelayMissing(late)
	for i := range uint32(5) {
		b.Prefer(0)
		for j := range uint32(3) {
			q := chaingql.BlocksQuery{First: 50, After: cursor(20 + 60*i + 15*j)}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
			var resume func()
			stall := time.AfterFunc(time.Second, func() { resume = liar.Stall() })
			begin := time.Now()
			page, err := b.Blocks(ctx, q)
			took := time.Since(begin)
			cancel()
			if !stall.Stop() {
				resume()
			}
			if err != nil {
				t.Errorf("page %d of %d: got error %v", j, i, err)
				continue
			}
			if j > 0 && took > time.Second {
				t.Errorf("page %d of %d took %v, although another server is preferred", j, i, took)
			}
			same(t, page, chaingql.PageOf(chain.Blocks(), q))
		}
	}
}
