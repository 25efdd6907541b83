package blocklog

import (
	"testing"
	"testing/synctest"
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
