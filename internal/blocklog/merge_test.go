package blocklog

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The last block of the half with the lower number is missing. The number of the merged shard does not show that.
func TestBlockMissingBeforeAMergeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.growSkipped([]int{5}, Place{0, left, 3}, base(4), base(5))
		synctest.Wait()
		expectNow(t, r, 5, 6, 7)
		if s := l.Stats(); s.GapsFound != 1 || s.GapsRepaired != 1 || s.EndedByGap != 0 {
			t.Errorf("got stats %+v, want one repaired gap that ended no reader", s)
		}
		if len(f.asked) != 0 || len(f.looked) > 3 {
			t.Errorf("Between was called after %q and Before %d times, want 0 and at most 3", f.asked, len(f.looked))
		}
	})
}

func TestMergeWithoutMissingBlocksIsNotAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		gap := func(int32, string, bool, int) { t.Error("a gap was reported, want none") }
		l := openShards(t, f, Options[shardBlock]{Events: Events[shardBlock]{Gap: gap}})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.grow(base(3), base(4))
		synctest.Wait()
		expectNow(t, r, 4, 5)
		if s := l.Stats(); s.GapsFound != 0 || !l.Window().Live {
			t.Errorf("stats are %+v and the window is %+v, want no gap and a live window", s, l.Window())
		}
		if f.most > 2 {
			t.Errorf("Before was called for %d blocks, want at most 2: earlier ones may be far back", f.most)
		}
	})
}

func TestMergeIsAcceptedAndLoggedIfItsGapCheckFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown }
		logger, text := logged()
		l := openShards(t, f, Options[shardBlock]{Logger: logger})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.grow(base(3), base(4))
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectNow(t, r, 4, 5)
		if s := l.Stats(); s.GapsFound != 0 || s.EndedByGap != 0 {
			t.Errorf("got stats %+v, want no gap", s)
		}
		if !strings.Contains(text.String(), "level=WARN msg=\"gap check failed; retrying\"") {
			t.Errorf("want a warning about the failed check in the log:\n%s", text)
		}
	})
}

func TestBlockSkippedInAnUnknownShardIsFound(t *testing.T) {
	for name, tt := range map[string]struct{ quiet, skipped, next Place }{
		"the next block is in the same shard": {base(7), base(8), base(9)},
		"the shard splits":                    {base(7), base(8), Place{0, left, 9}},
		"the shard merges":                    {Place{0, right, 7}, Place{0, right, 8}, base(9)},
		"older blocks are pruned":             {Place{}, base(8), base(9)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				if tt.quiet != (Place{}) {
					f.grow(tt.quiet)
				}
				for i := range uint32(3 * recentBlocks) {
					f.grow(master(i + 1))
				}
				n := len(f.all)
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				all, bases := joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf(0))
				f.growSkipped([]int{n + 1}, tt.skipped, master(3*recentBlocks+1))
				synctest.Wait()
				expectNow(t, all, n+2)
				f.grow(tt.next)
				synctest.Wait()
				expectGap(t, all, n)
				expectNow(t, bases, n+1, n+3)
				if len(f.looked) > 6 || len(f.asked) > 0 {
					t.Errorf("Before was called %d times and Between after %q, want at most 6 and 0",
						len(f.looked), f.asked)
				}
				looked := len(f.looked)
				f.grow(Place{0, tt.next.Shard, 10}, master(3*recentBlocks+2))
				synctest.Wait()
				expectNow(t, bases, n+4)
				if len(f.looked) != looked {
					t.Error("Before was called again for a block of a known shard")
				}
			})
		})
	}
}

// The search for blocks before a later block finds a skipped merge. An earlier block of the merge's other half is
// missing too.
func TestBlockBeforeASkippedMergeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lower, upper = left - left>>1, left + left>>1
		f := newShardSource()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2},
			Place{0, lower, 3}, Place{0, upper, 3}, Place{0, upper, 4})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.growSkipped([]int{7, 9, 10}, Place{0, lower, 4}, Place{0, right, 3}, Place{0, left, 5}, Place{0, right, 4},
			Place{0, right, 5}, Place{0, left, 6})
		time.Sleep(time.Minute)
		expectEventually(t, r, 7, 8, 9, 10, 11, 12)
	})
}

// The search for blocks before a later block finds a skipped merge of other shards, and a skipped block of one of the
// merged halves. The block before that one is lost.
func TestGapBeforeASkippedMergeOfOtherShardsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lower, upper = right - right&-right>>1, right + right&-right>>1
		f := newShardSource()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2},
			Place{0, lower, 3}, Place{0, upper, 3}, Place{0, upper, 4})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.lacks[7] = true
		f.growSkipped([]int{7, 8, 11, 12}, Place{0, lower, 4}, Place{0, lower, 5},
			Place{0, upper, 5}, Place{0, upper, 6}, Place{0, right, 7}, Place{0, left, 3}, Place{0, left, 4})
		synctest.Wait()
		expectNow(t, r, 9, 10, 12, 13)
		f.grow(Place{0, right, 8})
		time.Sleep(repairTimeout + time.Second)
		expectGap(t, r, 6) // the start of the reader
	})
}

