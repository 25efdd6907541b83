package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// followAll follows b from block from+1 to block to. It calls reached for each masterchain block.
func followAll(ctx context.Context, t *testing.T, b *tonlite.Backend, from, to uint32, reached func(seqNo uint32)) {
	t.Helper()
	want := from + 1
	for block, err := range b.Follow(ctx, cursor(from)) {
		if err != nil {
			t.Fatalf("Follow before block %d: got error %v", want, err)
		}
		if block.Workchain != -1 {
			continue
		}
		if block.SeqNo != want {
			t.Fatalf("Follow: got block %d, want %d", block.SeqNo, want)
		}
		if want > to-1 {
			return
		}
		want++
		reached(block.SeqNo)
	}
}

// TestServerThatOnlyAnnouncesLateDoesNotDelayFollow prefers a server that responds at once, except that it reports
// each new block almost a timeout late. The others may be farther away.
func TestServerThatOnlyAnnouncesLateDoesNotDelayFollow(t *testing.T) {
	const timeout = 2 * time.Second
	for _, row := range []struct {
		distance, limit time.Duration // with the late server, 40 blocks would need 72 seconds
		lookups         int
	}{
		{time.Millisecond, 10 * time.Second, 6},       // two lookups until it is replaced, and a few that read blocks
		{60 * time.Millisecond, 6 * time.Second, 100}, // it reads some of the blocks, because it is nearer
	} {
		t.Run(fmt.Sprintf("the others are %v away", row.distance), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(60)
				late, honest, other := m.start(chain), m.start(chain), m.start(chain)
				grow := func(to uint32) {
					for _, s := range []*liteservertest.Server{late, honest, other} {
						s.Advance(to)
					}
				}
				grow(20)
				honest.Delay(row.distance)
				other.Delay(row.distance)
				late.DelayNew(timeout * 9 / 10)
				b := m.open(late.Config(honest, other), &tonlite.Options{Timeout: timeout})
				b.Prefer(0)
				ctx, cancel := context.WithTimeout(t.Context(), row.limit)
				defer cancel()
				time.AfterFunc(100*time.Millisecond, func() { grow(21) })
				late.Asked()
				followAll(ctx, t, b, 20, 60, func(seqNo uint32) {
					time.AfterFunc(20*time.Millisecond, func() { grow(seqNo + 1) }) // when Follow waits for it
				})
				if n := late.Asked()["lookupBlock"]; n > row.lookups {
					t.Errorf("the late server received %d lookups for 40 blocks, want at most %d", n, row.lookups)
				}
			})
		})
	}
}

// TestFollowContinuesIfServerWithholdsBlocks lets one server announce and prove each block first, but send none.
// The others have it a little later.
func TestFollowContinuesIfServerWithholdsBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(30)
		liar, honest, other := m.start(chain), m.start(chain), m.start(chain)
		grow := func(to uint32) {
			liar.Advance(to)
			time.AfterFunc(150*time.Millisecond, func() { honest.Advance(to); other.Advance(to) })
		}
		grow(20)
		time.Sleep(200 * time.Millisecond)
		b := m.open(liar.Config(honest, other), nil)
		b.Prefer(0)
		liar.SetLie(liteservertest.Withheld)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		time.AfterFunc(100*time.Millisecond, func() { grow(21) })
		followAll(ctx, t, b, 20, 26, func(seqNo uint32) { grow(seqNo + 1) })
	})
}

// TestServersThatAreSlowToDenyBlocksDoNotStopFirstPages uses servers that have deleted old blocks. Some of them say so
// only after two seconds. 40 clients request the first page.
func TestServersThatAreSlowToDenyBlocksDoNotStopFirstPages(t *testing.T) {
	for _, row := range []struct{ slow, honest int }{{1, 1}, {1, 2}, {3, 2}} {
		t.Run(fmt.Sprintf("%d slow, %d honest", row.slow, row.honest), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				firstPages(t, m, row.slow, row.honest)
			})
		})
	}
}

