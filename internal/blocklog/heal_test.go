package blocklog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func master(seqNo uint32) Place { return Place{-1, whole, seqNo} }
func base(seqNo uint32) Place   { return Place{0, whole, seqNo} }
func other(seqNo uint32) Place  { return Place{1, whole, seqNo} }

// told is what Events.Gap was told.
type told []string

func (s *told) gap(workchain int32, after string, healed bool, n int) {
	*s = append(*s, fmt.Sprint(workchain, " ", after, " ", healed, " ", n))
}

func TestHoleBehindWhichNothingHasGoneOutIsHealedUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		var gaps told
		var blocks []int
		l := openForest(t, f, Options[piece]{Events: Events[piece]{Gap: gaps.gap, Block: func(p piece) { blocks = append(blocks, p.number) }}})
		r := enter(t, l, of())
		synctest.Wait()
		f.without([]int{4, 5}, base(2), base(3), base(4), base(5), master(2))
		synctest.Wait()
		for n := 3; n <= 7; n++ {
			if item, err := r.Next(); err != nil || item.Cursor != cursorOf(n) || !item.Arrived.Equal(time.Now()) {
				t.Fatalf("%+v, %v; want block %d, received now", item, err, n)
			}
		}
		if s := l.Stats(); s.Holes != 1 || s.Healed != 1 || s.Gaps != 0 || s.Blocks != 5 || s.CaughtUp != 0 {
			t.Errorf("stats %+v", s)
		}
		if !slices.Equal(gaps, told{"0 000003 true 0"}) || !slices.Equal(blocks, []int{3, 4, 5, 6, 7}) || !slices.Equal(f.asked, []string{cursorOf(3)}) {
			t.Errorf("told %q and blocks %v, asked after %q", gaps, blocks, f.asked)
		}
	})
}

// Block 4 of the base chain is missing, and shows after two of the masterchain and one of another have gone out.
func TestLateHoleIsToldOnlyToThoseWhoHadWhatIsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), other(1))
		var gaps told
		l := openForest(t, f, Options[piece]{Events: Events[piece]{Gap: gaps.gap}})
		synctest.Wait()
		var had int
		masters, bases, all := enter(t, l, of(-1)), enter(t, l, of(0)), enter(t, l, of())
		slow, both := enter(t, l, of()), enter(t, l, of(0, -1))
		i := of(1)
		i.Wake = func() { had++ }
		others := enter(t, l, i)
		f.without([]int{4}, base(2), master(2), master(3), other(2))
		synctest.Wait()
		born := enter(t, l, of()) // is owed nothing from before it joined
		from5, from3 := enter(t, l, of(), 5), enter(t, l, of(0), 3)
		has(t, masters, 5, 6)
		has(t, bases)
		has(t, all, 5, 6, 7)
		has(t, from5, 6, 7)
		has(t, from3)
		if item, err := both.Next(); item.Cursor != cursorOf(5) || err != nil {
			t.Fatal(item, err)
		}
		f.grow(base(3), master(4))
		synctest.Wait()
		has(t, masters, 9)
		has(t, bases, 4, 8)
		hasGap(t, all, 3)
		hasGap(t, both, 3)
		has(t, slow, 4, 5, 6, 7, 8, 9)
		has(t, others, 7)
		has(t, born, 8, 9)
		hasGap(t, from5, 3) // it may have had 5 from here
		has(t, from3, 4, 8)
		again := enter(t, l, of(), 3)
		has(t, again, 4, 5, 6, 7, 8, 9)
		if len(f.pages) > 0 || !slices.Equal(gaps, told{"0 000002 true 3"}) {
			t.Errorf("pages after %q, told %q", f.pages, gaps)
		}
		if had > 2 {
			t.Errorf("a reader of another chain was woken %d times", had)
		}
		if s := l.Stats(); s.Holes != 1 || s.Healed != 1 || s.Gaps != 3 || s.Blocks != 6 || s.Behind != 3 {
			t.Errorf("stats %+v", s)
		}
		w := l.Window()
		for n, p := range w.Blocks {
			if p.number != n+2 {
				t.Errorf("the window has %v", w.Blocks)
			}
		}
		for _, r := range []*Reader[piece]{masters, bases, all, slow, both, others, born, from5, from3, again} {
			r.Close()
		}
		if s := l.Stats(); s.Behind != 0 || s.Feeds != 0 {
			t.Errorf("stats %+v when all have left", s)
		}
	})
}

func TestBlockFoundLateHasNotArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of(0))
		f.without([]int{3}, base(2), master(2), base(3))
		synctest.Wait()
		if item, _ := r.Next(); item.Cursor != cursorOf(3) || !item.Arrived.IsZero() {
			t.Errorf("%+v", item)
		}
		if item, _ := r.Next(); item.Cursor != cursorOf(5) || item.Arrived.IsZero() {
			t.Errorf("%+v", item)
		}
	})
}

func TestBlockFoundWhenItIsOutOfTheWindowIsReadFromTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{Window: 3})
		synctest.Wait()
		bases, all, slow := enter(t, l, of(0)), enter(t, l, of()), enter(t, l, of())
		f.without([]int{3}, base(2), master(2), master(3))
		synctest.Wait()
		has(t, all, 4, 5)
		f.grow(master(4), master(5), master(6))
		synctest.Wait()
		has(t, all, 6, 7, 8)
		f.grow(base(3))
		synctest.Wait()
		hasAll(t, bases, 3, 9)
		hasGap(t, all, 2)
		hasAll(t, slow, 3, 4, 5, 6, 7, 8, 9)
		if len(f.pages) == 0 || len(l.Window().Blocks) != 3 {
			t.Errorf("pages after %q, window %+v", f.pages, l.Window())
		}
	})
}

func TestBlockFoundThatIsFromBeforeTheWindowIsNotPutIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		f.lacks[5] = true
		f.without([]int{3, 5}, base(2), master(2), master(3), master(4)) // of which 5 stays missing
		time.Sleep(healPatience)
		bases := enter(t, l, of(0), 2)
		f.grow(other(1), base(3))
		synctest.Wait()
		if w := l.Window(); w.After != cursorOf(6) || len(w.Blocks) != 2 || w.Blocks[0].number != 7 || l.Stats().Healed != 1 {
			t.Errorf("window %+v, stats %+v", w, l.Stats())
		}
		hasAll(t, bases, 3, 8)
	})
}

func TestReaderOfPagesFromBeforeABlockTurnedUpReadsThemAgain(t *testing.T) {
	for _, took := range []int{0, 1} { // blocks from behind the hole
		synctest.Test(t, func(t *testing.T) {
			f := newForest()
			for n := range 10 {
				f.grow(master(uint32(n + 1)))
			}
			f.grow(base(1))
			l := openForest(t, f, Options[piece]{Window: 2})
			synctest.Wait()
			f.lacks[12] = true
			f.without([]int{12}, base(2), master(11), master(12), master(13), master(14))
			synctest.Wait()
			paged, waiting, asking := enter(t, l, of(), 10), enter(t, l, of(), 9), enter(t, l, of(), 8)
			has(t, paged)
			has(t, waiting)
			synctest.Wait()
			has(t, asking) // its page is being asked for
			f.set(func() { f.paging = make(chan struct{}) })
			for range 1 + took {
				if _, err := paged.Next(); err != nil { // it has a page without block 12
					t.Fatal(err)
				}
			}
			late := enter(t, l, of(), 7)
			has(t, late)
			synctest.Wait()
			f.set(func() { delete(f.lacks, 12) })
			f.grow(base(3))
			synctest.Wait()
			has(t, late) // and waits for the same page again
			close(f.paging)
			f.set(func() { f.paging = nil })
			if took == 0 {
				hasAll(t, paged, 12, 13, 14, 15, 16, 17)
			} else {
				hasGap(t, paged, 11)
			}
			hasAll(t, waiting, 10, 11, 12, 13, 14, 15, 16, 17)
			hasAll(t, asking, 9, 10, 11, 12, 13, 14, 15, 16, 17)
			hasAll(t, late, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
		})
	}
}

func TestReaderWhoHasHadTheBlockFromAPageGoesOnBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		for n := range 10 {
			f.grow(master(uint32(n + 1)))
		}
		f.grow(base(1))
		l := openForest(t, f, Options[piece]{Window: 2})
		synctest.Wait()
		f.without([]int{12}, base(2), master(11), master(12), master(13), master(14))
		synctest.Wait()
		r := enter(t, l, of(), 11)
		has(t, r)
		synctest.Wait()
		if item, err := r.Next(); item.Cursor != cursorOf(12) || err != nil {
			t.Fatal(item, err)
		}
		f.grow(base(3))
		synctest.Wait()
		hasAll(t, r, 13, 14, 15, 16, 17)
	})
}

