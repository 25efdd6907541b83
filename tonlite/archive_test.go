package tonlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestServerWithoutOldBlocksDoesNotMakeOldPagesFail prefers a server that has deleted old blocks. Several clients read
// pages of these at the same time.
func TestServerWithoutOldBlocksDoesNotMakeOldPagesFail(t *testing.T) {
	for _, row := range []struct {
		servers, clients int
		pruned, others   time.Duration // delays of that server, and of the others
	}{
		{3, 8, time.Millisecond, 100 * time.Millisecond},
		{12, 4, time.Millisecond, 60 * time.Millisecond},
		{12, 4, 60 * time.Millisecond, 60 * time.Millisecond},
		{12, 4, time.Millisecond, 100 * time.Millisecond},
		{12, 8, time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(320)
				var all []*liteservertest.Server
				for i := range row.servers {
					all = append(all, m.start(chain))
					all[i].Delay(row.others)
				}
				forget(all[0], 310)
				all[0].Delay(row.pruned)
				b := m.open(all[0].Config(all[1:]...), nil)
				b.Prefer(0)
				for _, s := range all {
					s.Asked()
				}
				query := func(i int) chaingql.BlocksQuery {
					return chaingql.BlocksQuery{First: 50, After: cursor(uint32(20 + 25*i))}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
				defer cancel()
				pages := make([][]chaingql.Block, row.clients)
				var clients sync.WaitGroup
				for i := range pages {
					clients.Go(func() {
						var err error
						if pages[i], err = b.Blocks(ctx, query(i)); err != nil {
							t.Errorf("page %d: %v", i, err)
						}
					})
				}
				clients.Wait()
				for i, page := range pages {
					same(t, page, chaingql.PageOf(chain.Blocks(), query(i)))
				}
				queries := 0
				for _, s := range all[1:] {
					for _, n := range s.Asked() {
						queries += n
					}
				}
				if n := queries / row.clients; n > 170 { // a page needs about 80
					t.Errorf("the other servers received %d queries per page, want at most 170", n)
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
		forget(pruned, 310)
		one.Delay(60 * time.Millisecond)
		two.Delay(80 * time.Millisecond)
		b := m.open(pruned.Config(one, two), nil)
		b.Prefer(0)
		for i := range uint32(8) {
			if i == 4 {
				t.Cleanup(one.Stall())
			}
			readPage(t, b, chain, chaingql.BlocksQuery{First: 50, After: cursor(20 + 25*i)})
		}
	})
}

// A server with old blocks restarts. Another one that has them is so far away that pages of it take too long.
func TestRestartedServerWithOldBlocksIsUsedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(400)
		pruned, near, far := m.start(chain), m.start(chain), m.start(chain)
		forget(pruned, 390)
		pruned.Delay(60 * time.Millisecond)
		near.Delay(60 * time.Millisecond)
		far.Delay(234 * time.Millisecond)
		b := m.open(pruned.Config(near, far), &tonlite.Options{Cache: 8, Logger: slog.New(slog.DiscardHandler)})
		b.Prefer(0)
		q := chaingql.BlocksQuery{First: 50, After: cursor(20)}
		readPage(t, b, chain, q)
		near.Stop()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, _ = b.Blocks(ctx, q) // may have too little time
			cancel()
			time.Sleep(10 * time.Second)
		}
		if err := near.Restart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		readPage(t, b, chain, q)
		if took := readPage(t, b, chain, q); took > 5*time.Second/2 {
			t.Errorf("a page took %v after the restart, want at most 2.5 s", took)
		}
	})
}

// TestServerThatDeniesBalancesDoesNotMultiplyQueries uses a server that is nearer than the others and denies balances.
func TestServerThatDeniesBalancesDoesNotMultiplyQueries(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(40)
		var all []*liteservertest.Server
		for i := range 6 {
			all = append(all, m.start(chain))
			all[i].Delay(60 * time.Millisecond)
		}
		all[0].Delay(time.Millisecond)
		b := m.open(all[0].Config(all[1:]...), nil)
		following(t, b, cursor(39))
		all[0].SetLie(liteservertest.Withheld)
		for _, s := range all {
			s.Asked()
		}
		begin := time.Now()
		for range 50 {
			for addr := range chain.Balances(40) {
				if _, err := b.Balance(t.Context(), addr); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		queries := 0
		for _, s := range all[1:] {
			queries += s.Asked()["getAccountState"]
		}
		if queries > 70 {
			t.Errorf("50 balances took %v and %d queries to the other servers, want 70", time.Since(begin), queries)
		}
	})
}

// Anybody can ask for a block that only a distant server has. The nearer servers must keep their place for the blocks
// that they have, also if they delete blocks meanwhile.
func TestBlockOfADistantServerDoesNotSlowOtherPages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(900)
		pruned, near, distant := m.start(chain), m.start(chain), m.start(chain)
		forget(pruned, 890)
		forget(near, 32)
		pruned.Delay(60 * time.Millisecond)
		near.Delay(60 * time.Millisecond)
		distant.Delay(234 * time.Millisecond)
		b := m.open(pruned.Config(near, distant), nil)
		b.Prefer(0)
		for i := range uint32(5) {
			page := chaingql.BlocksQuery{First: 50, After: cursor(160 + 100*i)}
			if took := readPage(t, b, chain, page); took > 2*time.Second {
				t.Errorf("page %d took %v, want at most 2s", i, took)
			}
			switch i {
			case 0:
				readPage(t, b, chain, chaingql.BlocksQuery{First: 3, After: cursor(10)})
			case 1:
				forget(near, 220)
				readPage(t, b, chain, chaingql.BlocksQuery{First: 3, After: cursor(214)})
			}
		}
	})
}
