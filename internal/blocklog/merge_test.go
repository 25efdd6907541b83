package blocklog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The last block of the lower half is missing, which the number of the merged shard does not show.
func TestBlockMissingBeforeAMergeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		f.without([]int{5}, Place{0, left, 3}, base(4), base(5))
		synctest.Wait()
		has(t, r, 5, 6, 7)
		if s := l.Stats(); s.Holes != 1 || s.Healed != 1 || s.Gaps != 0 || len(f.asked) != 0 || len(f.looked) > 3 {
			t.Errorf("stats %+v, asked %q", s, f.asked)
		}
	})
}

func TestMergeThatLacksNothingIsNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		l := openForest(t, f, Options[piece]{Events: Events[piece]{Gap: func(int32, string, bool, int) { t.Error("a gap was told") }}})
		synctest.Wait()
		r := enter(t, l, of())
		f.grow(base(3), base(4))
		synctest.Wait()
		has(t, r, 4, 5)
		if s := l.Stats(); s.Holes != 0 || !l.Window().Live {
			t.Errorf("stats %+v, %+v", s, l.Window())
		}
	})
}

func TestMergeThatCannotBeCheckedIsTakenAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		f.before = func(context.Context) ([]piece, error) { return nil, errDown }
		logger, text := logged()
		l := openForest(t, f, Options[piece]{Logger: logger})
		synctest.Wait()
		r := enter(t, l, of())
		f.grow(base(3), base(4))
		time.Sleep(healPatience)
		synctest.Wait()
		has(t, r, 4, 5)
		if s := l.Stats(); s.Holes != 0 || s.Gaps != 0 || !strings.Contains(text.String(), "level=WARN msg=\"gap check failed; retrying\"") {
			t.Errorf("stats %+v, log %s", s, text.String())
		}
	})
}

func TestMergeThatCouldNotBeCheckedIsCheckedLater(t *testing.T) {
	for name, lost := range map[string]bool{"the source has the block": false, "the source has lost the one before it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(base(1), master(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3}, Place{0, right, 4})
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				all, masters, slow := enter(t, l, of()), enter(t, l, of(-1)), enter(t, l, of())
				f.set(func() {
					f.before = func(context.Context) ([]piece, error) { return nil, errDown }
					f.lacks[7] = lost
				})
				f.without([]int{7, 8}, Place{0, left, 3}, Place{0, left, 4}, base(5), master(2))
				time.Sleep(2 * healPatience)
				has(t, all, 9, 10)
				f.grow(master(3))
				time.Sleep(DefaultMaxBackoff)
				has(t, all, 11)
				f.set(func() { f.before = nil })
				f.grow(master(4))
				synctest.Wait()
				has(t, masters, 10, 11, 12)
				if lost {
					hasGap(t, all, 6)
					hasGap(t, slow, 6)
				} else {
					hasGap(t, all, 6)
					has(t, slow, 7, 8, 9, 10, 11, 12)
				}
				if s := l.Stats(); s.Holes != 1 || s.Backwards != 0 || len(l.later.blocks) > 0 {
					t.Errorf("stats %+v, %d unchecked", s, len(l.later.blocks))
				}
			})
		})
	}
}

func TestTooManyBlocksThatCannotBeCheckedCountAsAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1))
		f.before = func(context.Context) ([]piece, error) { return nil, errDown }
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		all := enter(t, l, of())
		for w := range int32(maxUnchecked + 1) {
			f.grow(Place{w, whole, 1})
			time.Sleep(2 * healPatience)
			synctest.Wait()
			if w < maxUnchecked {
				has(t, all, int(w)+2)
			}
		}
		if _, err := taken(all); !errors.Is(err, ErrGap) {
			t.Errorf("%v after %d unchecked blocks", err, maxUnchecked+1)
		}
	})
}

