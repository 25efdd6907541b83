package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestHistoryBeginsAfterHole uses two servers that have blocks from 700 on, and one that has some older blocks, too,
// but not those in between. Blocks before the hole must not hide where the history begins.
func TestHistoryBeginsAfterHole(t *testing.T) {
	for _, row := range []struct {
		from, to uint32 // the missing blocks
		later    bool   // the server has the old blocks only after the Backend has searched for the oldest block
	}{{3, 699, false}, {4, 699, false}, {3, 698, true}} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) { readAfterHole(t, m, row.from, row.to, row.later) })
		})
	}
}

func readAfterHole(t *testing.T, m *memoryNetwork, from, to uint32, later bool) {
	chain := generate(1001)
	sparse, one, two := m.start(chain), m.start(chain), m.start(chain)
	for _, s := range []*liteservertest.Server{sparse, one, two} {
		s.Advance(800)
	}
	one.Forget(700)
	two.Forget(700)
	if sparse.Lose(from, to); later {
		sparse.Lose(1, 699)
	}
	b := m.open(sparse.Config(one, two), &tonlite.Options{Cache: 32})
	b.Prefer(1)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() {
		for range b.Follow(ctx, cursor(799)) {
		}
	})
	oldest := to + 1
	first := chaingql.BlocksQuery{First: 10}
	last := chaingql.BlocksQuery{Last: 50, Before: cursor(oldest + 3)}
	all := chaingql.PageOf(upTo(chain, 800), chaingql.BlocksQuery{First: 10_000, After: cursor(oldest)})
	if later {
		if _, err := b.Blocks(ctx, first); err != nil {
			t.Fatal(err)
		}
		sparse.Lose(from, to)
		time.Sleep(6 * time.Second) // the Backend checks then whether blocks are back
	}
	for i := range uint32(5) {
		read := func(q chaingql.BlocksQuery, want error) {
			t.Helper()
			own, cancel := context.WithTimeout(ctx, 5*time.Second) // Limits.BackendTimeout
			defer cancel()
			page, err := b.Blocks(own, q)
			if !errors.Is(err, want) {
				t.Errorf("round %d: %+v: got error %v, want %v", i, q, err, want)
			} else if want == nil {
				same(t, page, chaingql.PageOf(all, q))
			}
		}
		read(first, nil)
		read(last, nil)
		read(chaingql.BlocksQuery{First: 10, After: cursor(300 + i)}, chaingql.ErrCursorTooOld)
		read(chaingql.BlocksQuery{First: 10, After: cursor(from - 1)}, chaingql.ErrCursorTooOld)
		read(chaingql.BlocksQuery{First: 10, After: cursor(720 + i)}, nil)
		for block, err := range b.Follow(ctx, cursor(from-1)) {
			if !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("round %d: Follow: got block %v and error %v, want ErrCursorTooOld", i, block.Cursor, err)
			}
			break
		}
		time.Sleep(4 * time.Second)
	}
}
