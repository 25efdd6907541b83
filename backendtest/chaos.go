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

// ErrChaos is what a [ChaosBackend] fails with, and the value it panics with.
var ErrChaos = errors.New("backendtest: chaos")

// DefaultLongest is the default of ChaosOptions.Longest.
const DefaultLongest = 250 * time.Millisecond

// ChaosOptions say how badly a [ChaosBackend] behaves. Each rate is the chance,
// from 0 (never) to 1 (each time), that the fault befalls one block of a Follow
// or one call of Blocks. The zero value does no harm at all.
type ChaosOptions struct {
	// Seed picks the mischief. The n-th Follow, and the n-th call of Blocks,
	// meet the same faults in each run of one seed.
	Seed uint64

	// What befalls Follow, for each block that it has to yield.
	Fail      float64 // ends with ErrChaos in place of the block
	End       float64 // ends without an error, which the contract forbids
	Panic     float64 // panics with ErrChaos
	Stall     float64 // says nothing for a while before the block
	Hole      float64 // leaves the block out
	Duplicate float64 // yields the block twice
	Replay    float64 // yields one of the last few blocks again behind it
	Swap      float64 // yields the block only behind the one that follows it

	// What befalls Blocks, for each call.
	PageFail  float64 // returns ErrChaos
	PagePanic float64 // panics with ErrChaos
	PageSlow  float64 // takes a while to answer
	PageHang  float64 // does not answer before its context is done

	// Longest is how long a Stall or a PageSlow lasts at most; it lasts at
	// least a tenth of that. Default: [DefaultLongest].
	Longest time.Duration
}

// ChaosCounts tell what a [ChaosBackend] did.
type ChaosCounts struct {
	Follows    int // begun
	Failures   int // Follows that ended before their context, for whatever reason
	Panics     int // of the Failures
	Stalls     int
	Duplicates int
	Reordered  int // blocks that came behind a newer one: replayed, or swapped with it
	Holes      int // blocks that were left out

	Pages       int // calls of Blocks
	PagesFailed int // panics included
	PagesSlow   int
	PagesHung   int
}

// A ChaosBackend passes a Backend on and breaks its promises on the way: its
// Follow fails, stalls, repeats, reorders and leaves out, and its Blocks fails or
// hangs; and it can be told to forget, by [ChaosBackend.Prune]. The truth remains
// within reach: what Blocks does answer is right, and a
// Follow that is begun anew may yield what the last one left out. Balance is
// passed on as it is.
//
// It keeps the rest of the contract: it may be used concurrently, comes back
// when a call's context is done, and starts no goroutine. Make one with [Chaos].
type ChaosBackend struct {
	chaingql.Backend
	opts    ChaosOptions
	follows atomic.Uint64
	pages   atomic.Uint64
	calmed  chan struct{}
	calm    sync.Once

	mu     sync.Mutex // guards what follows
	counts ChaosCounts
	floor  chaingql.Cursor
}

// Chaos returns a [ChaosBackend] over b. What b offers beyond the methods of
// [chaingql.Backend] is not passed on.
func Chaos(b chaingql.Backend, o ChaosOptions) *ChaosBackend {
	if o.Longest <= 0 {
		o.Longest = DefaultLongest
	}
	return &ChaosBackend{Backend: b, opts: o, calmed: make(chan struct{})}
}

// Calm ends all mischief for good, also what is under way: stalled calls go on
// and answer. Blocks that were left out before stay left out of the Follows that
// are running.
func (c *ChaosBackend) Calm() { c.calm.Do(func() { close(c.calmed) }) }

// Counts tells what was done so far.
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

// Blocks answers as the Backend underneath does, if it answers.
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

// Follow yields what the Backend underneath does, with the faults that befall
// it.
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
				err = chaingql.ErrCursorTooOld // it was overtaken
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

// pause waits for a while, or until the mischief ends.
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

// Of one seed, Follows and calls of Blocks each have a row of dice.
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

// falls tells whether a fault befalls. The dice is thrown for a rate of zero
// too, so that one rate does not change what the others do.
func (d dice) falls(rate float64) bool {
	thrown := d.Float64() < rate
	select {
	case <-d.c.calmed:
		return false
	default:
		return thrown
	}
}

// while is how long something takes.
func (d dice) while() time.Duration {
	longest := d.c.opts.Longest
	return longest/10 + time.Duration(d.Int64N(int64(longest-longest/10)+1))
}
