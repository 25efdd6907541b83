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

// follow follows b after block from to block to, as a Handler does: it calls Follow again after an error. It fails the
// test if a block is lost, or if a block is said to be too old.
func follow(ctx context.Context, t *testing.T, b *tonlite.Backend, chain *liteservertest.Chain, from, to uint32) {
	t.Helper()
	var got []chaingql.Block
	for last := cursor(from); last != cursor(to) && ctx.Err() == nil; {
		for block, err := range b.Follow(ctx, last) {
			if errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("Follow after %q: got error %v", last, err)
				return
			}
			if err != nil {
				break
			}
			got, last = append(got, block), block.Cursor
			if last == cursor(to) {
				break
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	same(t, got, chaingql.PageOf(upTo(chain, to), chaingql.BlocksQuery{First: 10_000, After: cursor(from)}))
}

// upTo returns the blocks of chain up to a masterchain block.
func upTo(chain *liteservertest.Chain, master uint32) []chaingql.Block {
	all := chain.Blocks()
	end := slices.IndexFunc(all, func(b chaingql.Block) bool { return b.Cursor > cursor(master) })
	return all[:end]
}

// TestShardBlocksThatComeLateAreNotReportedAsDeleted uses servers that announce six masterchain blocks half a minute
// before they have the shard blocks of them. They have deleted old blocks, or not.
func TestShardBlocksThatComeLateAreNotReportedAsDeleted(t *testing.T) {
	for _, row := range []struct {
		servers int
		oldest  uint32
	}{{1, 1}, {3, 1}, {1, 12}, {3, 12}} {
		t.Run(fmt.Sprintf("%d servers, blocks from %d on", row.servers, row.oldest), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				lateShardBlocks(t, m, row.servers, row.oldest)
			})
		})
	}
}

func lateShardBlocks(t *testing.T, m *memoryNetwork, n int, oldest uint32) {
	chain := generate(60)
	all := make([]*liteservertest.Server, n)
	for i := range all {
		all[i] = m.start(chain)
		all[i].Advance(20)
		all[i].Forget(oldest)
	}
	b := m.open(all[0].Config(all[1:]...), nil)
	b.Prefer(0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	time.AfterFunc(2*time.Second, func() {
		for _, s := range all {
			s.LagShards(20)
			s.Advance(26)
		}
	})
	time.AfterFunc(30*time.Second, func() {
		for _, s := range all {
			s.LagShards(0)
		}
	})
	var following sync.WaitGroup
	following.Go(func() { follow(ctx, t, b, chain, 19, 26) })
	time.Sleep(10 * time.Second) // the Backend knows block 26 then
	for !lateShardPages(ctx, t, b, chain, oldest) && ctx.Err() == nil {
		time.Sleep(time.Second)
	}
	if following.Wait(); ctx.Err() != nil {
		t.Error("reads still fail")
	}
}

// lateShardPages reads pages and a block, and reports whether none of them failed.
func lateShardPages(
	ctx context.Context, t *testing.T, b *tonlite.Backend, chain *liteservertest.Chain, oldest uint32,
) (complete bool) {
	complete = true
	check := func(q any, got []chaingql.Block, err error, want []chaingql.Block) {
		if complete = complete && err == nil; err == nil && !slices.Equal(got, want) {
			t.Errorf("%+v: got %d blocks, want %d", q, len(got), len(want))
		} else if err != nil && !errors.Is(err, chaingql.ErrUnavailable) {
			t.Errorf("%+v: got error %v, want ErrUnavailable", q, err)
		}
	}
	kept := upTo(chain, 26)
	if oldest > 1 {
		kept = chaingql.PageOf(kept, chaingql.BlocksQuery{First: 10_000, After: cursor(oldest)})
	}
	for _, q := range []chaingql.BlocksQuery{
		{First: 9, After: cursor(20)}, {First: 9, After: cursor(23)}, {First: 500}, {First: 1}, {Last: 9}, {Last: 500},
	} {
		page, err := b.Blocks(ctx, q)
		check(q, page, err, chaingql.PageOf(kept, q))
	}
	last := chaingql.PageOf(kept, chaingql.BlocksQuery{Last: 9, After: cursor(23)})
	for _, want := range last {
		block, err := b.BlockBySeqNo(ctx, want.Workchain, want.Shard, want.SeqNo)
		check(want, []chaingql.Block{block}, err, []chaingql.Block{want})
	}
	return complete
}

// TestWithheldShardBlocksAreNotReportedAsDeleted lets one of three servers have new masterchain blocks seconds before
// the others, and withhold the shard blocks of all blocks, or of all but the newest two. All servers have deleted old
// blocks.
func TestWithheldShardBlocksAreNotReportedAsDeleted(t *testing.T) {
	for _, newest := range []bool{false, true} {
		for _, delay := range []time.Duration{time.Second, 4 * time.Second} {
			t.Run(fmt.Sprintf("newest sent %v, others %v late", newest, delay), func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *memoryNetwork) {
					withholdShardBlocks(t, m, newest, delay)
				})
			})
		}
	}
}

// TestShardBlocksWithheldFromPageAreNotReportedAsDeleted lets one of two servers have new masterchain blocks first. It
// sends the shard blocks of the newest two only.
func TestShardBlocksWithheldFromPageAreNotReportedAsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(60)
		liar, honest, b := m.startTwo(chain)
		liar.Advance(26)
		liar.ForgetShards(25)
		q := chaingql.BlocksQuery{First: 9, After: cursor(20)}
		if page, err := b.Blocks(t.Context(), q); !errors.Is(err, chaingql.ErrUnavailable) {
			t.Errorf("got %d blocks and error %v, want ErrUnavailable", len(page), err)
		}
		honest.Advance(26)
		page, err := b.Blocks(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, chaingql.PageOf(chain.Blocks(), q))
	})
}

func withholdShardBlocks(t *testing.T, m *memoryNetwork, newest bool, delay time.Duration) {
	chain := generate(80)
	liar, one, two := m.start(chain), m.start(chain), m.start(chain)
	honest := []*liteservertest.Server{one, two}
	for _, s := range append(honest, liar) {
		s.Advance(20)
		s.Forget(10)
	}
	b := m.open(liar.Config(honest...), nil)
	b.Prefer(0)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	var growing sync.WaitGroup
	defer growing.Wait()
	defer cancel()
	growing.Go(func() {
		for h := uint32(24); h <= 60 && ctx.Err() == nil; h += 4 {
			time.Sleep(4500 * time.Millisecond)
			if newest {
				liar.ForgetShards(h - 1)
			} else {
				liar.ForgetShards(80)
			}
			liar.Advance(h)
			time.AfterFunc(delay, func() {
				for _, s := range honest {
					s.Advance(h)
				}
			})
		}
	})
	growing.Go(func() {
		first := chaingql.BlocksQuery{First: 5}
		want := chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 5, After: cursor(10)})
		for range 40 {
			if page, err := b.Blocks(ctx, first); err != nil || !slices.Equal(page, want) {
				t.Errorf("first page: got %d blocks and error %v", len(page), err)
			}
			first.After = cursor(5)
			if page, err := b.Blocks(ctx, first); !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("page after a deleted block: got %d blocks and error %v", len(page), err)
			}
			first.After = ""
			time.Sleep(time.Second)
		}
	})
	follow(ctx, t, b, chain, 19, 60)
}
