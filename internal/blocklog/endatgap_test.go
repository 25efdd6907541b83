package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// readerPastGap returns a reader that matches blocks of the base chain. It is catching up and has passed the place of
// the missing blocks 3 and 4 of the base chain. It has passed only blocks of the masterchain, so it has received
// nothing.
func readerPastGap(t *testing.T) (*shardSource, *Log[shardBlock], *Reader[shardBlock]) {
	f := newShardSource()
	f.grow(master(1), base(1))
	l := openShards(t, f, Options[shardBlock]{Window: 5})
	limitHeld(l, 1)
	synctest.Wait()
	f.lacks[3], f.lacks[4] = true, true
	f.growSkipped([]int{3, 4}, base(2), base(3))
	for n := range uint32(120) {
		f.grow(master(2 + n))
	}
	synctest.Wait()
	i := blocksOf(0)
	i.Wake = xsync.WakeFunc(func() {})
	r := joinAt(t, l, i, 2)
	for r.Cursor() < cursorOf(60) {
		if got, err := takeAll(r); err != nil || len(got) > 0 {
			t.Fatalf("read blocks %d and error %v, want nothing", got, err)
		}
		synctest.Wait()
	}
	return f, l, r
}

// A reader that is catching up and has received no block after the gap receives all blocks that are found.
func TestReaderWithoutBlocksAfterAGapContinuesBeforeTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l, r := readerPastGap(t)
		// The page of this reader replaces the held page.
		if _, err := takeAll(joinAt(t, l, blocksOf(-1), 10)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(holdTime)
		synctest.Wait()
		f.set(func() { delete(f.lacks, 3) })
		f.grow(base(4))
		time.Sleep(repairTimeout + time.Second)
		if got, gap := readToEnd(t, r); !slices.Equal(got, []int{3}) || gap != cursorOf(3) {
			t.Errorf("read blocks %d and a gap after %q, want block 3 and a gap after it", got, gap)
		}
	})
}

func TestResumePointOfReaderWithoutBlocksAfterAGapIsBeforeTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, r := readerPastGap(t)
		f.grow(base(4))
		time.Sleep(time.Second)
		expectResumePoint(t, "the reader", r, 2, false)
	})
}

// Next has not been called since a gap ended the reader, and another missing block is found before Next is called.
func TestGapIsStillReportedAfterAnotherGapIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(Place{0, left, 1}, Place{0, right, 1}, master(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf(0))
		f.lacks[6] = true
		f.growSkipped([]int{4, 6},
			Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3}, master(2), Place{0, right, 4})
		time.Sleep(repairTimeout)
		synctest.Wait()
		f.grow(Place{0, left, 3}) // block 4 is found
		synctest.Wait()
		if l.Stats().GapsRepaired != 1 || l.Stats().EndedByGap != 1 {
			t.Errorf("got stats %+v, want one repaired gap and one ended reader", l.Stats())
		}
		expectGap(t, r, 3)
	})
}
