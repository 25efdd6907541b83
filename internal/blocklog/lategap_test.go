package blocklog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The client received blocks after the gap, left before the gap was found, and resumes after it was found.
func TestClientThatResumesAfterALateGapIsSentBackBeforeIt(t *testing.T) {
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
		expectEventually(t, joinAt(t, l, blocksOf(-1), 5), 6, 9) // this client lacks no block
		expectEventually(t, joinAt(t, l, blocksOf(), 3), 4, 5, 6, 7, 8, 9)
		expectEventually(t, joinAt(t, l, blocksOf(), 4), 5, 6, 7, 8, 9)
		expectEventually(t, joinAt(t, l, blocksOf(), 8), 9)
		for i := range uint32(2 * maxLateGaps) { // the log keeps only the newest gaps exactly
			n := len(f.all)
			f.growSkipped([]int{n + 1}, base(4+2*i), master(5+i))
			f.grow(base(5 + 2*i))
			synctest.Wait()
			expectGap(t, joinAt(t, l, blocksOf(), n+2), n)
		}
		if n := len(*l.lateGaps.Load()); n != maxLateGaps {
			t.Errorf("the log keeps %d late gaps, want %d", n, maxLateGaps)
		}
	})
}

// A reader that joined when the chain was empty has no cursor, so the source cannot report that its blocks were pruned.
func TestReaderOfEmptyChainReceivesErrGapIfFirstBlocksWerePruned(t *testing.T) {
	for _, pruned := range []int{0, 1, 9} { // of ten blocks
		synctest.Test(t, func(t *testing.T) {
			f := newShardSource()
			l := openShards(t, f, Options[shardBlock]{Window: 3})
			r := joinAt(t, l, blocksOf())
			synctest.Wait()
			for i := range uint32(10) {
				f.grow(master(i + 1))
			}
			f.set(func() {
				for n := 1; n <= pruned; n++ {
					f.lacks[n] = true
				}
			})
			synctest.Wait()
			if pruned > 0 {
				_, _ = takeAll(r) // requests a page
				synctest.Wait()
				got, err := takeAll(r)
				if !errors.Is(err, ErrGap) || r.Cursor() != "" || len(got) > 0 || r.reportedAt("") == 0 {
					t.Errorf("%d blocks pruned: read blocks %v and error %v, and Cursor is %q; want only ErrGap",
						pruned, got, err, r.Cursor())
				}
			} else {
				expectEventually(t, r, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
			}
		})
	}
}

// The reader has fallen out of the window, and has received a block after the gap.
func TestPermanentGapEndsCatchingUpReader(t *testing.T) {
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
			t.Fatalf("Next returned %+v and error %v, want nothing yet", item, err)
		}
		if item, err := before.Next(); item.Payload != nil || err != nil {
			t.Fatalf("Next returned %+v and error %v, want nothing yet", item, err)
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
		i.Reported = before.reportedAt(cursorOf(2))
		expectEventually(t, joinAt(t, l, i, 2), 4, 5, 6, 7, 8, 9, 10) // all stored blocks: the gap has been reported
	})
}

func TestClientThatResumesIsSentBackForEachOfManyGaps(t *testing.T) {
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
			t.Errorf("the log keeps %d late gaps, want %d", n, maxLateGaps)
		}
		exact := 0
		for _, at := range blocksAfter {
			r := joinAt(t, l, blocksOf(), at)
			_, err := takeAll(r)
			var lost *Lost
			if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || lost.Cursor > cursorOf(at-2) {
				t.Fatalf("a reader after block %d received error %v, want a gap before it", at, err)
			}
			if lost.Cursor == cursorOf(at-2) {
				exact++
			}
			i := blocksOf()
			i.Reported = r.reportedAt(lost.Cursor)
			i.After = &lost.Cursor
			again, _ := l.Join(i)
			if _, err := takeAll(again); err != nil {
				t.Fatalf("a reader after %q with the reported gaps received error %v, want nil", lost.Cursor, err)
			}
			r.Close()
			again.Close()
		}
		if exact < maxLateGaps/2 {
			t.Errorf("only %d clients were sent back exactly to the gap, want at least %d", exact, maxLateGaps/2)
		}
		first := blocksOf()
		cursor := cursorOf(blocksAfter[0])
		first.After, first.Reported = &cursor, ReportedGaps(l.gaps.Load()<<1)
		f.growSkipped([]int{len(f.all) + 1}, base(2+2*gaps), master(2+gaps))
		f.grow(base(3 + 2*gaps))
		synctest.Wait()
		last := cursorOf(len(f.all) - 1)
		later := first
		later.After = &last
		r, _ := l.Join(later)
		if _, err := takeAll(r); !errors.Is(err, ErrGap) {
			t.Errorf("a client that was sent back before received error %v for a new gap, want ErrGap", err)
		}
		r, _ = l.Join(first)
		if _, err := takeAll(r); errors.Is(err, ErrGap) {
			t.Errorf("a client that knows a gap received error %v for it, want no ErrGap", err)
		}
	})
}
