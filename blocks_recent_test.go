package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A pageCounter is a chain that counts the calls of Blocks.
type pageCounter struct {
	*memchain.Chain
	pages atomic.Int64
}

func (c *pageCounter) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	c.pages.Add(1)
	return c.Chain.Blocks(ctx, q)
}

// costs returns the number of calls of Blocks while f runs.
func (c *pageCounter) costs(f func()) int64 {
	before := c.pages.Load()
	f()
	synctest.Wait()
	return c.pages.Load() - before
}

const newest = `{blockchain{blocks(last:1){edges{cursor}}}}`

func newestIs(b chaingql.Block) string {
	return `{"data":{"blockchain":{"blocks":{"edges":[{"cursor":"` + string(b.Cursor) + `"}]}}}}`
}

// startStream starts the block stream and commits its first block.
func startStream(t *testing.T, h *chaingql.Handler, chain *memchain.Chain, b chaingql.Block) {
	t.Helper()
	query(h, "{info{latency}}", nil)
	synctest.Wait()
	commit(t, chain, b)
	synctest.Wait()
}

func TestRecentBlocksAreServedWithoutBackendCallWhileFollowWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(21, 300)
		c := &pageCounter{Chain: chainOf(t, blocks[:299])}
		h, _ := newHandler(t, c, chaingql.Options{})
		asleep, _ := newHandler(t, chainOf(t, blocks), chaingql.Options{}) // its stream has yielded no block
		query(asleep, newest, nil)
		startStream(t, h, c.Chain, blocks[299])
		at := func(i int) string { return string(blocks[i].Cursor) }
		const fields = "{edges{cursor node{id seq_no}} pageInfo{startCursor endCursor hasNextPage hasPreviousPage}}"
		for args, pages := range map[string]int64{
			"last:1":                                      0,
			"last:50":                                     0,
			"first:5":                                     1, // from the oldest block on
			"workchain:-1,last:3":                         0,
			"workchain:0,last:10":                         0,
			`shard:"4000000000000000",last:4`:             0,
			"workchain:5,last:1":                          1, // an older block may be before the window
			`first:10,after:"` + at(250) + `"`:            0,
			`first:50,after:"` + at(280) + `"`:            0,
			`first:1,after:"` + at(299) + `"`:             0,
			`first:9,workchain:7,after:"` + at(230) + `"`: 0,
			`last:7,before:"` + at(290) + `"`:             0,
			`last:50,before:"` + at(205) + `"`:            1,
			`first:5,after:"` + at(20) + `"`:              1,
			// A cursor that is not in the window is passed to the Backend.
			`first:5,after:"` + at(250) + `0"`: 1,
			`last:5,before:"what?"`:            1,
		} {
			document := "{blockchain{blocks(" + args + ")" + fields + "}}"
			var got string
			if n := c.costs(func() { got = query(h, document, nil) }); n != pages {
				t.Errorf("%s needed %d calls of Blocks, want %d", args, n, pages)
			}
			equal(t, args, got, query(asleep, document, nil))
		}
		n := c.costs(func() {
			if got := query(h, "{info{lastBlockTime latency}}", nil); !strings.Contains(got, `"lastBlockTime":16`) {
				t.Errorf("info has another lastBlockTime: %s", got)
			}
		})
		equal(t, "pages for info", n, 0)
	})
}

func TestChainFollowedFromItsFirstBlockIsServedFromTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(22, 30)
		c := &pageCounter{Chain: memchain.New()}
		h, _ := newHandler(t, c, chaingql.Options{})
		startStream(t, h, c.Chain, blocks[0])
		commit(t, c.Chain, blocks[1:]...)
		synctest.Wait()
		n := c.costs(func() {
			equal(t, "first", query(h, `{blockchain{blocks(first:1){edges{cursor}}}}`, nil), newestIs(blocks[0]))
			const empty = `{"data":{"blockchain":{"blocks":{"edges":[]}}}}`
			missing := query(h, `{blockchain{blocks(workchain:5,last:1){edges{cursor}}}}`, nil)
			equal(t, "unknown workchain", missing, empty)
		})
		equal(t, "pages", n, 0)
	})
}

func TestQueriesReadFromTheBackendWhileFollowFailsOrStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(23, 10)
		c := &pageCounter{Chain: memchain.New()}
		h, _ := newHandler(t, c, chaingql.Options{StallTimeout: 5 * time.Second})
		ask := func() { query(h, newest, nil) }
		startStream(t, h, c.Chain, blocks[0])
		equal(t, "pages while it is live", c.costs(ask), 0)
		time.Sleep(4 * time.Second)
		equal(t, "pages after a pause", c.costs(ask), 0)
		time.Sleep(time.Second)
		synctest.Wait() // the Handler has checked whether Follow hangs
		equal(t, "pages after a silence", c.costs(ask), 1)
		commit(t, c.Chain, blocks[1])
		synctest.Wait()
		equal(t, "pages after a block", c.costs(ask), 0)
		c.Interrupt(nil)
		synctest.Wait()
		equal(t, "pages after Follow has ended", c.costs(ask), 1)
		time.Sleep(900 * time.Millisecond) // the Handler has called Follow, and checks it a second later
		equal(t, "pages before Follow yields again", c.costs(ask), 1)
		commit(t, c.Chain, blocks[2])
		synctest.Wait()
		equal(t, "pages then", c.costs(ask), 0)
	})
}

