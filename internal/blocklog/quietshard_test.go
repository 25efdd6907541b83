package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The log has received no other block of the base chain when the block is lost. Only the stored block before the lost
// one shows the gap.
func TestGapInAQuietShardIsReported(t *testing.T) {
	for name, lost := range map[string]bool{"the block is lost": true, "the block is stored": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(base(1))
				for n := range uint32(2 * recentBlocks) {
					f.grow(master(1 + n))
				}
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				start := len(f.all)
				r := joinAt(t, l, blocksOf())
				f.lacks[start+1] = lost
				f.growSkipped([]int{start + 1}, base(2), base(3))
				time.Sleep(repairTimeout + time.Second)
				synctest.Wait()
				if lost {
					expectGap(t, r, start)
				} else {
					expectNow(t, r, start+1, start+2)
				}
			})
		})
	}
}

// skipQuietBlock returns a log of two shards and its only reader. Follow has skipped block 3, a block of the quiet
// shard, and the reader has received block 4.
func skipQuietBlock(t *testing.T) (*shardSource, *Log[shardBlock], *Reader[shardBlock]) {
	t.Helper()
	f := newShardSource()
	f.recents = 1
	f.grow(base(1), master(1))
	l := openShards(t, f, Options[shardBlock]{})
	synctest.Wait()
	r := joinAt(t, l, blocksOf())
	f.growSkipped([]int{3}, base(2), master(2))
	synctest.Wait()
	expectNow(t, r, 4)
	return f, l, r
}

// Follow skips a block of the quiet shard. A client that is catching up reads this block from a page and becomes live.
func TestGapInAQuietShardIsReportedAlthoughAnotherClientReceivedTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l, live := skipQuietBlock(t)
		expectEventually(t, joinAt(t, l, blocksOf(), 1), 2, 3, 4)
		f.grow(base(3))
		synctest.Wait()
		expectGap(t, live, 2)
	})
}

// A fault makes Follow report that the log's position is gone, although it is stored.
func TestGapInAQuietShardIsReportedAfterFollowRejectedThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, r := skipQuietBlock(t)
		f.set(func() { f.down, f.gone = errDown, 1 })
		synctest.Wait()
		f.set(func() { f.down = nil })
		f.grow(base(3))
		time.Sleep(time.Minute)
		expectGap(t, r, 2)
	})
}

// Follow skips two blocks of the quiet shard. The search for a block of another shard finds only the second one.
func TestGapInAQuietShardIsReportedAlthoughALaterBlockIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.recents = 1
		f.grow(base(1), Place{0, right, 2}, Place{0, left, 2})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.growSkipped([]int{4, 6, 7}, Place{0, right, 3}, Place{0, left, 3}, Place{0, left, 4}, Place{0, right, 4})
		synctest.Wait()
		expectNow(t, r, 5)
		f.grow(Place{0, left, 5}, Place{0, right, 5})
		synctest.Wait()
		expectGap(t, r, 3)
		expectEventually(t, joinAt(t, l, blocksOf(), 3), 4, 5, 6, 7, 8, 9)
	})
}

// The gap that begins later may be noticed first. A client that was sent back because of that gap must also be sent
// back because of the other one.
func TestBothOverlappingGapsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), master(2), base(2), base(3), base(4))
		f.lacks[3], f.lacks[5] = true, true // block 6 shows that block 5 is missing
		for n := range uint32(150) {
			f.grow(other(1 + n))
		}
		f.grow(master(3)) // shows that block 3 is missing, on the second page
		for n := range uint32(150) {
			f.grow(other(151 + n))
		}
		l := openShards(t, f, Options[shardBlock]{Window: 5})
		synctest.Wait()
		for range 2 { // for each of two clients
			readPastBothGaps(t, f, l)
		}
	})
}

// readPastBothGaps resumes after each reported gap, and checks the gaps and the number of blocks in the end.
func readPastBothGaps(t *testing.T, f *shardSource, l *Log[shardBlock]) {
	t.Helper()
	i, after := blocksOf(), cursorOf(1)
	for _, want := range []int{4, 1, 4, 0} { // the client reads up to the later gap again
		i.After = &after
		r, err := l.Join(i)
		if err != nil {
			t.Fatal(err)
		}
		got, gap := readToEnd(t, r)
		if want == 0 && (gap != "" || len(got) != len(f.all)-5) || want > 0 && gap != cursorOf(want) {
			t.Fatalf("read %d blocks and gap %q, want a gap after block %d", len(got), gap, want)
		}
		after, i.Reported = gap, r.reportedAt(gap)
		r.Close()
	}
}

// Follow skips a block of a quiet shard that the log does not know, and the merges after it are lost. The lost merges
// show that blocks are missing, but the gap began at the start of the log and not at the shards that it knows.
func TestGapBeginsAtTheStartOfTheLogIfAMergedShardIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.recents = 1
		f.grow(Place{0, leftLeft, 3}, Place{0, leftRight, 3}, Place{0, right, 2})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.lacks[7] = true
		f.growSkipped([]int{4, 7}, Place{0, leftLeft, 4}, Place{0, leftRight, 4}, Place{0, right, 3},
			Place{0, left, 5}, Place{0, wholeShard, 6})
		synctest.Wait()
		expectNow(t, r, 5, 6)
		time.Sleep(repairTimeout + time.Second)
		expectGap(t, r, 3)
	})
}
