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
// be called concurrently. The methods SetBalance, Prune and Interrupt are documented at [memchain.Chain].
type Chain struct {
	*memchain.Chain
	t       testing.TB
	appends sync.Mutex // held from the choice of sequence numbers until the blocks are in the chain

	mu      sync.Mutex
	follows map[*chaingql.Cursor]struct{} // the positions of the running Follows
	moved   chan struct{}                 // closed and replaced when a position has changed
}

// NewChain returns a chain for the test t. It has one block: the masterchain block with sequence number 0.
//
// If a subscription of the test or its subtests does not set the argument after, it starts after the newest block that
// the chain has when [Subscribe] is called. This does not apply to a test with several chains. There, a subscription
// starts after the newest block that the Handler knows, which may have been appended after the call of Subscribe. Set
// the argument after in such a test.
func NewChain(t testing.TB) *Chain {
	t.Helper()
	c := &Chain{Chain: memchain.New(), t: t, follows: map[*chaingql.Cursor]struct{}{}, moved: make(chan struct{})}
	c.Append(masterBlock(0))
	register(t, c)
	return c
}

// masterBlock returns a masterchain block that was generated now.
func masterBlock(seqNo uint32) chaingql.Block {
	const wholeShard = 1 << 63
	cursor := chaingql.ChainOrder(masterchain, wholeShard, seqNo, 0)
	return chaingql.Block{
		Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo, Hash: sha256.Sum256([]byte(cursor)),
		Time: time.Now(), Cursor: cursor,
	}
}

const masterchain = -1

// Advance appends n masterchain blocks and returns them. Their sequence numbers continue from the newest masterchain
// block, so the first block that is appended to a new chain has number 1. Their cursors are from [chaingql.ChainOrder],
// and their Time is the current time.
//
// Advance returns when every Handler that follows the chain has received the blocks, so a later [Query] sees them. If a
// Handler does not receive them within [Timeout], the test fails. A hook must not call Advance, because the Handler
// receives no blocks until the hook has returned.
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

// Append appends blocks that the test has made, for example blocks of other workchains. Like [Chain.Advance], it waits
// until every Handler has received them. The cursors must be in ascending order and after that of the newest block.
// Otherwise the test fails.
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
	// Not held while append waits: time in a synctest bubble does not advance while a goroutine waits for a Mutex.
	c.appends.Lock()
	defer c.appends.Unlock()
	prepare()
	if err := c.Chain.Append(blocks...); err != nil {
		c.t.Fatalf("chaingqltest: append: %v", err)
	}
}

// behind reports whether a running Follow has not reached the cursor newest yet. moved is closed when that may have
// changed.
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

// Follow yields every block after a cursor, as [chaingql.Backend] specifies.
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

// move calls change with the lock held, and wakes the calls of append that wait.
func (c *Chain) move(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.moved)
	c.moved = make(chan struct{})
}

// newest returns the newest block of a workchain, or of all workchains if workchain is nil.
func (c *Chain) newest(workchain *int32) chaingql.Block {
	c.t.Helper()
	page, err := c.Chain.Blocks(context.Background(), chaingql.BlocksQuery{Workchain: workchain, Last: 1})
	if err != nil || len(page) == 0 {
		c.t.Fatalf("chaingqltest: the chain has no newest block (error %v): were all blocks pruned?", err)
	}
	return page[0]
}

// chains contains the chains of the running tests, by the name of the test. Subscribe takes the newest cursor from the
// chain. It cannot take it from the Handler, which follows the chain on its own goroutine and may receive a block only
// after Subscribe was called.
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

// chainOf returns the only chain of a test. If the test has no chain, chainOf returns that of the nearest parent test
// that has one. It returns nil if no test has a chain, or if the first test with a chain has several.
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
