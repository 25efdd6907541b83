package blocklog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The client received blocks after the gap, left before the gap was found, and resumes after that.
func TestResumedClientIsSentBackBeforeALateGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), other(1))
		l := openShards(t, f, Options[shardBlock]{Window: 2})
		l.Start()
		synctest.Wait()
		f.growSkipped([]int{4}, base(2), master(2), master(3), other(2))
		synctest.Wait()
		f.grow(base(3), master(4))
		synctest.Wait()
		for at := 5; at <= 7; at++ {
			expectGap(t, joinAt(t, l, blocksOf(), at), 2)
			expectGap(t, joinAt(t, l, blocksOf(0), at), 2)
		}
		expectEventually(t, joinAt(t, l, blocksOf(-1), 5), 6, 9) // it lacks nothing
		expectEventually(t, joinAt(t, l, blocksOf(), 3), 4, 5, 6, 7, 8, 9)
		expectEventually(t, joinAt(t, l, blocksOf(), 4), 5, 6, 7, 8, 9)
		expectEventually(t, joinAt(t, l, blocksOf(), 8), 9)
		for i := range uint32(2 * maxLateGaps) { // each gap is kept for a limited time
			n := len(f.all)
			f.growSkipped([]int{n + 1}, base(4+2*i), master(5+i))
			f.grow(base(5 + 2*i))
			synctest.Wait()
			expectGap(t, joinAt(t, l, blocksOf(), n+2), n)
		}
		if n := len(*l.lateGaps.Load()); n != maxLateGaps {
			t.Errorf("%d late gaps are kept", n)
		}
	})
}

// Such a reader has no cursor, so the source cannot report that its blocks are gone.
func TestPrunedFirstBlocksAreAGapForReadersOfTheEmptyChain(t *testing.T) {
	for _, gone := range []int{0, 1, 9} { // of ten
		synctest.Test(t, func(t *testing.T) {
			f := newShardSource()
			l := openShards(t, f, Options[shardBlock]{Window: 3})
			r := joinAt(t, l, blocksOf())
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
				_, _ = takeAll(r) // asks for a page
				synctest.Wait()
				if got, err := takeAll(r); !errors.Is(err, ErrGap) || r.Cursor() != "" || len(got) > 0 || r.Mark("") == 0 {
					t.Errorf("%d gone: read %v, %v at %q", gone, got, err, r.Cursor())
				}
			} else {
				expectEventually(t, r, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
			}
		})
	}
}

// The reader is not live any more, and has received a block after the gap.
func TestLastingGapEndsCatchingUpReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{Window: 2})
		synctest.Wait()
		past, before := joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf())
		f.growSkipped([]int{3}, base(2), master(2), master(3))
		f.set(func() { f.lacks[3] = true })
		synctest.Wait()
		expectNow(t, past, 4, 5)
		f.paging = make(chan struct{}) // no page is returned
		f.grow(master(4), master(5), master(6), master(7))
		synctest.Wait()
		if item, err := past.Next(); item.Payload != nil || err != nil {
			t.Fatal(item, err)
		}
		if item, err := before.Next(); item.Payload != nil || err != nil {
			t.Fatal(item, err)
		}
		f.grow(base(3))
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectGap(t, past, 2)
		close(f.paging)
		synctest.Wait()
		time.Sleep(2 * repairTimeout)
		expectGap(t, before, 2)
		i := blocksOf()
		i.Mark = before.Mark(cursorOf(2))
		expectEventually(t, joinAt(t, l, i, 2), 4, 5, 6, 7, 8, 9, 10) // all stored blocks, as the client knows of the gap
	})
}

func TestResumedClientIsSentBackForEachOfManyGaps(t *testing.T) {
	const gaps = 5 * maxLateGaps
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{Window: 2})
		l.Start()
		synctest.Wait()
		var blocksAfter []int // a block after each gap, read before the gap was found
		for i := range uint32(gaps) {
			n := len(f.all)
			f.growSkipped([]int{n + 1}, base(2+2*i), master(2+i))
			f.grow(base(3 + 2*i))
			synctest.Wait()
			blocksAfter = append(blocksAfter, n+2)
		}
		if n := len(*l.lateGaps.Load()); n != maxLateGaps {
			t.Errorf("%d late gaps are kept", n)
		}
		exact := 0
		for _, at := range blocksAfter {
			r := joinAt(t, l, blocksOf(), at)
			_, err := takeAll(r)
			var lost *Lost
			if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || lost.Cursor > cursorOf(at-2) {
				t.Fatalf("after block %d: %v", at, err)
			}
			if lost.Cursor == cursorOf(at-2) {
				exact++
			}
			i := blocksOf()
			i.Mark = r.Mark(lost.Cursor)
			i.After = &lost.Cursor
			again, _ := l.Join(i)
			if _, err := takeAll(again); err != nil {
				t.Fatalf("reported again after %q: %v", lost.Cursor, err)
			}
			r.Close()
			again.Close()
		}
		if exact < maxLateGaps/2 {
			t.Errorf("only %d are sent back no further than needed", exact)
		}
		first := blocksOf()
		cursor := cursorOf(blocksAfter[0])
		first.After, first.Mark = &cursor, Mark(l.gaps.Load()<<1)
		f.growSkipped([]int{len(f.all) + 1}, base(2+2*gaps), master(2+gaps))
		f.grow(base(3 + 2*gaps))
		synctest.Wait()
		last := cursorOf(len(f.all) - 1)
		later := first
		later.After = &last
		r, _ := l.Join(later)
		if _, err := takeAll(r); !errors.Is(err, ErrGap) {
			t.Errorf("a client that was sent back before does not learn of a new gap: %v", err)
		}
		r, _ = l.Join(first)
		if _, err := takeAll(r); errors.Is(err, ErrGap) {
			t.Errorf("an old gap is reported again: %v", err)
		}
	})
}
