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

// A Chain is a [chaingql.Backend] in memory, to which the test appends blocks. Create it with [NewChain]. Its methods
// may be called concurrently. The methods SetBalance, Prune and Interrupt are documented at [memchain.Chain].
type Chain struct {
	*memchain.Chain
	t       testing.TB
	appends sync.Mutex // held from the choice of sequence numbers until the blocks are in the chain

	mu      sync.Mutex
	follows map[*position]struct{} // of the running Follows
	moved   chan struct{}          // closed and replaced when a position has changed
}

// A position is that of a running Follow.
type position struct {
	epoch string // the chain's, when Follow was called
	at    chaingql.Cursor
}

// NewChain returns a chain for the test t. It has one block: the masterchain block with sequence number 0.
//
// If a subscription of the test or its subtests does not set the argument after, it starts after the newest block that
// the chain has when [Subscribe] is called. This does not apply to a test with several chains. There, a subscription
// starts after the newest block that the Handler knows, which may have been appended after the call of Subscribe. Set
// the argument after in such a test.
func NewChain(t testing.TB) *Chain {
	t.Helper()
	c := &Chain{Chain: memchain.New(), t: t, follows: map[*position]struct{}{}, moved: make(chan struct{})}
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
//
// Advance does not wait for a Handler that does not follow the chain at the moment, because it has just been created or
// waits before it calls Follow again. Such a Handler reads pages from the chain, and receives the blocks later.
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
	epoch := c.commit(blocks, prepare)
	newest := blocks[len(blocks)-1].Cursor
	c.await("received block "+string(newest), func(p *position) bool { return p.epoch == epoch && p.at < newest })
}

// Replace starts a new chain: it drops all blocks and balances, sets the epoch, and appends the masterchain block
// with sequence number 0. The subscriptions of every Handler then end with the code EPOCH_CHANGED, and a later call of
// [Chain.Advance] continues the new chain. epoch must have 1 to 32 letters and digits, and differ from the last one.
//
// Call Replace before the first subscription to give the chain an epoch. Without one, the cursors of the chain are
// accepted after Replace, too. A hook must not call Replace.
func (c *Chain) Replace(epoch string) {
	c.t.Helper()
	c.replace(epoch)
	c.await("noticed the epoch "+epoch, func(p *position) bool { return p.epoch != epoch })
}

func (c *Chain) replace(epoch string) {
	c.t.Helper()
	c.appends.Lock()
	defer c.appends.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Chain.Replace(epoch)
	if err := c.Chain.Append(masterBlock(0)); err != nil {
		c.t.Fatalf("chaingqltest: append: %v", err)
	}
}

// await waits until behind returns false for all Follows. done describes that for the message if the test fails.
func (c *Chain) await(done string, behind func(*position) bool) {
	c.t.Helper()
	timeout := time.NewTimer(Timeout)
	defer timeout.Stop()
	for {
		some, moved := c.some(behind)
		if !some {
			return
		}
		select {
		case <-moved:
		case <-timeout.C:
			c.t.Fatalf("chaingqltest: a Handler has not %s within %v: does a hook block?", done, Timeout)
		}
	}
}

// commit calls prepare and appends the blocks. It returns the epoch of the chain to which it has appended them.
func (c *Chain) commit(blocks []chaingql.Block, prepare func()) (epoch string) {
	c.t.Helper()
	// Not held while append waits: time in a synctest bubble does not advance while a goroutine waits for a Mutex.
	c.appends.Lock()
	defer c.appends.Unlock()
	prepare()
	if err := c.Chain.Append(blocks...); err != nil {
		c.t.Fatalf("chaingqltest: append: %v", err)
	}
	return c.Epoch()
}

// some reports whether behind returns true for a running Follow. moved is closed when that may have changed.
func (c *Chain) some(behind func(*position) bool) (found bool, moved <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.follows {
		if behind(p) {
			return true, c.moved
		}
	}
	return false, nil
}

// Follow yields every block after a cursor, as [chaingql.Backend] specifies.
func (c *Chain) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	c.mu.Lock() // so that the epoch is that of the chain
	blocks, epoch := c.Chain.Follow(ctx, after), c.Epoch()
	c.mu.Unlock()
	return func(yield func(chaingql.Block, error) bool) {
		p := &position{epoch, after}
		c.move(func() { c.follows[p] = struct{}{} })
		defer c.move(func() { delete(c.follows, p) })
		for b, err := range blocks {
			if !yield(b, err) {
				return
			}
			if err == nil {
				c.move(func() { p.at = b.Cursor })
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
