package backendtest

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
)

// ErrChaos is the error that a [ChaosBackend] returns, and the value of its panics.
var ErrChaos = errors.New("backendtest: chaos")

// DefaultLongest is the default of ChaosOptions.Longest.
const DefaultLongest = 250 * time.Millisecond

// ChaosOptions sets the faults of a [ChaosBackend]. Each rate is the probability, from
// 0 (never) to 1 (always), of a fault for each block of a Follow or each call of
// Blocks. The zero value causes no faults.
type ChaosOptions struct {
	// Seed selects the faults. With the same seed, the n-th Follow and the n-th call of
	// Blocks have the same faults in each run.
	Seed uint64

	// Fail is the rate of Follows that end with ErrChaos in place of a block.
	Fail float64

	// End is the rate of Follows that end without an error in place of a block, which the contract forbids.
	End float64

	// Panic is the rate of Follows that panic with ErrChaos in place of a block.
	Panic float64

	// Stall is the rate of blocks before which Follow pauses.
	Stall float64

	// Hole is the rate of blocks that Follow omits.
	Hole float64

	// Duplicate is the rate of blocks that Follow yields twice.
	Duplicate float64

	// Replay is the rate of blocks after which Follow repeats one of the last few blocks.
	Replay float64

	// Swap is the rate of blocks that Follow yields after their successor.
	Swap float64

	// PageFail is the rate of calls of Blocks that return ErrChaos.
	PageFail float64

	// PagePanic is the rate of calls of Blocks that panic with ErrChaos.
	PagePanic float64

	// PageSlow is the rate of calls of Blocks that pause before they return.
	PageSlow float64

	// PageHang is the rate of calls of Blocks that return only when their context is done.
	PageHang float64

	// Longest is the maximum duration of a Stall or PageSlow; the minimum is a tenth
	// of it. Default: [DefaultLongest].
	Longest time.Duration
}

// ChaosCounts holds the number of calls and faults of a [ChaosBackend].
type ChaosCounts struct {
	// Follows is the number of Follows that were started.
	Follows int

	// Failures is the number of Follows that ended before their context and were not left by their caller.
	Failures int

	// Panics is the number of Failures that were panics with ErrChaos.
	Panics int

	// Stalls is the number of pauses of Follows.
	Stalls int

	// Duplicates is the number of blocks that were yielded twice.
	Duplicates int

	// Reordered is the number of blocks that were yielded after a newer one, by Replay or Swap.
	Reordered int

	// Holes is the number of blocks that were omitted.
	Holes int

	// Pages is the number of calls of Blocks.
	Pages int

	// PagesFailed is the number of calls of Blocks that failed, panics included.
	PagesFailed int

	// PagesSlow is the number of calls of Blocks that paused.
	PagesSlow int

	// PagesHung is the number of calls of Blocks that hung.
	PagesHung int
}

// A ChaosBackend wraps a Backend and adds faults: Follow fails, stalls, and repeats,
// reorders or omits blocks, and Blocks fails or hangs. [ChaosBackend.Prune] simulates
// pruning. Readers can recover: pages that Blocks returns are correct, and a new Follow
// may yield blocks that an earlier one omitted. Balance has no faults.
//
// A ChaosBackend keeps the rest of the contract: it is safe for concurrent use, returns
// when a call's context is done, and starts no goroutine. Make one with [Chaos].
type ChaosBackend struct {
	chaingql.Backend
	opts    ChaosOptions
	follows atomic.Uint64
	pages   atomic.Uint64
	calmed  chan struct{}
	calm    sync.Once

	mu     sync.Mutex // guards counts and floor
	counts ChaosCounts
	floor  chaingql.Cursor
}

// Chaos returns a [ChaosBackend] that wraps b. It has only the methods of
// [chaingql.Backend], even if b implements more interfaces.
func Chaos(b chaingql.Backend, o ChaosOptions) *ChaosBackend {
	if o.Longest <= 0 {
		o.Longest = DefaultLongest
	}
	return &ChaosBackend{Backend: b, opts: o, calmed: make(chan struct{})}
}

// Calm ends all faults permanently. Calls that are stalled continue and return. Running
// Follows do not yield the blocks that they omitted before.
func (c *ChaosBackend) Calm() { c.calm.Do(func() { close(c.calmed) }) }

// Counts returns the counts so far.
func (c *ChaosBackend) Counts() ChaosCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

func (c *ChaosBackend) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// Blocks returns a page of the wrapped Backend, with faults: it may be slow or hang first,
// return an error, or panic.
func (c *ChaosBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	d, o := c.dice(c.pages.Add(1), pageDice), &c.opts
	c.count(&c.counts.Pages)
	switch {
	case d.falls(o.PageFail):
		c.count(&c.counts.PagesFailed)
		return nil, ErrChaos
	case d.falls(o.PagePanic):
		c.count(&c.counts.PagesFailed)
		panic(ErrChaos)
	case d.falls(o.PageHang):
		c.count(&c.counts.PagesHung)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.calmed:
		}
	case d.falls(o.PageSlow):
		c.count(&c.counts.PagesSlow)
		if err := c.pause(ctx, d.while()); err != nil {
			return nil, err
		}
	}
	if err := c.kept(&q); err != nil {
		return nil, err
	}
	return c.Backend.Blocks(ctx, q)
}

// Follow yields the blocks of the wrapped Backend, with faults.
func (c *ChaosBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		f := &chaosFollow{c: c, d: c.dice(c.follows.Add(1), followDice), ctx: ctx, yield: yield}
		c.count(&c.counts.Follows)
		defer f.end()
		if after < c.pruned() {
			f.fail(chaingql.ErrCursorTooOld)
			return
		}
		for b, err := range c.Backend.Follow(ctx, after) {
			if err == nil && b.Cursor <= c.pruned() {
				err = chaingql.ErrCursorTooOld // Prune has overtaken this Follow
			}
			if err != nil {
				f.fail(err)
				return
			}
			if !f.next(b) {
				return
			}
		}
	}
}

// pause waits for d or until Calm is called. If ctx ends first, it returns ctx's error.
func (c *ChaosBackend) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.calmed:
	case <-timer.C:
	}
	return nil
}

// Follows and calls of Blocks use separate random sequences of the same seed.
const (
	followDice = 1 << 62
	pageDice   = 1 << 63
)

type dice struct {
	*rand.Rand
	c *ChaosBackend
}

func (c *ChaosBackend) dice(n, row uint64) dice {
	return dice{rand.New(rand.NewPCG(c.opts.Seed, row|n)), c}
}

// falls reports whether a fault with this rate occurs. It draws a number even for a
// rate of zero, so that changing one rate does not affect the other faults.
func (d dice) falls(rate float64) bool {
	thrown := d.Float64() < rate
	select {
	case <-d.c.calmed:
		return false
	default:
		return thrown
	}
}

// while returns a random duration from a tenth of Longest to Longest.
func (d dice) while() time.Duration {
	longest := d.c.opts.Longest
	return longest/10 + time.Duration(d.Int64N(int64(longest-longest/10)+1))
}
