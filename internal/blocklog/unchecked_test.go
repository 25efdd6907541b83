package blocklog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestUncheckedMergeIsCheckedLater(t *testing.T) {
	for name, lost := range map[string]bool{
		"the source has the missing blocks": false, "the source has lost the first missing block": true,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(base(1), master(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3},
					Place{0, right, 4})
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				all, masters, slow := joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf(-1)), joinAt(t, l, blocksOf())
				f.set(func() {
					f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown }
					f.lacks[7] = lost
				})
				f.growSkipped([]int{7, 8}, Place{0, left, 3}, Place{0, left, 4}, base(5), master(2))
				time.Sleep(2 * repairTimeout)
				expectNow(t, all, 9, 10)
				f.grow(master(3))
				time.Sleep(DefaultMaxBackoff)
				expectNow(t, all, 11)
				f.set(func() { f.before = nil })
				f.grow(master(4))
				synctest.Wait()
				expectNow(t, masters, 10, 11, 12)
				if lost {
					expectGap(t, all, 6)
					expectGap(t, slow, 6)
				} else {
					expectGap(t, all, 6)
					expectNow(t, slow, 7, 8, 9, 10, 11, 12)
				}
				if s := l.Stats(); s.GapsFound != 1 || s.Backwards != 0 || len(l.rechecks.blocks) > 0 {
					t.Errorf("stats are %+v with %d unchecked blocks, want one gap and no unchecked block",
						s, len(l.rechecks.blocks))
				}
			})
		})
	}
}

// The source prunes the blocks before an unchecked block before it answers again, so they may include a missing one.
func TestUncheckedBlockCountsAsAGapIfTheBlocksBeforeItWerePruned(t *testing.T) {
	for name, tt := range map[string]struct {
		unchecked Place
		before    func(context.Context) ([]shardBlock, error)
	}{
		"merge":       {base(4), func(context.Context) ([]shardBlock, error) { return nil, nil }},
		"first block": {other(5), func(context.Context) ([]shardBlock, error) { return nil, nil }},
		"Before fails because the cursor is too old": {
			base(4), func(context.Context) ([]shardBlock, error) { return nil, errGone },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(base(1), master(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				all, masters := joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf(-1))
				f.set(func() { f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown } })
				f.grow(tt.unchecked, master(2))
				time.Sleep(2 * repairTimeout)
				expectNow(t, all, 6, 7)
				later := joinAt(t, l, blocksOf()) // receives no block that the gap may be before
				f.set(func() {
					f.before = tt.before
					f.between = func(context.Context) ([]shardBlock, error) { return nil, errGone }
				})
				f.grow(master(3))
				synctest.Wait()
				if _, err := takeAll(all); !errors.Is(err, ErrGap) {
					t.Errorf("a reader received error %v, want ErrGap", err)
				}
				expectNow(t, masters, 7, 8)
				expectNow(t, later, 8)
				if s := l.Stats(); s.GapsFound != 1 || len(l.rechecks.blocks) > 0 || len(*l.openGaps.Load()) > 0 {
					t.Errorf("stats are %+v with %d unchecked blocks and open gaps %v, want one gap and none of these",
						s, len(l.rechecks.blocks), *l.openGaps.Load())
				}
			})
		})
	}
}

func TestTooManyUncheckedBlocksCountAsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1))
		f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown }
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		all := joinAt(t, l, blocksOf())
		for w := range int32(maxUnchecked + 1) {
			f.grow(Place{w, wholeShard, 1})
			time.Sleep(2 * repairTimeout)
			synctest.Wait()
			if w < maxUnchecked {
				expectNow(t, all, int(w)+2)
			}
		}
		if _, err := takeAll(all); !errors.Is(err, ErrGap) {
			t.Errorf("a reader received error %v after %d unchecked blocks, want ErrGap", err, maxUnchecked+1)
		}
	})
}

// Follow reports twice that the log's position is gone, while reads of the blocks before a merge fail. The new window
// contains the blocks that Follow skipped there.
func TestUncheckedBlockCountsAsAGapIfThePositionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(base(1), master(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3}, Place{0, right, 4})
		var reported []int
		l := openShards(t, f, Options[shardBlock]{
			Events: Events[shardBlock]{Block: func(b shardBlock) { reported = append(reported, b.number) }},
		})
		synctest.Wait()
		all, masters, slow := joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf(-1)), joinAt(t, l, blocksOf())
		f.set(func() { f.before = func(context.Context) ([]shardBlock, error) { return nil, errDown } })
		f.growSkipped([]int{7, 8}, Place{0, left, 3}, Place{0, left, 4}, base(5), master(2))
		time.Sleep(2 * repairTimeout)
		expectNow(t, all, 9, 10)
		expectNow(t, masters, 10)
		f.set(func() { f.down, f.gone = errDown, 2 })
		synctest.Wait()
		f.set(func() { f.down = nil })
		time.Sleep(time.Minute)
		expectGap(t, all, 6)
		again := blocksOf()
		again.Reported = all.reportedAt(all.Cursor())
		resumed, unread := joinAt(t, l, again, 6), joinAt(t, l, again, 6)
		expectEventually(t, resumed, 7, 8, 9, 10)

		f.set(func() { f.before = nil }) // the source answers again
		f.grow(master(3))
		time.Sleep(time.Minute)
		expectNow(t, resumed, 11)
		expectEventually(t, unread, 7, 8, 9, 10, 11)
		expectEventually(t, slow, 7, 8, 9, 10, 11)
		expectNow(t, masters, 11)
		expectEventually(t, joinAt(t, l, again, 6), 7, 8, 9, 10, 11)
		for i, b := range l.Window().Blocks {
			if i > 0 && b.number <= l.Window().Blocks[i-1].number {
				t.Errorf("the window contains block %d twice", b.number)
			}
		}
		if s := l.Stats(); s.GapsFound != 1 || s.Blocks != 3 || !slices.Equal(reported, []int{9, 10, 11}) {
			t.Errorf("got stats %+v and events for blocks %v, want one gap and blocks 9, 10 and 11", s, reported)
		}
	})
}
