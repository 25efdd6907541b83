package backendtest

import (
	"errors"
	"sync"

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
	if t.Append != nil { // a recorded source may have dropped its beginning
		t.follow("").expect(t.stored)
	}
	for _, c := range t.strangers() {
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

// followHasNoSeam appends while a Follow catches up: while it reads the stored blocks,
// and repeatedly around the moment when it switches to new ones.
func followHasNoSeam(t *trial) {
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
		appending.Add(1)
		next := t.coming[:3:3]
		var err error
		go func() {
			defer appending.Done()
			for i := range next {
				err = errors.Join(err, t.Append(next[i:i+1]))
			}
		}()
		due := append(t.stored[from+1:len(t.stored):len(t.stored)], next...)
		f.expect(due)
		appending.Wait()
		if err != nil {
			t.Fatalf("Harness.Append: %v", err)
		}
		t.stored = append(t.stored, next...)
		t.coming = t.coming[3:]
		f.stop()
	}
}

func severalFollows(t *trial) {
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
	all[0].stop() // which the others must not notice
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

// followedBlocksAreStored reads pages as soon as Follow yields a block, while
// Append may still be running.
func followedBlocksAreStored(t *trial) {
	t.fill(20, 40)
	f := t.follow(t.stored[19].Cursor)
	f.quiet() // so that it yields new blocks, not stored ones
	var appending sync.WaitGroup
	defer appending.Wait()
	for range 40 {
		before, next := t.stored[len(t.stored)-1], t.coming[:1:1]
		for _, q := range []chaingql.BlocksQuery{{Last: 1}, {First: 2, After: before.Cursor}} {
			t.expectPage(q) // a Backend must not remember these pages
		}
		var err error
		appending.Go(func() { err = t.Append(next) })
		f.expect(next)
		t.stored, t.coming = append(t.stored[:len(t.stored):len(t.stored)], next...), t.coming[1:]
		t.expectPage(chaingql.BlocksQuery{Last: 1})
		t.expectPage(chaingql.BlocksQuery{Last: 2})
		t.expectPage(chaingql.BlocksQuery{First: 2, After: before.Cursor})
		if appending.Wait(); err != nil {
			t.Fatalf("Harness.Append: %v", err)
		}
	}
}

// slowFollowDropsNothing appends more than a buffer holds while a live Follow is
// not read. The Follow must yield all blocks or end with an error.
func slowFollowDropsNothing(t *trial) {
	t.fill(20, 2501)
	f := t.follow(t.stored[18].Cursor)
	f.expect(t.stored[19:])
	f.quiet()
	t.grow(1)
	f.expect(t.stored[20:])
	t.grow(2500)
	for _, due := range t.stored[21:] {
		it := f.next("cursor \"" + string(due.Cursor) + "\", which is stored")
		if it.err != nil {
			break // and the next Follow has the rest
		}
		f.take(it.block, due)
	}
	rest := t.after(f.last)
	t.follow(f.last).expect(rest[:min(len(rest), 50)])
}

func cursorPastTheNewestWaits(t *trial) {
	t.fill(50, 50)
	past := t.coming[9].Cursor
	for _, q := range []chaingql.BlocksQuery{{First: 5, After: past}, {Last: 5, After: past}, {Last: 5, Before: past}} {
		t.expectPage(q)
	}
	f := t.follow(past)
	f.quiet()
	t.grow(10)
	f.quiet()
	t.expectPage(chaingql.BlocksQuery{Last: 5, Before: past})
	t.grow(40)
	f.expect(t.stored[60:])
}

func followThatIsLeftEnds(t *trial) {
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

	g := t.follow(f.last)
	g.expect(t.after(f.last))
	g.quiet()
	t.Interrupt()
	g.endsBecause("the source was interrupted", t.Patience)

	if t.Append != nil {
		t.grow(20) // while nobody follows
	}
	h := t.follow(g.last)
	h.expect(t.after(g.last))
	h.quiet()
}

// after returns the stored blocks past a cursor.
func (t *trial) after(c chaingql.Cursor) []chaingql.Block {
	return chaingql.PageOf(t.stored, chaingql.BlocksQuery{After: c, First: len(t.stored)})
}
