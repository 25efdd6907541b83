package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// passing has a reader of the base chain pass, with blocks of the masterchain, the missing blocks 3 and 4 of its own.
func passing(t *testing.T) (*forest, *Log[piece], *Reader[piece]) {
	f := newForest()
	f.grow(master(1), base(1))
	l := openForest(t, f, Options[piece]{Window: 5})
	l.maxHeld = 1
	synctest.Wait()
	f.lacks[3], f.lacks[4] = true, true
	f.without([]int{3, 4}, base(2), base(3))
	for n := range uint32(120) {
		f.grow(master(2 + n))
	}
	synctest.Wait()
	i := of(0)
	i.Wake = func() {}
	r := enter(t, l, i, 2)
	for r.Cursor() < cursorOf(60) {
		if got, err := taken(r); err != nil || len(got) > 0 {
			t.Fatalf("read %d, %v", got, err)
		}
		synctest.Wait()
	}
	return f, l, r
}

// A reader that is behind, and has passed the gap only with blocks that do not match, is owed all that turns up.
func TestReaderThatOnlyPassedAGapReadsOnFromBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l, r := passing(t)
		if _, err := taken(enter(t, l, of(-1), 10)); err != nil { // its page takes the place of the other one
			t.Fatal(err)
		}
		synctest.Wait()
		f.set(func() { delete(f.lacks, 3) })
		f.grow(base(4))
		time.Sleep(healPatience + time.Second)
		if got, gap := readToEnd(t, r); !slices.Equal(got, []int{3}) || gap != cursorOf(3) {
			t.Errorf("read %d, gap after %q; want block 3 and a gap after it", got, gap)
		}
	})
}

func TestReaderThatOnlyPassedAGapStandsBeforeItDuringTheSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, r := passing(t)
		f.grow(base(4))
		time.Sleep(time.Second)
		stands(t, "it", r, 2, false)
	})
}
