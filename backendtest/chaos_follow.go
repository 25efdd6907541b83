package backendtest

import (
	"context"
	"slices"

	"github.com/chaingql/chaingql"
)

// recentBlocks is the number of newest blocks from which Replay picks a block.
const recentBlocks = 8

// A chaosFollow is the state of one call of ChaosBackend.Follow.
type chaosFollow struct {
	c     *ChaosBackend
	d     dice
	ctx   context.Context
	yield func(chaingql.Block, error) bool

	recent []chaingql.Block // the last blocks yielded, ascending
	held   *chaingql.Block  // a block that Swap delays until the next block has been yielded
	left   bool             // the caller has left the loop
}

// next decides at random which faults occur at block b, applies them, and yields b unless
// a fault prevents it. It reports whether the Follow continues.
func (f *chaosFollow) next(b chaingql.Block) bool {
	o, counts := &f.c.opts, &f.c.counts
	stalls, fails, ends, panics := f.d.falls(o.Stall), f.d.falls(o.Fail), f.d.falls(o.End), f.d.falls(o.Panic)
	hole, swap := f.d.falls(o.Hole), f.d.falls(o.Swap)
	twice, again := f.d.falls(o.Duplicate), f.d.falls(o.Replay)
	if stalls {
		f.c.count(&counts.Stalls)
		if err := f.c.pause(f.ctx, f.d.duration()); err != nil {
			return f.fail(err)
		}
	}
	switch {
	case fails:
		return f.fail(ErrChaos)
	case ends:
		return false
	case panics:
		f.c.count(&counts.Panics)
		panic(ErrChaos)
	case hole:
		f.c.count(&counts.Holes)
		return true
	case swap && f.held == nil:
		f.held = &b
		return true
	}
	f.remember(b)
	if !f.say(b) {
		return false
	}
	if late := f.held; late != nil {
		f.held = nil
		f.c.count(&counts.Reordered)
		if !f.say(*late) {
			return false
		}
	}
	if twice {
		f.c.count(&counts.Duplicates)
		if !f.say(b) {
			return false
		}
	}
	if again && len(f.recent) > 1 {
		f.c.count(&counts.Reordered)
		return f.say(f.recent[f.d.IntN(len(f.recent)-1)])
	}
	return true
}

// remember adds b to the blocks that Replay may yield again.
func (f *chaosFollow) remember(b chaingql.Block) {
	if len(f.recent) == recentBlocks {
		f.recent = slices.Delete(f.recent, 0, 1)
	}
	f.recent = append(f.recent, b)
}

// say yields b and reports whether the caller is still in its loop.
func (f *chaosFollow) say(b chaingql.Block) bool {
	f.left = !f.yield(b, nil)
	return !f.left
}

// fail yields err, which ends the Follow, and returns false.
func (f *chaosFollow) fail(err error) bool {
	f.yield(chaingql.Block{}, err)
	return false
}

// end counts the Follow as a failure if neither its caller nor its context ended it. It is
// deferred, so that panics are counted too.
func (f *chaosFollow) end() {
	if !f.left && f.ctx.Err() == nil {
		f.c.count(&f.c.counts.Failures)
	}
}
