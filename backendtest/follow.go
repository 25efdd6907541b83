package backendtest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

func followYieldsStoredBlocks(t *trial) {
	t.fill(300, 0)
	n := len(t.stored)
	for _, i := range []int{n - 1, n / 2, 0} {
		f := t.follow(t.stored[i].Cursor)
		f.expect(t.stored[i+1:])
		f.quiet()
		f.stop()
	}
	if t.Append != nil { // if it is nil, the source may have pruned blocks before it was opened
		t.follow("").expect(t.stored)
	}
	for _, c := range t.unusedCursors() {
		if rest := t.after(c); len(rest) > 0 && len(rest) < n/2 { // between two blocks
			t.follow(c).expect(rest)
			break
		}
	}
}

func followOfEmptyChainWaits(t *trial) {
	t.fill(0, 20)
	f := t.follow("")
	f.quiet()
	t.grow(1)
	f.expect(t.stored)
	t.grow(19)
	f.expect(t.stored[1:])
	f.quiet()
}

// followSkipsNoNewBlock appends blocks while a Follow yields the stored blocks. It also
// repeatedly appends blocks at about the moment when a Follow has yielded the last stored
// block and starts to wait for new ones.
func followSkipsNoNewBlock(t *trial) {
	t.fill(300, 300)
	f := t.follow("")
	f.expect(t.stored[:10])
	t.grow(50)
	f.expect(t.stored[10:290])
	t.grow(30)
	f.expect(t.stored[290:])
	t.grow(1)
	f.expect(t.stored[380:])
	f.quiet()
	f.stop()
	for range 40 {
		from := len(t.stored) - 3
		f := t.follow(t.stored[from].Cursor)
		var appending sync.WaitGroup
		next := t.coming[:3:3]
		var err error
		appending.Go(func() {
			for i := range next {
				err = errors.Join(err, t.Append(next[i:i+1]))
			}
		})
		due := append(t.stored[from+1:len(t.stored):len(t.stored)], next...)
		f.expect(due)
		appending.Wait()
		if err != nil {
			t.Fatalf("Harness.Append failed: %v", err)
		}
		t.stored = append(t.stored, next...)
		t.coming = t.coming[3:]
		f.stop()
	}
}

func concurrentFollows(t *trial) {
	t.fill(200, 40)
	n := len(t.stored)
	from := []int{0, n / 3, n - 2, n - 1}
	var all []*reading
	for _, i := range from {
		all = append(all, t.follow(t.stored[i].Cursor))
	}
	for j := len(all) - 1; j >= 0; j-- {
		all[j].expect(t.stored[from[j]+1:])
	}
	all[0].stop() // must not affect the other Follow calls
	if t.Append != nil {
		t.grow(40)
		for _, f := range all[1:] {
			f.expect(t.stored[n:])
		}
	}
	for _, f := range all[1:] {
		f.quiet()
	}
}

// followedBlocksAreStored reads pages as soon as Follow has yielded a block. The Append of that block may still be
// running then. To be fast with a slow Backend, each round tries another filter. Every second round reads the pages in
// reverse order, because the last one is read a little later than the block was yielded.
func followedBlocksAreStored(t *trial) {
	round := 0
	t.growFollowed(func(next []chaingql.Block) func() {
		newest := chaingql.BlocksQuery{Last: 1}
		rest := chaingql.BlocksQuery{First: 2, After: t.stored[len(t.stored)-1].Cursor}
		filter := 1 + round%3 // 0 is the query without a filter
		pages := []chaingql.BlocksQuery{
			newest, {Last: 2}, rest, filteredBy(next[0], newest)[filter], filteredBy(next[0], rest)[filter],
		}
		if round++; round%2 == 0 {
			slices.Reverse(pages)
		}
		t.expectPages(pages...) // a Backend must not remember these pages
		return func() { t.expectPages(pages...) }
	})
}

