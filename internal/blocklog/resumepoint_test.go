package blocklog

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// expectResumePoint expects that ResumePoint returns the cursor of a block, and ErrGap if gap is true.
func expectResumePoint(t *testing.T, what string, r *Reader[shardBlock], cursor int, gap bool) {
	t.Helper()
	got, _, err := r.ResumePoint()
	if got != cursorOf(cursor) || errors.Is(err, ErrGap) != gap || !gap && err != nil {
		t.Errorf("%s: got resume point %q and error %v, want %q and a gap: %v", what, got, err, cursorOf(cursor), gap)
	}
}

// reportedAt returns the gaps that were reported to a client whose last block or ErrGap had the cursor.
func (r *Reader[B]) reportedAt(cursor string) ReportedGaps {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	if r.lost == ErrGap && cursor != r.at.cursor {
		return 0 // the client has not received ErrGap yet
	}
	return r.reportedGaps(cursor)
}

func TestResumePointIsBeforeAGapDuringItsRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), master(2), base(2))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		all, masters, idle := joinAt(t, l, blocksOf(-1, 0)), joinAt(t, l, blocksOf(-1)), joinAt(t, l, blocksOf(0))
		early := joinAt(t, l, blocksOf(-1, 0), 1) // never reads
		i := blocksOf(-1)
		i.Key, i.Concerns = "panicking", func(int32) bool { panic("no idea") }
		bad := joinAt(t, l, i)
		f.lacks[5] = true
		f.growSkipped([]int{5}, base(3), master(3))
		synctest.Wait()
		expectNow(t, all, 6)
		expectNow(t, bad, 6)
		expectResumePoint(t, "before the gap is found", all, 6, false)
		f.grow(base(4)) // shows the gap
		time.Sleep(time.Second)
		fresh := joinAt(t, l, blocksOf(-1, 0))
		for range 2 {
			expectResumePoint(t, "a reader that received a block after the gap", all, 4, true)
			expectResumePoint(t, "a reader that received all blocks before the gap", idle, 4, true)
			expectResumePoint(t, "a reader whose Concerns panics", bad, 4, true)
			expectResumePoint(t, "a reader of another workchain", masters, 4, false) // it has not read block 6
			expectResumePoint(t, "a catching-up reader", early, 1, false)
			expectResumePoint(t, "a reader that started after the gap", fresh, 6, false)
			if err := l.Close(t.Context()); err != nil { // ends the search without a result
				t.Error(err)
			}
		}
		all.Close()
		if _, _, err := all.ResumePoint(); err != nil {
			t.Errorf("ResumePoint of a closed reader returned error %v, want nil", err)
		}
	})
}

func TestResumePointAgreesWithNextAfterTheRepair(t *testing.T) {
	for name, repaired := range map[string]bool{"repaired gap": true, "permanent gap": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1), base(1))
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				affected, unaffected := joinAt(t, l, blocksOf(-1, 0)), joinAt(t, l, blocksOf(0))
				f.lacks[3] = !repaired
				f.growSkipped([]int{3}, base(2), master(2))
				synctest.Wait()
				expectNow(t, affected, 4)
				f.grow(base(3))
				time.Sleep(repairTimeout + time.Second)
				synctest.Wait()
				expectResumePoint(t, "a reader that received a block after the gap", affected, 2, true)
				expectResumePoint(t, "a reader that received no block after the gap", unaffected, 2, !repaired)
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
				expectGap(t, affected, 2)
			})
		})
	}
}

// ResumePoint reported the gap to a client that left during the search. The client resumes during the search or after
// it.
func TestPermanentGapIsNotReportedAgainToClientThatLeftDuringRepair(t *testing.T) {
	for name, wait := range map[string]time.Duration{
		"resumed during the search": 0, "resumed after the search": repairTimeout + time.Second,
	} {
		for _, marked := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1), base(1))
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				r := joinAt(t, l, blocksOf(-1, 0))
				f.lacks[3] = true
				f.growSkipped([]int{3}, base(2), master(2))
				synctest.Wait()
				expectNow(t, r, 4)
				f.grow(base(3))
				time.Sleep(time.Second)
				cursor, reported, err := r.ResumePoint()
				if r.Close(); cursor != cursorOf(2) || !errors.Is(err, ErrGap) {
					t.Fatalf("got resume point %q and error %v, want block 2 and ErrGap", cursor, err)
				}
				time.Sleep(wait)
				i := blocksOf(-1, 0)
				if i.After = &cursor; marked {
					i.Reported = reported
				}
				again, err := l.Join(i)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				for range 20 {
					time.Sleep(time.Second)
					more, failed := takeAll(again)
					if got = append(got, more...); failed != nil {
						err = failed
						break
					}
				}
				if want := []int{4, 5}; marked && (err != nil || !slices.Equal(got, want)) {
					t.Errorf("%s: a client with ReportedGaps received blocks %d and error %v, want %d",
						name, got, err, want)
				}
				if !marked && !errors.Is(err, ErrGap) {
					t.Errorf("%s: a client without ReportedGaps received blocks %d and error %v, want ErrGap",
						name, got, err)
				}
				again.Close()
			})
		}
	}
}

