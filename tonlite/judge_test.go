package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
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

// TestSlowServersHaveTimeForChecks reads old blocks from servers that need more than a second for each response, while
// others have deleted these blocks. One of these says so late. A block needs a lookup, a proof and a read: 3.6 seconds.
func TestSlowServersHaveTimeForChecks(t *testing.T) {
	const distance = 1200 * time.Millisecond
	for _, row := range []struct{ slow, pruned, late int }{{3, 0, 0}, {1, 2, 1}, {2, 1, 1}} {
		t.Run(fmt.Sprintf("%d slow, %d pruned, %d late", row.slow, row.pruned, row.late), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(400)
				var all []*liteservertest.Server
				for i := range row.slow + row.pruned + row.late {
					s := m.start(chain)
					all = append(all, s)
					if i >= row.slow {
						s.Forget(300)
					}
					if i >= row.slow+row.pruned {
						s.DelayMissing(3 * time.Second)
					}
				}
				b := m.open(all[0].Config(all[1:]...), nil)
				b.Prefer(uint32(len(all) - 1))
				following(t, b, cursor(399))
				for _, s := range all[:row.slow] {
					s.Delay(distance)
				}
				readSlowHistory(t, b, chain)
			})
		})
	}
}

// readSlowHistory repeats each call that fails with ErrUnavailable, as a client does.
func readSlowHistory(t *testing.T, b *tonlite.Backend, chain *liteservertest.Chain) {
	for i := range uint32(6) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
		block, err := b.BlockBySeqNo(ctx, -1, 1<<63, 25+40*i)
		cancel()
		if err != nil || block.Cursor != cursor(25+40*i) {
			t.Errorf("block %d: got %v and error %v", 25+40*i, block.Cursor, err)
		}
		q := chaingql.BlocksQuery{First: 3, After: cursor(20 + 12*i)}
		for attempt := 1; ; attempt++ {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			page, err := b.Blocks(ctx, q)
			cancel()
			if err == nil {
				same(t, page, chaingql.PageOf(chain.Blocks(), q))
				break
			}
			if !errors.Is(err, chaingql.ErrUnavailable) || errors.Is(err, chaingql.ErrCursorTooOld) || attempt == 5 {
				t.Errorf("page after block %d, attempt %d: got error %v", 20+40*i, attempt, err)
				break
			}
		}
	}
}
