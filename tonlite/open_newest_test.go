package tonlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestOpenFindsNewestBlockThoughNearestServerIsStuck uses a server that responds first, but has no new blocks.
func TestOpenFindsNewestBlockThoughNearestServerIsStuck(t *testing.T) {
	for _, row := range []struct {
		name     string
		distance time.Duration // of the servers with new blocks
		boasters int           // servers that announce a block that does not exist, and then hang
		opts     tonlite.Options
		limit    time.Duration
	}{
		{"others are near", 60 * time.Millisecond, 0, tonlite.Options{}, 2 * time.Second},
		{"others are far", 400 * time.Millisecond, 0, tonlite.Options{}, 4 * time.Second},
		{"others boast", 60 * time.Millisecond, 2, tonlite.Options{}, 17 * time.Second / 2},
		{"unproven", 60 * time.Millisecond, 0, tonlite.Options{Unproven: true}, 2 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(320)
				stuck, one, two := m.start(chain), m.start(chain), m.start(chain)
				stuck.Advance(30)
				one.Delay(row.distance)
				two.Delay(row.distance)
				all := []*liteservertest.Server{one, two}
				for range row.boasters {
					s := m.start(chain)
					s.SetLie(liteservertest.FarHead)
					s.DelayData(time.Hour)
					all = append(all, s)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				begin := time.Now()
				b, err := tonlite.Open(ctx, stuck.Config(all...), row.opts.With(m.dial))
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				if took := time.Since(begin); took > row.limit {
					t.Errorf("Open took %v, want at most %v", took, row.limit)
				}
				page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
				if err != nil || len(page) != 1 || page[0].SeqNo != 320 {
					t.Errorf("the newest block is %v with error %v, want block 320", page, err)
				}
			})
		})
	}
}