// growFollowed appends 40 blocks, one at a time, or fewer if the Backend is slow. It calls
// before with each block that is not stored yet, and calls the function that before returns
// as soon as a Follow has yielded the block. The Append of that block may still be running then.
func (t *trial) growFollowed(before func(next []chaingql.Block) (after func())) {
	t.fill(20, 40)
	f := t.follow(t.stored[19].Cursor)
	f.quiet() // Follow now waits, so the blocks below are new ones and not stored ones
	var appending sync.WaitGroup
	defer appending.Wait()
	for range t.rounds(40, 5) {
		next := t.coming[:1:1]
		after := before(next)
		var err error
		appending.Go(func() { err = t.Append(next) })
		f.expect(next)
		t.stored, t.coming = append(t.stored[:len(t.stored):len(t.stored)], next...), t.coming[1:]
		after()
		if appending.Wait(); err != nil {
			t.Fatalf("Harness.Append failed: %v", err)
		}
	}
}

// noCallWaitsForFollow makes calls while a Follow waits until its caller takes a stored block, and then a new one. It
// does not read on afterwards, because Follow may end with an error if its caller is slow.
func noCallWaitsForFollow(t *trial) {
	t.fill(60, 2)
	calls, n := t.calls(), len(t.stored)
	busyAfter := func(f *reading, b chaingql.Block) {
		f.expect([]chaingql.Block{b})
		time.Sleep(quietTime) // Follow now waits until its caller takes the next block
		t.recovers(calls, "while the caller of a Follow was busy")
		f.stop()
	}
	busyAfter(t.follow(t.stored[0].Cursor), t.stored[1])
	if t.Append != nil {
		f := t.follow(t.stored[n-1].Cursor)
		f.quiet()
		t.grow(2)
		busyAfter(f, t.stored[n])
	}
}

// slowFollowDropsNothing appends more blocks than a Backend is likely to buffer while the
// rule does not read from a Follow. The Follow must yield all blocks or end with an error.
func slowFollowDropsNothing(t *trial) {
	t.fill(20, 4301)
	f := t.follow(t.stored[18].Cursor)
	f.expect(t.stored[19:])
	f.quiet()
	t.grow(1)
	f.expect(t.stored[20:])
	t.grow(4300)
	for _, due := range t.stored[21:] {
		it := f.next("cursor \"" + string(due.Cursor) + "\", which is stored")
		if it.err != nil {
			break // the next Follow must yield the other blocks
		}
		f.take(it.block, due)
	}
	rest := t.after(f.last)
	t.follow(f.last).expect(rest[:min(len(rest), 50)])
}

func followFromFutureCursorWaits(t *trial) {
	t.fill(50, 50)
	past := t.coming[9].Cursor
	t.expectPages([]chaingql.BlocksQuery{{First: 5, After: past}, {Last: 5, After: past}, {Last: 5, Before: past}}...)
	f := t.follow(past)
	f.quiet()
	t.grow(10)
	f.quiet()
	t.expectPages(chaingql.BlocksQuery{Last: 5, Before: past})
	t.grow(40)
	f.expect(t.stored[60:])
}

func followReturnsAfterBreak(t *trial) {
	t.fill(100, 0)
	f := t.follow(t.stored[0].Cursor)
	f.expect(t.stored[1:3])
	f.leave()
}

func interruptedFollowCanBeResumed(t *trial) {
	t.fill(100, 20)
	f := t.follow(t.stored[0].Cursor)
	f.expect(t.stored[1:20])
	t.Interrupt()
	f.endsBecause("the source was interrupted", t.Patience)
	t.recovers(t.calls(), "after the source was interrupted")

	t.follow(f.last).expect(t.after(f.last))
	g := t.follow(t.stored[20].Cursor) // not the newest block: when Follow yields one, it has connected
	g.expect(t.stored[21:])
	g.quiet()
	t.Interrupt()
	g.endsBecause("the source was interrupted", t.Patience)

	if t.Append != nil {
		t.grow(20) // while no Follow is running
	}
	h := t.follow(g.last)
	h.expect(t.after(g.last))
	h.quiet()
}

// after returns the stored blocks after the cursor c.
func (t *trial) after(c chaingql.Cursor) []chaingql.Block {
	return chaingql.PageOf(t.stored, chaingql.BlocksQuery{After: c, First: len(t.stored)})
}