// In a laggingChain, Follow yields blocks only up to the cursor most(). It calls most again after a receive from more.
type laggingChain struct {
	*pageCounter
	most func() chaingql.Cursor
	more chan struct{}
}

func (l laggingChain) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range l.pageCounter.Follow(ctx, after) {
			for err == nil && b.Cursor > l.most() {
				select {
				case <-l.more:
				case <-ctx.Done():
					yield(chaingql.Block{}, ctx.Err())
					return
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func TestNewestBlockInQueriesNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(24, 20)
		var most atomic.Value
		most.Store(blocks[3].Cursor)
		l := laggingChain{
			&pageCounter{Chain: chainOf(t, blocks[:3])},
			func() chaingql.Cursor { return most.Load().(chaingql.Cursor) },
			make(chan struct{}),
		}
		h, _ := newHandler(t, l, chaingql.Options{})
		n := serve(t, mounted(h))
		startStream(t, h, l.Chain, blocks[3])
		commit(t, l.Chain, blocks[4:10]...)
		let := func(i int) {
			most.Store(blocks[i].Cursor)
			l.more <- struct{}{}
			synctest.Wait()
		}
		synctest.Wait()
		equal(t, "newest block of the window", query(h, newest, nil), newestIs(blocks[3]))
		// A query that the window cannot answer returns newer blocks than the window.
		query(h, fmt.Sprintf(`{blockchain{blocks(first:9,after:"%s0"){edges{cursor}}}}`, blocks[0].Cursor), nil)
		equal(t, "newest after a query returned it", query(h, newest, nil), newestIs(blocks[9]))
		let(5)
		equal(t, "newest while Follow lags", query(h, newest, nil), newestIs(blocks[9]))
		let(9)
		equal(t, "pages after Follow has caught up", l.costs(func() {
			equal(t, "newest after Follow has caught up", query(h, newest, nil), newestIs(blocks[9]))
		}), 0)

		// A subscription that catches up from the Backend has the same effect.
		commit(t, l.Chain, blocks[10:15]...)
		s := n.socket(t)
		s.send(start("1", `subscription{blocks(after:""){chain_order}}`))
		var want []string
		for _, b := range blocks[:15] {
			want = append(want, data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
		}
		s.expect("stored blocks", want...)
		equal(t, "newest after a subscriber received it", query(h, newest, nil), newestIs(blocks[14]))
	})
}

func TestQuerySeesBlocksAlreadySentOnEventStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(25, 200)
		c := &pageCounter{Chain: memchain.New()}
		h, _ := newHandler(t, c, chaingql.Options{})
		n := serve(t, mounted(h))
		e := n.stream(t, allBlocks)
		e.expect("before any block", ":")
		for _, b := range blocks {
			commit(t, c.Chain, b)
			e.expect("the block", next(b)...)
			equal(t, "newest", query(h, newest, nil), newestIs(b))
		}
	})
}

func TestWindowDurationAndWindowBytesBoundTheWindow(t *testing.T) {
	for name, row := range map[string]struct {
		opts  chaingql.Options
		calls int64 // of Blocks, for the newest 40 of 100 blocks
	}{
		"size":           {chaingql.Options{WindowSize: 5}, 1},
		"duration":       {chaingql.Options{WindowSize: 5, WindowDuration: time.Minute}, 0},
		"short duration": {chaingql.Options{WindowSize: 5, WindowDuration: 10 * time.Second}, 1},
		"bytes": {chaingql.Options{
			WindowDuration: time.Minute, Limits: chaingql.Limits{WindowBytes: 30 * 1250},
		}, 1},
		"no limit of bytes": {chaingql.Options{
			WindowDuration: time.Minute, Limits: chaingql.Limits{WindowBytes: -1},
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				chain := memchain.New()
				b := &tornBackend{Chain: chain, between: func(chaingql.BlocksQuery) { calls.Add(1) }}
				h, _ := newHandler(t, b, row.opts)
				query(h, "{info{latency}}", nil)
				for _, b := range weave(strings.Repeat("m", 100)) {
					time.Sleep(time.Second)
					commit(t, chain, b)
				}
				synctest.Wait()
				before := calls.Load()
				query(h, "{blockchain{blocks(last:40){edges{cursor}}}}", nil)
				equal(t, "calls of Blocks", calls.Load()-before, row.calls)
			})
		})
	}
}
