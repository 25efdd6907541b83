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

// followHasNoSeam appends while a Follow catches up: behind its back while it
// reads the stored blocks, and, again and again, around the moment at which it
// turns to the new ones.
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

func followedBlocksAreStored(t *trial) {
	t.fill(20, 20)
	f := t.follow(t.stored[19].Cursor)
	for range 20 {
		t.grow(1)
		f.expect(t.stored[len(t.stored)-1:])
		t.expectPage(chaingql.BlocksQuery{Last: 2})
	}
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

func overtakenFollowDoesNotSkip(t *trial) {
	t.fill(100, 0)
	all := t.stored
	f := t.follow(all[0].Cursor)
	f.expect(all[1:10])
	t.pruneBelow(len(all) * 3 / 5)
	for _, due := range all[10:] {
		it := f.next("a block or ErrCursorTooOld")
		if it.err != nil {
			if !errors.Is(it.err, chaingql.ErrCursorTooOld) {
				t.Fatalf("%s ended after cursor %q, when the block after it was pruned, with %v: it must be ErrCursorTooOld", f.name, f.last, it.err)
			}
			return
		}
		f.take(it.block, due)
	}
}
