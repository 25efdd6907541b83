package blocklog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A reader that had blocks from behind a hole, left before it showed, and comes back when it has.
func TestWhoComesBackFromBehindAHoleIsToldOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), other(1))
		l := openForest(t, f, Options[piece]{Window: 2})
		l.Start()
		synctest.Wait()
		f.without([]int{4}, base(2), master(2), master(3), other(2))
		synctest.Wait()
		f.grow(base(3), master(4))
		synctest.Wait()
		for at := 5; at <= 7; at++ {
			hasGap(t, enter(t, l, of(), at), 2)
			hasGap(t, enter(t, l, of(0), at), 2)
		}
		hasAll(t, enter(t, l, of(-1), 5), 6, 9) // it lacks nothing
		hasAll(t, enter(t, l, of(), 3), 4, 5, 6, 7, 8, 9)
		hasAll(t, enter(t, l, of(), 4), 5, 6, 7, 8, 9)
		hasAll(t, enter(t, l, of(), 8), 9)
		for i := range uint32(2 * maxDoubts) { // each hole is remembered for a while, and not for ever
			n := len(f.all)
			f.without([]int{n + 1}, base(4+2*i), master(5+i))
			f.grow(base(5 + 2*i))
			synctest.Wait()
			hasGap(t, enter(t, l, of(), n+2), n)
		}
		if n := len(*l.doubts.Load()); n != maxDoubts {
			t.Errorf("%d holes are remembered", n)
		}
	})
}

// It has no cursor yet, so the source cannot tell that blocks are gone.
func TestReaderOfAnEmptyChainIsToldWhenItsFirstBlocksAreGone(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newForest()
			l := openForest(t, f, Options[piece]{Window: 3})
			r := enter(t, l, of())
			synctest.Wait()
			for i := range uint32(10) {
				f.grow(master(i + 1))
			}
			f.set(func() { f.lacks[1] = gone })
			synctest.Wait()
			if gone {
				_, _ = taken(r) // asks for a page
				synctest.Wait()
				if _, err := taken(r); !errors.Is(err, ErrGap) || r.Cursor() != "" {
					t.Errorf("%v at %q", err, r.Cursor())
				}
			} else {
				hasAll(t, r, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
			}
		})
	}
}

// A reader in pages is live no more, and was handed what is behind the hole.
func TestHoleThatStaysEndsAReaderThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{Window: 2})
		synctest.Wait()
		past, before := enter(t, l, of()), enter(t, l, of())
		f.without([]int{3}, base(2), master(2), master(3))
		f.set(func() { f.lacks[3] = true })
		synctest.Wait()
		has(t, past, 4, 5)
		f.paging = make(chan struct{}) // nobody comes further
		f.grow(master(4), master(5), master(6), master(7))
		synctest.Wait()
		if item, err := past.Next(); item.Payload != nil || err != nil {
			t.Fatal(item, err)
		}
		if item, err := before.Next(); item.Payload != nil || err != nil {
			t.Fatal(item, err)
		}
		f.grow(base(3))
		time.Sleep(healPatience)
		synctest.Wait()
		hasGap(t, past, 2)
		close(f.paging)
		synctest.Wait()
		hasAll(t, before, 4, 5, 6, 7, 8, 9, 10) // which is what there is
	})
}
