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
	for _, gone := range []int{0, 1, 9} { // of ten
		synctest.Test(t, func(t *testing.T) {
			f := newForest()
			l := openForest(t, f, Options[piece]{Window: 3})
			r := enter(t, l, of())
			synctest.Wait()
			for i := range uint32(10) {
				f.grow(master(i + 1))
			}
			f.set(func() {
				for n := 1; n <= gone; n++ {
					f.lacks[n] = true
				}
			})
			synctest.Wait()
			if gone > 0 {
				_, _ = taken(r) // asks for a page
				synctest.Wait()
				if got, err := taken(r); !errors.Is(err, ErrGap) || r.Cursor() != "" || len(got) > 0 || r.Mark("") == 0 {
					t.Errorf("%d gone: read %v, %v at %q", gone, got, err, r.Cursor())
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
		time.Sleep(2 * healPatience)
		hasGap(t, before, 2)
		i := of()
		i.Mark = before.Mark(cursorOf(2))
		hasAll(t, enter(t, l, i, 2), 4, 5, 6, 7, 8, 9, 10) // which is what there is, and it knows of the gap
	})
}

func TestClientThatComesBackIsToldOfEveryOneOfManyHoles(t *testing.T) {
	const holes = 5 * maxDoubts
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{Window: 2})
		l.Start()
		synctest.Wait()
		var behind []int // a block after each hole, read before the hole showed
		for i := range uint32(holes) {
			n := len(f.all)
			f.without([]int{n + 1}, base(2+2*i), master(2+i))
			f.grow(base(3 + 2*i))
			synctest.Wait()
			behind = append(behind, n+2)
		}
		if n := len(*l.doubts.Load()); n != maxDoubts {
			t.Errorf("%d holes are remembered", n)
		}
		exact := 0
		for _, at := range behind {
			r := enter(t, l, of(), at)
			_, err := taken(r)
			var lost *Lost
			if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || lost.Cursor > cursorOf(at-2) {
				t.Fatalf("after block %d: %v", at, err)
			}
			if lost.Cursor == cursorOf(at-2) {
				exact++
			}
			i := of()
			i.Mark = r.Mark(lost.Cursor)
			i.After = &lost.Cursor
			again, _ := l.Join(i)
			if _, err := taken(again); err != nil {
				t.Fatalf("told again after %q: %v", lost.Cursor, err)
			}
			r.Close()
			again.Close()
		}
		if exact < maxDoubts/2 {
			t.Errorf("only %d are sent back no further than needed", exact)
		}
		first := of()
		cursor := cursorOf(behind[0])
		first.After, first.Mark = &cursor, Mark(l.gaps.Load()<<1)
		f.without([]int{len(f.all) + 1}, base(2+2*holes), master(2+holes))
		f.grow(base(3 + 2*holes))
		synctest.Wait()
		last := cursorOf(len(f.all) - 1)
		later := first
		later.After = &last
		r, _ := l.Join(later)
		if _, err := taken(r); !errors.Is(err, ErrGap) {
			t.Errorf("a client that was sent back before is not told of a new hole: %v", err)
		}
		r, _ = l.Join(first)
		if _, err := taken(r); errors.Is(err, ErrGap) {
			t.Errorf("it is told again of an old one: %v", err)
		}
	})
}