// One of two missing blocks is stored. A client that left during the search, and resumes before it has ended, receives
// the stored block.
func TestClientThatLeftDuringRepairReceivesTheStoredBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf(-1, 0))
		f.lacks[4] = true
		f.growSkipped([]int{3, 4}, base(2), base(3), master(2))
		synctest.Wait()
		expectNow(t, r, 5)
		f.grow(base(4)) // shows that both are missing
		time.Sleep(time.Second)
		cursor, reported, err := r.ResumePoint()
		if r.Close(); cursor != cursorOf(2) || !errors.Is(err, ErrGap) {
			t.Fatalf("got resume point %q and error %v, want block 2 and ErrGap", cursor, err)
		}
		i := blocksOf(-1, 0)
		i.Reported = reported
		r = joinAt(t, l, i, 2)
		expectNow(t, r)
		time.Sleep(2 * repairTimeout)
		if item, err := r.Next(); err != nil || item.Cursor != cursorOf(3) {
			t.Fatalf("read block %q and error %v, want block 3", item.Cursor, err)
		}
		expectGap(t, r, 3)
		i.Reported = r.reportedAt(cursorOf(3))
		expectEventually(t, joinAt(t, l, i, 3), 5, 6)
	})
}

// The client joined without a cursor when the block before the gap was no longer the newest one.
func TestClientThatJoinedAfterTheGapsStartAndLeftDuringRepairReceivesTheStoredBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(base(1), master(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf(0))
		f.lacks[4] = true
		f.growSkipped([]int{3, 4}, base(2), base(3), master(2), base(4))
		time.Sleep(time.Second)
		cursor, reported, err := r.ResumePoint()
		if r.Close(); cursor != cursorOf(2) || !errors.Is(err, ErrGap) {
			t.Fatalf("got resume point %q and error %v, want block 2 and ErrGap", cursor, err)
		}
		i := blocksOf(0)
		i.Reported = reported
		r = joinAt(t, l, i, 2)
		expectNow(t, r)
		time.Sleep(2 * repairTimeout)
		if item, err := r.Next(); err != nil || item.Cursor != cursorOf(3) {
			t.Errorf("read block %q and error %v, want block 3", item.Cursor, err)
		}
	})
}

// ResumePoint reported the gap to two clients during the search. The first client resumes before the block is found,
// receives later blocks and leaves again: when the block is found, the gap must be reported to this client once more.
// The second client resumes after that, and receives the block.
func TestClientsThatLeftDuringRepairReceiveTheFoundBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.lacks[3] = true
		f.growSkipped([]int{3}, base(2), master(2))
		f.grow(base(3)) // shows the gap
		type position struct {
			after    string
			reported ReportedGaps
		}
		join := func(p position) *Reader[shardBlock] {
			t.Helper()
			i := blocksOf(-1, 0)
			i.After, i.Reported = &p.after, p.reported
			r, err := l.Join(i)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return r
		}
		reads := func(from position, want ...int) position {
			t.Helper()
			r := join(from)
			defer r.Close()
			for _, number := range want {
				item, err := r.Next()
				for range 5 {
					if err != nil || item.Payload != nil {
						break
					}
					synctest.Wait() // until a page has been read
					item, err = r.Next()
				}
				if err != nil || item.Cursor != cursorOf(number) {
					t.Fatalf("read block %q and error %v, want block %d", item.Cursor, err, number)
				}
				from = position{item.Cursor, item.Reported}
			}
			return from
		}
		first := join(position{cursorOf(2), 0})
		expectNow(t, first, 4)
		var sentBack position
		sentBack.after, sentBack.reported, _ = first.ResumePoint()
		first.Close()
		early := reads(sentBack, 4)
		f.set(func() { delete(f.lacks, 3) })
		time.Sleep(repairTimeout)

		again := join(early)
		expectGap(t, again, 2)
		again.Close()
		for _, p := range []position{sentBack, {cursorOf(2), again.reportedAt(cursorOf(2))}} {
			reads(reads(p, 3, 4), 5) // the gap is not reported again
		}
	})
}