// While a missing block is looked for and put in, readers join, with keys that are there and new ones, and one is in
// the midst of its search of the window.
func TestReadersWhoJoinOrSearchWhileABlockIsPutInGetItInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		var born []*Reader[piece]
		wake := make(chan struct{})
		i := of(0)
		i.Eval = func(p piece) []byte {
			if p.number == 3 && born == nil {
				for _, key := range []string{"new", i.Key} {
					j := of()
					j.Key = key
					for range 2 {
						born = append(born, enter(t, l, j, 2))
					}
				}
				has(t, born[0], 4, 5) // it is placed, and has had what is behind the hole
			}
			return of(0).Eval(p)
		}
		bases := enter(t, l, i)
		searching := of()
		searching.Key = "searching"
		searching.Eval = func(p piece) []byte {
			if p.number == 4 {
				<-wake
			}
			return of().Eval(p)
		}
		f.without([]int{3}, base(2), master(2), master(3))
		synctest.Wait()
		r := enter(t, l, searching, 2)
		var got []int
		done := make(chan error)
		go func() {
			for len(got) < 4 {
				more, err := taken(r)
				if got = append(got, more...); err != nil {
					done <- err
					return
				}
				time.Sleep(time.Second)
			}
			done <- nil
		}()
		synctest.Wait() // in the midst of block 4
		f.grow(base(3))
		synctest.Wait()
		has(t, bases, 3, 6)
		hasGap(t, born[0], 2)
		has(t, born[1], 3, 4, 5, 6)
		has(t, born[2], 3, 6)
		has(t, born[3], 3, 6)
		close(wake)
		if err := <-done; err != nil || !slices.Equal(got, []int{3, 4, 5, 6}) {
			t.Errorf("read %v, %v", got, err)
		}
	})
}

func TestEvalThatPanicsOnABlockFoundLateEndsItsReaderBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		i := of(0)
		i.Eval = func(p piece) []byte {
			if p.number == 3 {
				panic(errDown)
			}
			return of(0).Eval(p)
		}
		r, fine := enter(t, l, i), enter(t, l, of())
		f.without([]int{3}, base(2), master(2), base(3))
		synctest.Wait()
		_, err := r.Next()
		var lost *Lost
		if !errors.As(err, &lost) || !errors.Is(err, errDown) || lost.Cursor != cursorOf(2) {
			t.Errorf("%v; want the panic, before block 3", err)
		}
		has(t, fine, 3, 4, 5)
	})
}

// A gap is told where a reader has not asked yet, and another block turns up before that.
func TestGapThatWasNotReadYetIsToldBeforeALaterFindToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(Place{0, left, 1}, Place{0, right, 1}, master(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of(0))
		f.lacks[6] = true
		f.without([]int{4, 6}, Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3}, master(2), Place{0, right, 4})
		time.Sleep(healPatience)
		synctest.Wait()
		f.grow(Place{0, left, 3}) // block 4 is found
		synctest.Wait()
		if l.Stats().Healed != 1 || l.Stats().Gaps != 1 {
			t.Errorf("stats %+v", l.Stats())
		}
		hasGap(t, r, 3)
	})
}