func TestBlockSkippedInAShardThatTheLogDoesNotKnowIsFound(t *testing.T) {
	for name, tt := range map[string]struct{ quiet, skipped, next Place }{
		"same shard":   {base(7), base(8), base(9)},
		"split":        {base(7), base(8), Place{0, left, 9}},
		"merge":        {Place{0, right, 7}, Place{0, right, 8}, base(9)},
		"after pruned": {Place{}, base(8), base(9)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				if tt.quiet != (Place{}) {
					f.grow(tt.quiet)
				}
				for i := range uint32(3 * recentBlocks) {
					f.grow(master(i + 1))
				}
				n := len(f.all)
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				all, bases := enter(t, l, of()), enter(t, l, of(0))
				f.without([]int{n + 1}, tt.skipped, master(3*recentBlocks+1))
				synctest.Wait()
				has(t, all, n+2)
				f.grow(tt.next)
				synctest.Wait()
				hasGap(t, all, n)
				has(t, bases, n+1, n+3)
				if len(f.looked) > 6 || len(f.asked) > 0 {
					t.Errorf("asked %d times, and for %q", len(f.looked), f.asked)
				}
				looked := len(f.looked)
				f.grow(Place{0, tt.next.Shard, 10}, master(3*recentBlocks+2))
				synctest.Wait()
				has(t, bases, n+4)
				if len(f.looked) != looked {
					t.Error("the source is asked for each block")
				}
			})
		})
	}
}

// A skipped merge is found in the search for a later block. Its other half may have been skipped, too, from further back.
func TestBlockBeforeASkippedMergeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lower, upper = left - left>>1, left + left>>1
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, lower, 3}, Place{0, upper, 3}, Place{0, upper, 4})
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		f.without([]int{7, 9, 10}, Place{0, lower, 4}, Place{0, right, 3}, Place{0, left, 5}, Place{0, right, 4},
			Place{0, right, 5}, Place{0, left, 6})
		time.Sleep(time.Minute)
		hasAll(t, r, 7, 8, 9, 10, 11, 12)
	})
}

// A shard that was quiet for long splits, and its halves split again, or merge, before the log has heard of any: of all
// these blocks only the last one comes.
func TestBlocksSkippedOverSeveralSplitsAndMergesAreFound(t *testing.T) {
	lower := Place{0, left - left>>1, 0}
	at := func(p Place, seqNo uint32) Place { p.SeqNo = seqNo; return p }
	for name, skipped := range map[string][]Place{
		"split twice":      {base(8), {0, left, 9}, at(lower, 10)},
		"split and merged": {base(8), {0, left, 9}, {0, right, 9}, {0, left, 10}, base(11), base(12)},
		"split thrice":     {base(8), {0, left, 9}, at(lower, 10), {0, lower.Shard - lowest(lower.Shard)>>1, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(base(7))
				for i := range uint32(3 * recentBlocks) {
					f.grow(master(i + 1))
				}
				n := len(f.all)
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				r := enter(t, l, of(0))
				var missing, want []int
				for i := range skipped {
					want = append(want, n+1+i)
				}
				missing = want[:len(want)-1]
				f.without(missing, skipped...)
				synctest.Wait()
				hasAll(t, r, want...)
			})
		})
	}
}

// While it is not known whether a block is missing before a merge, clients that leave are told so.
func TestStandingIsBeforeAMergeThatIsNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of(-1, 0))
		f.set(func() { f.before = func(context.Context) ([]piece, error) { return nil, errDown } })
		f.without([]int{6}, Place{0, left, 3}, master(2))
		synctest.Wait()
		has(t, r, 7)
		f.grow(base(4))
		time.Sleep(time.Second)
		stands(t, "during the search", r, 5, true)
		if l.Window().Live {
			t.Error("the window is live while a block waits")
		}
		time.Sleep(healPatience)
		has(t, r, 8)
		stands(t, "after a search that failed", r, 5, true)
		f.set(func() { f.before = nil })
		time.Sleep(2 * DefaultMaxBackoff)
		f.grow(master(3))
		synctest.Wait()
		hasGap(t, r, 5)
	})
}

func TestStandingAfterAMergeThatLacksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), Place{0, left, 2}, Place{0, right, 2})
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of(-1, 0))
		f.set(func() { f.before = func(context.Context) ([]piece, error) { return nil, errDown } })
		f.grow(master(2), base(3))
		time.Sleep(2 * healPatience)
		has(t, r, 5, 6)
		stands(t, "one that may lack a block", r, 4, true)
		f.set(func() { f.before = nil })
		f.grow(master(3))
		time.Sleep(2 * DefaultMaxBackoff)
		f.grow(master(4))
		synctest.Wait()
		has(t, r, 7, 8)
		stands(t, "one that lacks none", r, 8, false)
	})
}
