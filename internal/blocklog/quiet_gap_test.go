package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The log has had no block of the base chain when one is lost: only the stored one before it shows that.
func TestBlockOfAQuietShardThatIsLostIsTold(t *testing.T) {
	for name, lost := range map[string]bool{"lost": true, "stored": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(base(1))
				for n := range uint32(2 * recentBlocks) {
					f.grow(master(1 + n))
				}
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				start := len(f.all)
				r := enter(t, l, of())
				f.lacks[start+1] = lost
				f.without([]int{start + 1}, base(2), base(3))
				time.Sleep(healPatience + time.Second)
				synctest.Wait()
				if lost {
					hasGap(t, r, start)
				} else {
					has(t, r, start+1, start+2)
				}
			})
		})
	}
}

// Of two gaps that overlap, the one that begins later may show first. Its client still has to be told of the other one.
func TestBothOfTwoGapsThatOverlapAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), master(2), base(2), base(3), base(4))
		f.lacks[3], f.lacks[5] = true, true // 6 shows the second one
		for n := range uint32(150) {
			f.grow(other(1 + n))
		}
		f.grow(master(3)) // shows the first one, on the second page
		for n := range uint32(150) {
			f.grow(other(151 + n))
		}
		l := openForest(t, f, Options[piece]{Window: 5})
		synctest.Wait()
		for range 2 { // clients
			readPastBoth(t, f, l)
		}
	})
}

func readPastBoth(t *testing.T, f *forest, l *Log[piece]) {
	t.Helper()
	i, after := of(), cursorOf(1)
	for _, want := range []int{4, 1, 4, 0} { // it reads to the second one again
		i.After = &after
		r, err := l.Join(i)
		if err != nil {
			t.Fatal(err)
		}
		got, gap := readToEnd(t, r)
		if want == 0 && (gap != "" || len(got) != len(f.all)-5) || want > 0 && gap != cursorOf(want) {
			t.Fatalf("read %d blocks, gap after %q; want %d", len(got), gap, want)
		}
		after, i.Mark = gap, r.Mark(gap)
		r.Close()
	}
}
