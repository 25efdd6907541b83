package tonlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestInventedIDsDoNotHideBlocks prefers a server that answers lookups with ids of blocks that nobody has. It names
// the right block at the end of each range that is read, where a proof is required. Two honest servers have all blocks.
func TestInventedIDsDoNotHideBlocks(t *testing.T) {
	chain := generate(400)
	all := chain.Blocks()
	page := func(q chaingql.BlocksQuery) func(context.Context, *testing.T, *tonlite.Backend) {
		return func(ctx context.Context, t *testing.T, b *tonlite.Backend) {
			got, err := b.Blocks(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, chaingql.PageOf(all, q))
		}
	}
	follow := func(after chaingql.Cursor) func(context.Context, *testing.T, *tonlite.Backend) {
		return func(ctx context.Context, t *testing.T, b *tonlite.Backend) {
			want := chaingql.PageOf(all, chaingql.BlocksQuery{First: 100, After: after})
			var got []chaingql.Block
			for block, err := range b.Follow(ctx, after) {
				if err != nil {
					t.Fatalf("after %d blocks: %v", len(got), err)
				}
				if got = append(got, block); len(got) == len(want) {
					break
				}
			}
			same(t, got, want)
		}
	}
	for name, read := range map[string]func(context.Context, *testing.T, *tonlite.Backend){
		"first page":       page(chaingql.BlocksQuery{First: 24}), // begins with blocks 1 to 4
		"newest page":      page(chaingql.BlocksQuery{Last: 5}),
		"page after":       page(chaingql.BlocksQuery{First: 50, After: cursor(200)}),
		"page before":      page(chaingql.BlocksQuery{Last: 50, Before: cursor(200)}),
		"Follow":           follow(""),
		"Follow after 200": follow(cursor(200)),
		"block by number": func(ctx context.Context, t *testing.T, b *tonlite.Backend) {
			if got, err := b.BlockBySeqNo(ctx, -1, 1<<63, 200); err != nil || got.Cursor != cursor(200) {
				t.Fatalf("got %+v and error %v", got, err)
			}
		},
	} {
		for _, unproven := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unproven %v", name, unproven), func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *memoryNetwork) {
					liar, one, two := m.start(chain), m.start(chain), m.start(chain)
					var log testkit.Buffer
					b := m.open(liar.Config(one, two), &tonlite.Options{
						Logger: slog.New(slog.NewTextHandler(&log, nil)), Unproven: unproven,
					})
					b.Prefer(0)
					liar.SetLie(liteservertest.FalseIDs)
					liar.Asked() // resets the count after Open

					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
					defer cancel()
					read(ctx, t, b)
					text, looked := log.String(), liar.Asked()["lookupBlock"]
					convicted := looked > 0 && name != "first page" // a search only prefers another server
					if convicted && !strings.Contains(text, liar.Addr()) {
						t.Errorf("got log %q, want a line about the liar", text)
					}
					if strings.Contains(text, "server="+one.Addr()) || strings.Contains(text, "server="+two.Addr()) {
						t.Errorf("got log %q, want no line about the honest servers", text)
					}
				})
			})
		}
	}
}

// TestSearchLeavesServerThatInventsIDs searches for the oldest block while such a server is preferred. A search does
// not convict it, because others might only be slow to send the block.
func TestSearchLeavesServerThatInventsIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(1001)
		liar, one, two := m.start(chain), m.start(chain), m.start(chain)
		for _, s := range []*liteservertest.Server{liar, one, two} {
			s.Forget(203)
		}
		b := m.open(liar.Config(one, two), nil)
		b.Prefer(0)
		liar.SetLie(liteservertest.FalseIDs)
		liar.Asked() // resets the count after Open
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 10, After: cursor(203)}))
		if n := liar.Asked()["getBlockProof"]; n > 4 { // 16 if the liar stays preferred
			t.Errorf("the liar received %d queries for proofs, want at most 4", n)
		}
	})
}

// TestServerThatNamesForgedBlocksIsNotUsed prefers a server that answers lookups with forged blocks, which it sends.
// Their proven successors name others.
func TestServerThatNamesForgedBlocksIsNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(400)
		liar, one, two := m.start(chain), m.start(chain), m.start(chain)
		one.Delay(60 * time.Millisecond) // the liar is the fastest server, so it becomes the preferred one again
		two.Delay(60 * time.Millisecond)
		var log testkit.Buffer
		b := m.open(liar.Config(one, two), &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		liar.SetLie(liteservertest.FalsePast)
		for i := range uint32(8) {
			b.Prefer(0)
			liar.Asked() // resets the count
			readPage(t, b, chain, chaingql.BlocksQuery{First: 20, After: cursor(100 + 30*i)})
			if asked := liar.Asked(); i > 0 && len(asked) > 0 {
				t.Fatalf("page %d: the liar received queries %v", i, asked)
			}
			time.Sleep(time.Minute)
		}
		text := log.String()
		if n := strings.Count(text, "lite server lied and is not used for a while"); n != 1 ||
			strings.Contains(text, "server="+one.Addr()) || strings.Contains(text, "server="+two.Addr()) {
			t.Errorf("got log %q, want one line, about the liar", text)
		}
	})
}

// A client leaves before its page is complete, and could do so again and again. The page needs one block that only
// distant servers have.
func TestServerThatNamesForgedBlocksIsNotUsedIfClientLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(400)
		liar, one, two := m.start(chain), m.start(chain), m.start(chain)
		one.Delay(60 * time.Millisecond)
		two.Delay(60 * time.Millisecond)
		liar.SetLie(liteservertest.FalsePast) // 102
		liar.Lose(101, 101)
		var log testkit.Buffer
		b := m.open(liar.Config(one, two), &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b.Prefer(0)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 20, After: cursor(100)}); err == nil {
			t.Fatal("got a page, want an error")
		}
		if text := log.String(); !strings.Contains(text, "lied and is not used for a while") {
			t.Errorf("got log %q, want a line about the liar", text)
		}
	})
}

// TestServerThatSendsWrongBlocksIsNotUsedForAWhile uses a server that is nearer than the others. It names the right
// blocks, but sends others: its valid responses must not make up for these.
func TestServerThatSendsWrongBlocksIsNotUsedForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(400)
		liar, one, two := m.start(chain), m.start(chain), m.start(chain)
		one.Delay(60 * time.Millisecond)
		two.Delay(60 * time.Millisecond)
		b := m.open(liar.Config(one, two), nil)
		liar.SetLie(liteservertest.FalseBlock)
		liar.Asked() // resets the count
		for i := range uint32(10) {
			readPage(t, b, chain, chaingql.BlocksQuery{First: 50, After: cursor(20 + 30*i)})
			time.Sleep(time.Second)
		}
		if n := liar.Asked()["getBlock"]; n > 60 { // each page reads 16 masterchain blocks
			t.Errorf("the liar was asked for %d blocks, want at most 60", n)
		}
	})
}