func firstPages(t *testing.T, m *memoryNetwork, slow, honest int) {
	chain := generate(1001)
	var all []*liteservertest.Server
	for i := range slow + honest {
		all = append(all, m.start(chain))
		if all[i].Forget(640); i >= honest {
			all[i].DelayMissing(2 * time.Second)
		}
	}
	b := m.open(all[0].Config(all[1:]...), nil)
	b.Prefer(0)
	want := chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 10, After: cursor(640)})
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
		all[honest].Asked()
		var clients sync.WaitGroup
		for range 40 {
			clients.Go(func() {
				page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 10})
				if err != nil || !slices.Equal(page, want) {
					t.Errorf("first page: got %d blocks and error %v", len(page), err)
				}
			})
		}
		clients.Wait()
		cancel()
		if n := all[honest].Asked()["lookupBlock"]; n > 10 { // one search needs 6
			t.Errorf("a slow server received %d lookups for 40 equal pages, want at most 10", n)
		}
		time.Sleep(time.Minute)
	}
}

// TestFirstPageStartsAtOldestBlockThatIsSent lets one server prove all blocks, but send none. The others
// have deleted old blocks.
func TestFirstPageStartsAtOldestBlockThatIsSent(t *testing.T) {
	chain := generate(100)
	liar, honest, other := start(t, chain, nil), start(t, chain, nil), start(t, chain, nil)
	honest.Forget(70)
	other.Forget(70)
	liar.SetLie(liteservertest.Withheld)
	b := open(t, liar.Config(honest, other), nil)
	b.Prefer(1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 2 {
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 10})
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 10, After: cursor(70)}))
		_, err = b.Blocks(ctx, chaingql.BlocksQuery{First: 10, After: cursor(30)})
		if !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("page after block 30: got error %v, want ErrCursorTooOld", err)
		}
	}
	for _, err := range b.Follow(ctx, cursor(30)) {
		if !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("Follow after block 30: got error %v, want ErrCursorTooOld", err)
		}
		break
	}
}

// TestHistoryStartsAtOldestStepWithShardBlocks uses a server that has all masterchain blocks, but has deleted old shard
// blocks, alone and together with servers that have deleted both.
func TestHistoryStartsAtOldestStepWithShardBlocks(t *testing.T) {
	chain := generate(100)
	all := chain.Blocks()
	one, two, three := start(t, chain, nil), start(t, chain, nil), start(t, chain, nil)
	one.ForgetShards(70)
	two.ForgetShards(70)
	three.ForgetShards(70)
	two.Forget(70)
	three.Forget(70)
	for name, config := range map[string][]byte{"one server": one.Config(), "three servers": one.Config(two, three)} {
		t.Run(name, func(t *testing.T) {
			for _, row := range []struct{ q, want chaingql.BlocksQuery }{
				{chaingql.BlocksQuery{First: 10}, chaingql.BlocksQuery{First: 10, After: cursor(69)}},
				{chaingql.BlocksQuery{Last: 50, Before: cursor(75)},
					chaingql.BlocksQuery{Last: 50, After: cursor(69), Before: cursor(75)}},
				{chaingql.BlocksQuery{Last: 5, Before: cursor(50)}, chaingql.BlocksQuery{}},
				{chaingql.BlocksQuery{First: 9, After: cursor(69)}, chaingql.BlocksQuery{First: 9, After: cursor(69)}},
			} {
				page, err := open(t, config, nil).Blocks(t.Context(), row.q)
				if err != nil {
					t.Errorf("%+v: got error %v", row.q, err)
					continue
				}
				same(t, page, chaingql.PageOf(all, row.want))
			}
			for _, q := range []chaingql.BlocksQuery{{First: 5, After: cursor(30)}, {Last: 300, After: cursor(30)}} {
				if _, err := open(t, config, nil).Blocks(t.Context(), q); !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("%+v: got error %v, want ErrCursorTooOld", q, err)
				}
			}
			for _, err := range open(t, config, nil).Follow(t.Context(), cursor(30)) {
				if !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("Follow after block 30: got error %v, want ErrCursorTooOld", err)
				}
				break
			}
		})
	}
}

// TestFirstPageWorksOnceServerHasItsBlocksAgain lets the only server lose all blocks for a while.
func TestFirstPageWorksOnceServerHasItsBlocksAgain(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	s.Forget(30)
	s.Advance(20)
	first := chaingql.BlocksQuery{First: 10}
	if page, err := b.Blocks(t.Context(), first); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("without blocks: got %d blocks and error %v, want ErrUnavailable", len(page), err)
	}
	s.Advance(40)
	page, err := b.Blocks(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	same(t, page, chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 10, After: cursor(30)}))
}
