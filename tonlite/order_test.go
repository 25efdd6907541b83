package tonlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// Servers that have deleted blocks say so at once. Those that have the blocks are farther away.
func TestNearServersWithoutOldBlocksDoNotHideThem(t *testing.T) {
	for _, row := range []struct {
		pruned, archives []time.Duration // distances in milliseconds
		down             bool            // whether the last of pruned is down
	}{
		{pruned: []time.Duration{0}, archives: []time.Duration{60, 60}},
		{pruned: []time.Duration{0}, archives: []time.Duration{100, 100}},
		{pruned: []time.Duration{0}, archives: []time.Duration{200, 200}},
		{pruned: []time.Duration{1, 1}, archives: []time.Duration{100, 100}},
		{pruned: []time.Duration{1, 1}, archives: []time.Duration{200, 200}},
		{pruned: []time.Duration{1, 1}, archives: []time.Duration{200, 200}, down: true},
		{pruned: []time.Duration{20, 30, 40, 50, 60, 70, 80, 100}, archives: []time.Duration{150, 180}},
	} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(400)
				var all []*liteservertest.Server
				add := func(distances []time.Duration, oldest uint32) {
					for _, d := range distances {
						s := m.start(chain)
						s.Delay(d * time.Millisecond)
						forget(s, oldest)
						all = append(all, s)
					}
				}
				add(row.pruned, 390)
				add(row.archives, 32)
				b := m.open(all[0].Config(all[1:]...), &tonlite.Options{Logger: slog.New(slog.DiscardHandler)})
				b.Prefer(0)
				following(t, b, cursor(399))
				if row.down {
					all[len(row.pruned)-1].Stop()
				}
				want := chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 3, After: cursor(32)})
				for i := range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
					page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 3})
					cancel()
					switch {
					case err == nil:
						same(t, page, want)
					case i > 4:
						t.Errorf("first page %d: %v", i, err)
					}
					time.Sleep(2 * time.Second)
				}
			})
		})
	}
}

// A server that does not respond for a moment still has its blocks.
func TestServerThatStallsOnceKeepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(700)
		near, distant := m.start(chain), m.start(chain)
		near.Delay(100 * time.Millisecond)
		distant.Delay(300 * time.Millisecond)
		b := m.open(near.Config(distant), nil)
		b.Prefer(0)
		read := func(from uint32) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
			defer cancel()
			begin := time.Now()
			_, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50, After: cursor(from)})
			return time.Since(begin), err
		}
		following(t, b, cursor(699))
		_, _ = read(60)
		resume := near.Stall()
		time.AfterFunc(1700*time.Millisecond, resume)
		_, _ = read(400)
		time.Sleep(2 * time.Minute)
		for i := range uint32(3) {
			if took, err := read(130 + 90*i); err != nil || took > 3*time.Second {
				t.Errorf("page %d took %v and returned error %v", i, took, err)
			}
		}
	})
}

// Follow waits on a server that was slow for a moment. Nothing but the queries for new blocks measures that one.
func TestServerOfFollowThatWasSlowIsUsedForPagesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		const head = 180
		chain := generate(200)
		near, distant := m.start(chain), m.start(chain)
		near.Delay(60 * time.Millisecond)
		distant.Delay(260 * time.Millisecond)
		near.Advance(head)
		distant.Advance(head)
		b := m.open(near.Config(distant), nil)
		b.Prefer(0)
		following(t, b, cursor(head-1))
		near.Delay(800 * time.Millisecond)
		for range 20 {
			if err := b.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		near.Delay(60 * time.Millisecond)
		for n := uint32(1); n <= 20; n++ {
			time.Sleep(blockInterval)
			near.Advance(head + n)
			distant.Advance(head + n)
		}
		if took := readPage(t, b, chain, chaingql.BlocksQuery{First: 50, After: cursor(20)}); took > 2*time.Second {
			t.Errorf("a page took %v, want at most 2s", took)
		}
	})
}
