package blocklog

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func stands(t *testing.T, what string, r *Reader[piece], cursor int, gap bool) {
	t.Helper()
	got, _, err := r.Standing()
	if got != cursorOf(cursor) || errors.Is(err, ErrGap) != gap || !gap && err != nil {
		t.Errorf("%s stands at %q, %v; want %q, gap %v", what, got, err, cursorOf(cursor), gap)
	}
}

func TestStandingIsBeforeAGapFromWhenTheSearchForItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), master(2), base(2))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		all, masters, idle := enter(t, l, of(-1, 0)), enter(t, l, of(-1)), enter(t, l, of(0))
		early := enter(t, l, of(-1, 0), 1) // has not read yet
		i := of(-1)
		i.Key, i.Concerns = "panicking", func(int32) bool { panic("no idea") }
		bad := enter(t, l, i)
		f.lacks[5] = true
		f.without([]int{5}, base(3), master(3))
		synctest.Wait()
		has(t, all, 6)
		has(t, bad, 6)
		stands(t, "before the gap shows, it", all, 6, false)
		f.grow(base(4)) // shows it
		time.Sleep(time.Second)
		fresh := enter(t, l, of(-1, 0))
		for range 2 {
			stands(t, "one that has had a block from after it", all, 4, true)
			stands(t, "one that has had all it wants", idle, 4, true)
			stands(t, "one whose Concerns panics", bad, 4, true)
			stands(t, "one that it does not concern", masters, 4, false) // it has not read 6
			stands(t, "one that catches up", early, 1, false)
			stands(t, "one that began after it", fresh, 6, false)
			if err := l.Close(t.Context()); err != nil { // what is being searched for stays missing
				t.Error(err)
			}
		}
		all.Close()
		if _, _, err := all.Standing(); err != nil {
			t.Error("one that is closed:", err)
		}
	})
}

func TestStandingAgreesWithNextAfterTheSearch(t *testing.T) {
	for name, repaired := range map[string]bool{"repaired": true, "given up": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(master(1), base(1))
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				had, hadNot := enter(t, l, of(-1, 0)), enter(t, l, of(0))
				f.lacks[3] = !repaired
				f.without([]int{3}, base(2), master(2))
				synctest.Wait()
				has(t, had, 4)
				f.grow(base(3))
				time.Sleep(healPatience + time.Second)
				synctest.Wait()
				stands(t, "one that has had a block from after the gap", had, 2, true)
				stands(t, "one that has not", hadNot, 2, !repaired)
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
				hasGap(t, had, 2)
			})
		})
	}
}

// A client that left during the search, and was told of the gap then, comes back during it or after it.
func TestClientThatLeftDuringTheSearchIsNotToldOfAGapThatStaysAgain(t *testing.T) {
	for name, wait := range map[string]time.Duration{"during it": 0, "after it": healPatience + time.Second} {
		for _, marked := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(master(1), base(1))
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				r := enter(t, l, of(-1, 0))
				f.lacks[3] = true
				f.without([]int{3}, base(2), master(2))
				synctest.Wait()
				has(t, r, 4)
				f.grow(base(3))
				time.Sleep(time.Second)
				cursor, mark, err := r.Standing()
				if r.Close(); cursor != cursorOf(2) || !errors.Is(err, ErrGap) {
					t.Fatalf("stands at %q, %v", cursor, err)
				}
				time.Sleep(wait)
				i := of(-1, 0)
				if i.After = &cursor; marked {
					i.Mark = mark
				}
				again, err := l.Join(i)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				for range 20 {
					time.Sleep(time.Second)
					more, failed := taken(again)
					if got = append(got, more...); failed != nil {
						err = failed
						break
					}
				}
				if want := []int{4, 5}; marked && (err != nil || !slices.Equal(got, want)) {
					t.Errorf("%s: a client with its mark has had %d, %v", name, got, err)
				}
				if !marked && !errors.Is(err, ErrGap) {
					t.Errorf("%s: a client without its mark has had %d, %v", name, got, err)
				}
				again.Close()
			})
		}
	}
}

// Both were told of the gap during the search. One comes back meanwhile, reads on without the missing block and leaves
// again: when the block turns up, it has to be told once more. The other one comes back then, and has it.
func TestClientsThatLeftDuringTheSearchHaveABlockThatTurnsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		f.lacks[3] = true
		f.without([]int{3}, base(2), master(2))
		f.grow(base(3)) // shows it
		type place struct {
			after string
			mark  Mark
		}
		join := func(p place) *Reader[piece] {
			t.Helper()
			i := of(-1, 0)
			i.After, i.Mark = &p.after, p.mark
			r, err := l.Join(i)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return r
		}
		reads := func(from place, want ...int) place {
			t.Helper()
			r := join(from)
			defer r.Close()
			for _, number := range want {
				item, err := r.Next()
				if err != nil || item.Cursor != cursorOf(number) {
					t.Fatalf("read %q, %v; want block %d", item.Cursor, err, number)
				}
				from = place{item.Cursor, item.Mark}
			}
			return from
		}
		first := join(place{cursorOf(2), 0})
		has(t, first, 4)
		var told place
		told.after, told.mark, _ = first.Standing()
		first.Close()
		early := reads(told, 4)
		f.set(func() { delete(f.lacks, 3) })
		time.Sleep(healPatience)

		again := join(early)
		hasGap(t, again, 2)
		again.Close()
		for _, p := range []place{told, {cursorOf(2), again.Mark(cursorOf(2))}} {
			reads(reads(p, 3, 4), 5) // and is not told again
		}
	})
}
