package chaingqltest

import (
	"context"
	"crypto/sha256"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A Chain is a [chaingql.Backend] in memory whose blocks the test appends. Create it with [NewChain]. Its methods may
// be called concurrently. SetBalance, Prune and Interrupt are those of [memchain.Chain].
type Chain struct {
	*memchain.Chain
	t       testing.TB
	appends sync.Mutex // held from the choice of sequence numbers until the blocks are there

	mu      sync.Mutex
	follows map[*chaingql.Cursor]struct{} // the positions of the running Follows
	moved   chan struct{}                 // closed and replaced when a position has changed
}

// NewChain returns a chain for the test t. It has one block, the masterchain block 0.
//
// A subscription of the test, or of its subtests, that does not set the argument after, starts at the newest block that
// this chain has when [Subscribe] is called. If a test has several chains, that does not apply: its subscriptions start
// at the newest block that the Handler knows, which may have been appended a moment later. Set after in such a test.
func NewChain(t testing.TB) *Chain {
	t.Helper()
	c := &Chain{Chain: memchain.New(), t: t, follows: map[*chaingql.Cursor]struct{}{}, moved: make(chan struct{})}
	c.Append(masterBlock(0))
	register(t, c)
	return c
}

// masterBlock returns a masterchain block of the present.
func masterBlock(seqNo uint32) chaingql.Block {
	const wholeShard = 1 << 63
	cursor := chaingql.ChainOrder(masterchain, wholeShard, seqNo, 0)
	return chaingql.Block{
		Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo, Hash: sha256.Sum256([]byte(cursor)),
		Time: time.Now(), Cursor: cursor,
	}
}

const masterchain = -1

// Advance appends n masterchain blocks and returns them. Their sequence numbers continue that of the newest masterchain
// block: the first one is 1. Their cursors are those of [chaingql.ChainOrder], and their time is the present.
//
// Advance returns when every Handler that follows the chain has received the blocks: a later [Query] sees them. If a
// Handler does not receive them within [Timeout], the test fails. So Advance must not be called by a hook.
func (c *Chain) Advance(n int) []chaingql.Block {
	c.t.Helper()
	blocks := make([]chaingql.Block, n)
	c.append(blocks, func() {
		workchain := int32(masterchain)
		newest := c.newest(&workchain)
		for i := range blocks {
			blocks[i] = masterBlock(newest.SeqNo + uint32(i) + 1)
		}
	})
	return blocks
}

// Append appends blocks of the test's own, for example of other workchains, and waits like [Chain.Advance]. Their
// cursors must ascend, and be after that of the newest block. Otherwise the test fails.
func (c *Chain) Append(blocks ...chaingql.Block) {
	c.t.Helper()
	c.append(blocks, func() {})
}

// append appends blocks that prepare has filled in, and waits until every Follow has yielded them.
func (c *Chain) append(blocks []chaingql.Block, prepare func()) {
	c.t.Helper()
	if len(blocks) == 0 {
		return
	}
	c.commit(blocks, prepare)
	newest := blocks[len(blocks)-1].Cursor
	timeout := time.NewTimer(Timeout)
	defer timeout.Stop()
	for {
		behind, moved := c.behind(newest)
		if !behind {
			return
		}
		select {
		case <-moved:
		case <-timeout.C:
			c.t.Fatalf("chaingqltest: a Handler has not received block %s within %v: does a hook block?",
				newest, Timeout)
		}
	}
}

func (c *Chain) commit(blocks []chaingql.Block, prepare func()) {
	c.t.Helper()
	c.appends.Lock() // not during the wait: in a bubble, time stands still while a goroutine waits for a Mutex
	defer c.appends.Unlock()
	prepare()
	if err := c.Chain.Append(blocks...); err != nil {
		c.t.Fatalf("chaingqltest: append: %v", err)
	}
}

// behind reports whether a Follow has not reached a cursor. moved is closed when that may have changed.
func (c *Chain) behind(newest chaingql.Cursor) (behind bool, moved <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := range c.follows {
		if *at < newest {
			return true, c.moved
		}
	}
	return false, nil
}

// Follow yields every block after a cursor, as [chaingql.Backend] describes it.
func (c *Chain) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		at := after
		c.move(func() { c.follows[&at] = struct{}{} })
		defer c.move(func() { delete(c.follows, &at) })
		for b, err := range c.Chain.Follow(ctx, after) {
			if !yield(b, err) {
				return
			}
			if err == nil {
				c.move(func() { at = b.Cursor })
			}
		}
	}
}

// move calls change with the lock held, and wakes every Append that waits.
func (c *Chain) move(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.moved)
	c.moved = make(chan struct{})
}

// newest returns the newest block of a workchain, or of all if it is nil.
func (c *Chain) newest(workchain *int32) chaingql.Block {
	c.t.Helper()
	page, err := c.Chain.Blocks(context.Background(), chaingql.BlocksQuery{Workchain: workchain, Last: 1})
	if err != nil || len(page) == 0 {
		c.t.Fatalf("chaingqltest: the chain has no block to continue (error %v): were all pruned?", err)
	}
	return page[0]
}

// chains has the chains of the running tests, by the name of the test. A Handler follows its chain on a goroutine of
// its own, and learns the position a moment after a subscription was opened: only the chain knows the exact one.
var chains struct {
	mu     sync.Mutex
	byTest map[string][]*Chain
}

func register(t testing.TB, c *Chain) {
	name := t.Name()
	chains.mu.Lock()
	defer chains.mu.Unlock()
	if chains.byTest == nil {
		chains.byTest = map[string][]*Chain{}
	}
	chains.byTest[name] = append(chains.byTest[name], c)
	t.Cleanup(func() {
		chains.mu.Lock()
		defer chains.mu.Unlock()
		delete(chains.byTest, name)
	})
}

// chainOf returns the only chain of a test, or of the nearest test around it that has one. It is nil if there is none,
// or more than one.
func chainOf(t testing.TB) *Chain {
	chains.mu.Lock()
	defer chains.mu.Unlock()
	for name := t.Name(); ; {
		if found := chains.byTest[name]; len(found) == 1 {
			return found[0]
		} else if len(found) > 1 {
			return nil
		}
		slash := strings.LastIndexByte(name, '/')
		if slash < 0 {
			return nil
		}
		name = name[:slash]
	}
}