// A shard splits after a long time without blocks, and its halves split again or merge before the log has received a
// block of any of them. Follow yields only the last of all these blocks.
func TestBlocksSkippedAcrossSeveralSplitsAndMergesAreFound(t *testing.T) {
	lower := Place{0, left - left>>1, 0}
	at := func(p Place, seqNo uint32) Place { p.SeqNo = seqNo; return p }
	for name, skipped := range map[string][]Place{
		"split twice":      {base(8), {0, left, 9}, at(lower, 10)},
		"split and merged": {base(8), {0, left, 9}, {0, right, 9}, {0, left, 10}, base(11), base(12)},
		"split thrice":     {base(8), {0, left, 9}, at(lower, 10), {0, lower.Shard - lowestBit(lower.Shard)>>1, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(base(7))
				for i := range uint32(3 * recentBlocks) {
					f.grow(master(i + 1))
				}
				n := len(f.all)
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				r := joinAt(t, l, blocksOf(0))
				var missing, want []int
				for i := range skipped {
					want = append(want, n+1+i)
				}
				missing = want[:len(want)-1]
				f.growSkipped(missing, skipped...)
				synctest.Wait()
				expectEventually(t, r, want...)
			})
		})
	}
}

// A block before the merge may be missing, so clients that leave must resume from before that block.
func TestResumePointIsBeforeAnUncheckedMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf(-1, 0))
		f.set(func() { f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown } })
		f.growSkipped([]int{6}, Place{0, left, 3}, master(2))
		synctest.Wait()
		expectNow(t, r, 7)
		f.grow(base(4))
		time.Sleep(time.Second)
		expectResumePoint(t, "during the search", r, 5, true)
		if l.Window().Live {
			t.Error("the window is live while a block waits for a search, want not live")
		}
		time.Sleep(repairTimeout)
		expectNow(t, r, 8)
		expectResumePoint(t, "after a search that failed", r, 5, true)
		later := joinAt(t, l, blocksOf(-1, 0))
		f.grow(master(3))
		time.Sleep(time.Second)
		expectNow(t, later, 9)
		expectResumePoint(t, "a reader that started after the merge", later, 9, false)
		f.set(func() { f.before = nil })
		time.Sleep(2 * DefaultMaxBackoff)
		f.grow(master(4))
		synctest.Wait()
		expectGap(t, r, 5)
	})
}

// The resume point stays before the unchecked merge during the search for the blocks of another gap, and after it.
func TestResumePointIsBeforeAnUncheckedMergeDuringAnotherSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		bases, all := joinAt(t, l, blocksOf(0)), joinAt(t, l, blocksOf(-1, 0))
		f.set(func() { f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown } })
		f.growSkipped([]int{6}, Place{0, left, 3}, base(4))
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectNow(t, bases, 7)
		expectNow(t, all, 7)
		f.lacks[9] = true
		f.growSkipped([]int{9}, master(2), master(3), master(4))
		time.Sleep(time.Second)
		expectNow(t, all, 8)
		expectResumePoint(t, "a reader of the merged shard", bases, 5, true)
		expectResumePoint(t, "a reader of both", all, 5, true)
		if _, reported, _ := all.ResumePoint(); reported != 0 {
			t.Errorf("ReportedGaps is %x and counts the later gap as reported, want 0", reported)
		}
		time.Sleep(repairTimeout)
		expectResumePoint(t, "after the other search", bases, 5, true)
		_, reported, _ := bases.ResumePoint()
		f.set(func() { f.before = nil })
		time.Sleep(2 * DefaultMaxBackoff)
		f.grow(master(5))
		i := blocksOf(0)
		i.Reported = reported
		again := joinAt(t, l, i, 5)
		time.Sleep(repairTimeout) // its page waits for block 9
		expectEventually(t, again, 6, 7)
	})
}

func TestResumePointIsAfterAMergeWithoutMissingBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), Place{0, left, 2}, Place{0, right, 2})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf(-1, 0))
		f.set(func() { f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown } })
		f.grow(master(2), base(3))
		time.Sleep(2 * repairTimeout)
		expectNow(t, r, 5, 6)
		expectResumePoint(t, "a reader that may lack a block", r, 4, true)
		f.set(func() { f.before = nil })
		f.grow(master(3))
		time.Sleep(2 * DefaultMaxBackoff)
		f.grow(master(4))
		synctest.Wait()
		expectNow(t, r, 7, 8)
		expectResumePoint(t, "a reader that lacks no block", r, 8, false)
	})
}
