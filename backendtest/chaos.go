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

// ErrChaos is the error of the failures that a [ChaosBackend] adds, and the value with
// which it panics.
var ErrChaos = errors.New("backendtest: failure injected by ChaosBackend")

// DefaultLongest is the default of ChaosOptions.Longest.
const DefaultLongest = 250 * time.Millisecond

// ChaosOptions sets the faults of a [ChaosBackend]. Each rate is a probability from
// 0 (never) to 1 (always). For the faults of Follow, it is the probability for each block.
// For the faults of Blocks, it is the probability for each call. The zero value of
// ChaosOptions causes no faults.
type ChaosOptions struct {
	// Seed selects the faults. With the same seed, the n-th call of Follow and the n-th
	// call of Blocks have the same faults in each run.
	Seed uint64

	// Fail is the rate at which Follow ends with ErrChaos instead of yielding a block.
	Fail float64

	// End is the rate at which Follow returns without an error instead of yielding a
	// block. The contract forbids this.
	End float64

	// Panic is the rate at which Follow panics with ErrChaos instead of yielding a block.
	Panic float64

	// Stall is the rate at which Follow pauses before it yields a block.
	Stall float64

	// Hole is the rate at which Follow omits a block.
	Hole float64

	// Duplicate is the rate at which Follow yields a block twice in a row.
	Duplicate float64

	// Replay is the rate at which Follow, after a block, yields one of the last few
	// blocks again.
	Replay float64

	// Swap is the rate at which Follow yields a block after the next block instead of
	// before it.
	Swap float64

	// PageFail is the rate at which Blocks returns ErrChaos.
	PageFail float64

	// PagePanic is the rate at which Blocks panics with ErrChaos.
	PagePanic float64

	// PageSlow is the rate at which Blocks pauses before it reads the page.
	PageSlow float64

	// PageHang is the rate at which Blocks hangs until its context is done.
	PageHang float64

	// Longest is the maximum duration of a pause that Stall or PageSlow causes. The
	// minimum is a tenth of Longest. Default: [DefaultLongest].
	Longest time.Duration
}

// ChaosCounts holds the numbers of calls and faults of a [ChaosBackend].
type ChaosCounts struct {
	// Follows is the number of calls of Follow.
	Follows int

	// Failures is the number of Follow calls that ended, with or without an error or a
	// panic, although their context was not done and their caller had not left the loop.
	Failures int

	// Panics is the number of Follow calls that panicked with ErrChaos. Failures includes
	// them.
	Panics int

	// Stalls is the number of pauses in Follow.
	Stalls int

	// Duplicates is the number of blocks that Follow yielded twice in a row.
	Duplicates int

	// Reordered is the number of times that Follow yielded a block after a newer one,
	// because of Replay or Swap.
	Reordered int

	// Holes is the number of blocks that Follow omitted.
	Holes int

	// Pages is the number of calls of Blocks.
	Pages int

	// PagesFailed is the number of calls of Blocks that returned ErrChaos or panicked.
	PagesFailed int

	// PagesSlow is the number of calls of Blocks that paused because of PageSlow.
	PagesSlow int

	// PagesHung is the number of calls of Blocks that hung because of PageHang.
	PagesHung int
}

// A ChaosBackend wraps a Backend and adds faults. Its Follow may fail, stall, panic, and
// repeat, reorder or omit blocks. Its Blocks may fail, stall, panic or hang. Its Balance
// has no faults. [ChaosBackend.Prune] simulates pruning.
//
// Readers can recover from the faults: each page that Blocks returns is correct, and a
// new call of Follow may yield blocks that an earlier call omitted.
//
// A ChaosBackend keeps the rest of the contract: it is safe for concurrent use, and its
// methods return when their context is done. It starts no goroutine. Create one with
// [Chaos].
type ChaosBackend struct {
	chaingql.Backend
	opts    ChaosOptions
	follows atomic.Uint64
	pages   atomic.Uint64
	calmed  chan struct{}
	calm    sync.Once

	mu     sync.Mutex // guards the fields below
	counts ChaosCounts
	floor  chaingql.Cursor
	epoch  string // of the chain that floor belongs to
}

// Chaos returns a [ChaosBackend] that wraps b. Except for [chaingql.Epocher], the
// ChaosBackend does not implement optional interfaces, such as [chaingql.BalanceBatcher],
// even if b does.
func Chaos(b chaingql.Backend, o ChaosOptions) *ChaosBackend {
	if o.Longest <= 0 {
		o.Longest = DefaultLongest
	}
	return &ChaosBackend{Backend: b, opts: o, calmed: make(chan struct{})}
}

// Epoch returns the epoch of the wrapped Backend, or "" if it has none.
func (c *ChaosBackend) Epoch() string {
	if e, ok := c.Backend.(chaingql.Epocher); ok {
		return e.Epoch()
	}
	return ""
}

// Calm turns off all faults permanently. Calls that are paused or hang continue. Follow
// calls that are running do not yield the blocks that they have omitted.
func (c *ChaosBackend) Calm() { c.calm.Do(func() { close(c.calmed) }) }

// Counts returns the numbers of calls and faults so far.
func (c *ChaosBackend) Counts() ChaosCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// count increments n, which is a field of c.counts.
func (c *ChaosBackend) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// Blocks calls Blocks of the wrapped Backend. Before that call it may pause, hang, return
// ErrChaos, or panic.
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
		if err := c.pause(ctx, d.duration()); err != nil {
			return nil, err
		}
	}
	if err := c.skipPruned(&q); err != nil {
		return nil, err
	}
	return c.Backend.Blocks(ctx, q)
}

// Follow yields the blocks of the wrapped Backend and adds the faults of [ChaosOptions].
func (c *ChaosBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	follow := c.Backend.Follow(ctx, after) // of the chain that the Backend has now
	return func(yield func(chaingql.Block, error) bool) {
		f := &chaosFollow{c: c, d: c.dice(c.follows.Add(1), followDice), ctx: ctx, yield: yield}
		c.count(&c.counts.Follows)
		defer f.end()
		if after < c.pruned() {
			f.fail(chaingql.ErrCursorTooOld)
			return
		}
		for b, err := range follow {
			if err == nil && b.Cursor <= c.pruned() {
				err = chaingql.ErrCursorTooOld // b was pruned before this Follow could yield it
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

// pause waits for d or until Calm is called. If ctx is done first, it returns ctx.Err().
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

// Each call has its own random sequence. One of these bits is set in the number of the
// sequence, so that calls of Follow and calls of Blocks have different sequences.
const (
	followDice = 1 << 62
	pageDice   = 1 << 63
)

// A dice is the random sequence of one call.
type dice struct {
	*rand.Rand
	c *ChaosBackend
}

// dice returns the random sequence of the n-th call. kind is followDice or pageDice.
func (c *ChaosBackend) dice(n, kind uint64) dice {
	return dice{rand.New(rand.NewPCG(c.opts.Seed, kind|n)), c}
}

// falls reports whether a fault with this rate occurs. It draws a random number even for
// a rate of zero, so that a change of one rate does not affect the other faults.
func (d dice) falls(rate float64) bool {
	thrown := d.Float64() < rate
	select {
	case <-d.c.calmed:
		return false
	default:
		return thrown
	}
}

// duration returns a random duration between a tenth of Longest and Longest.
func (d dice) duration() time.Duration {
	longest := d.c.opts.Longest
	return longest/10 + time.Duration(d.Int64N(int64(longest-longest/10)+1))
}
