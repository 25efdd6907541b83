package tonlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestNearServerWithoutOldBlocksDoesNotMakeOldPagesFail uses one server that has deleted old blocks, and is near.
// Several clients read pages of old blocks at the same time.
func TestNearServerWithoutOldBlocksDoesNotMakeOldPagesFail(t *testing.T) {
	for _, row := range []struct {
		servers, clients int
		distance         time.Duration
		queries          int // maximum number of queries to the others per page; a page needs about 80
	}{
		{3, 8, 100 * time.Millisecond, 170},
		{12, 4, 60 * time.Millisecond, 170},
		{12, 4, 100 * time.Millisecond, 170},
		{12, 8, 100 * time.Millisecond, 170},
	} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(320)
				var all []*liteservertest.Server
				for i := range row.servers {
					all = append(all, m.start(chain))
					all[i].Delay(row.distance)
				}
				all[0].Forget(310)
				all[0].ForgetShards(310)
				all[0].Delay(time.Millisecond)
				b := m.open(all[0].Config(all[1:]...), nil)
				b.Prefer(0)
				for _, s := range all {
					s.Asked()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
				defer cancel()
				var clients sync.WaitGroup
				for i := range uint32(row.clients) {
					clients.Go(func() {
						page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50, After: cursor(20 + 25*i)})
						if err != nil || len(page) != 50 {
							t.Errorf("got %d blocks and error %v", len(page), err)
						}
					})
				}
				clients.Wait()
				queries := 0
				for _, s := range all[1:] {
					for _, n := range s.Asked() {
						queries += n
					}
				}
				if n := queries / row.clients; n > row.queries {
					t.Errorf("the other servers received %d queries per page, want at most %d", n, row.queries)
				}
			})
		})
	}
}

// A server that sent old blocks hangs from then on.
func TestHungServerWithOldBlocksIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(320)
		pruned, one, two := m.start(chain), m.start(chain), m.start(chain)
		pruned.Forget(310)
		pruned.ForgetShards(310)
		one.Delay(60 * time.Millisecond)
		two.Delay(80 * time.Millisecond)
		b := m.open(pruned.Config(one, two), nil)
		b.Prefer(0)
		for i := range uint32(8) {
			if i == 4 {
				t.Cleanup(one.Stall())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
			page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50, After: cursor(20 + 25*i)})
			if cancel(); err != nil || len(page) != 50 {
				t.Errorf("page %d: got %d blocks and error %v", i, len(page), err)
			}
		}
	})
}
