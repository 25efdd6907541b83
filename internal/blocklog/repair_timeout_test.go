package blocklog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The log searches for up to five seconds. Readers of stored blocks also wait for up to five seconds.
func TestMissingBlockStoredBeforeTheTimeoutIsFound(t *testing.T) {
	for _, in := range []string{"new blocks", "stored blocks"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1), master(2))
				f.lacks[3] = true
				l := openShards(t, f, Options[shardBlock]{})
				if in == "stored blocks" {
					f.grow(master(3), master(4))
				}
				synctest.Wait()
				r := joinAt(t, l, blocksOf(), 2)
				synctest.Wait()
				if _, err := takeAll(r); err != nil {
					t.Fatal(err)
				}
				if in == "new blocks" {
					f.growSkipped([]int{3}, master(3), master(4))
				}
				time.Sleep(repairTimeout - 2*repairInterval)
				f.set(func() { delete(f.lacks, 3) })
				time.Sleep(repairInterval)
				synctest.Wait()
				expectNow(t, r, 3, 4)
			})
		})
	}
}

// skipMergeOfHalves returns a reader of two halves that merge. Follow skips block 3 of the right half, and block 5,
// which follows the merge. Block 6 shows only a gap after block 4 of the left half. The blocks in lacks are not stored.
func skipMergeOfHalves(t *testing.T, lacks ...int) *Reader[shardBlock] {
	t.Helper()
	f := newShardSource()
	f.grow(Place{0, left, 5}, Place{0, right, 10})
	l := openShards(t, f, Options[shardBlock]{})
	r := joinAt(t, l, blocksOf())
	synctest.Wait()
	for _, n := range lacks {
		f.lacks[n] = true
	}
	f.growSkipped([]int{3, 5}, Place{0, right, 11}, Place{0, left, 6}, Place{0, wholeShard, 12}, Place{0, left, 13})
	return r
}

// failBefore makes each call of Before fail, until f.before is reset.
func (f *shardSource) failBefore() {
	f.set(func() {
		f.before = func(context.Context) ([]shardBlock, error) { return nil, errors.New("temporary") }
	})
}

func TestBlockOfTheOtherHalfBeforeAMissingMergeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := skipMergeOfHalves(t)
		synctest.Wait()
		expectNow(t, r, 3, 4, 5, 6)
	})
}

// Block 3 of the right half is not stored. The search for block 5, which follows a merge, notices that.
func TestClientIsSentBackToBeforeAGapOfTheOtherHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := skipMergeOfHalves(t, 3)
		time.Sleep(time.Second)
		expectNow(t, r, 4)
		expectResumePoint(t, "during the search", r, 2, true)
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectGap(t, r, 2)
	})
}

// A temporary failure of a check after a merge says nothing about blocks before the newest ones of the halves.
func TestFailedCheckAfterAMergeDoesNotSendClientsFurtherBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(Place{0, left, 5})
		f.recents = 1
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.grow(Place{0, right, 10}, Place{0, left, 6}, Place{0, right, 11})
		r := joinAt(t, l, blocksOf())
		synctest.Wait()
		expectNow(t, r, 2, 3, 4)
		f.failBefore()
		f.grow(Place{0, wholeShard, 12})
		time.Sleep(time.Second)
		expectResumePoint(t, "during the search", r, 3, true)
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectNow(t, r, 5)
		expectResumePoint(t, "while the block is unchecked", r, 3, true)
	})
}

// The log starts at block 4. A later check shows that block 3 is missing, because the first one failed.
func TestLaterCheckSendsClientsBackToBeforeAGapThatBeganBeforeTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), base(2), master(2))
		f.recents, f.lacks[3] = 1, true
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.failBefore()
		f.grow(base(3))
		synctest.Wait() // the search begins
		r := joinAt(t, l, blocksOf(0), 1)
		f.lacks[5] = true // so that the page does not show the gap
		expectEventually(t, r, 2)
		time.Sleep(repairTimeout)
		synctest.Wait()
		f.set(func() { f.before = nil })
		time.Sleep(time.Minute)
		f.grow(master(3))
		time.Sleep(time.Minute)
		synctest.Wait()
		expectGap(t, r, 2)
	})
}

// The log starts at block 4. Block 5 shows that block 3 is missing, which is before the start of the log.
func TestClientIsSentBackToBeforeAGapThatBeganBeforeTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), base(2), master(2))
		f.recents, f.lacks[3] = 1, true
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.grow(base(3))
		synctest.Wait() // the search begins
		r := joinAt(t, l, blocksOf(0), 1)
		f.lacks[5] = true // so that the page does not show the gap
		expectEventually(t, r, 2)
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectGap(t, r, 2)
	})
}
