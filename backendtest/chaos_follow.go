package backendtest

import (
	"context"
	"slices"

	"github.com/chaingql/chaingql"
)

// recentBlocks is the number of blocks from which Replay chooses.
const recentBlocks = 8

// A chaosFollow is one Follow of a ChaosBackend.
type chaosFollow struct {
	c     *ChaosBackend
	d     dice
	ctx   context.Context
	yield func(chaingql.Block, error) bool

	recent []chaingql.Block // the newest last
	held   *chaingql.Block  // swapped: yielded after its successor
	left   bool             // the caller has left the loop
}

// next yields b with the faults drawn for it and reports whether the Follow continues.
func (f *chaosFollow) next(b chaingql.Block) bool {
	o, counts := &f.c.opts, &f.c.counts
	stalls, fails, ends, panics := f.d.falls(o.Stall), f.d.falls(o.Fail), f.d.falls(o.End), f.d.falls(o.Panic)
	hole, swap := f.d.falls(o.Hole), f.d.falls(o.Swap)
	twice, again := f.d.falls(o.Duplicate), f.d.falls(o.Replay)
	if stalls {
		f.c.count(&counts.Stalls)
		if err := f.c.pause(f.ctx, f.d.while()); err != nil {
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

func (f *chaosFollow) remember(b chaingql.Block) {
	if len(f.recent) == recentBlocks {
		f.recent = slices.Delete(f.recent, 0, 1)
	}
	f.recent = append(f.recent, b)
}

func (f *chaosFollow) say(b chaingql.Block) bool {
	f.left = !f.yield(b, nil)
	return !f.left
}

// fail yields the error that ends the Follow.
func (f *chaosFollow) fail(err error) bool {
	f.yield(chaingql.Block{}, err)
	return false
}

// end counts a failure. It is deferred, so that panics count too.
func (f *chaosFollow) end() {
	if !f.left && f.ctx.Err() == nil {
		f.c.count(&f.c.counts.Failures)
	}
}
