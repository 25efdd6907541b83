package blocklog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestPermanentGapEndsOnlyAffectedReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), master(2))
		logger, text := logged()
		var gaps gapEvents
		l := openShards(t, f, Options[shardBlock]{Logger: logger, Events: Events[shardBlock]{Gap: gaps.gap}})
		synctest.Wait()
		masters, bases, slow := joinAt(t, l, blocksOf(-1)), joinAt(t, l, blocksOf(0)), joinAt(t, l, blocksOf(0, -1))
		i := blocksOf()
		i.Concerns = nil
		all := joinAt(t, l, i)
		early := joinAt(t, l, blocksOf(0), 1) // reads nothing before the gap is reported
		i = blocksOf(-1)
		i.Key, i.Concerns = "panicking", func(int32) bool { panic("no idea") }
		bad := joinAt(t, l, i)
		f.lacks[6] = true
		f.growSkipped([]int{6}, master(3), base(2), base(3), master(4))
		synctest.Wait()
		added := joinAt(t, l, blocksOf(0))
		expectNow(t, all, 4, 5, 7)
		expectNow(t, bases, 5)
		f.grow(base(4), master(5))
		time.Sleep(repairTimeout - 1)
		if synctest.Wait(); l.Stats().EndedByGap > 0 || l.Window().last() != cursorOf(7) || l.Window().Live {
			t.Errorf("the gap counts as permanent too early, or the window is still live: stats %+v, window %+v",
				l.Stats(), l.Window())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expectNow(t, masters, 4, 7, 9)
		expectGap(t, bases, 5)
		expectGap(t, all, 5)
		expectGap(t, slow, 3)
		expectGap(t, added, 7) // its start is after the block before the gap
		expectGap(t, bad, 3)
		if w := l.Window(); w.After != cursorOf(8) || w.last() != cursorOf(9) || !w.Live {
			t.Errorf("got window %+v, want one block after block 8, live", w)
		}
		f.set(func() { delete(f.lacks, 6) }) // the source stores block 6 now
		again := joinAt(t, l, blocksOf(0), 5)
		expectEventually(t, again, 6, 8)
		expectGap(t, joinAt(t, l, blocksOf(), 7), 5) // its client may have received block 7 before the gap was reported
		expectEventually(t, joinAt(t, l, blocksOf(-1), 7), 9)
		expectEventually(t, joinAt(t, l, blocksOf(), 8), 9)
		expectEventually(t, early, 2, 5, 6, 8)
		if !slices.Equal(gaps, gapEvents{"0 000005 false 5"}) {
			t.Errorf("got gap events %q, want one gap that ended 5 readers", gaps)
		}
		s := l.Stats()
		if s.GapsFound != 1 || s.GapsRepaired != 0 || s.EndedByGap != 6 || s.Blocks != 5 || s.Restarts != 0 {
			t.Errorf("got stats %+v, want one permanent gap that ended 6 readers", s)
		}
		if n := len(f.asked); n < 3 || n > 20 {
			t.Errorf("Between was called %d times, want 3 to 20", n)
		}
		if got := text.String(); strings.Count(got, "level=ERROR") != 2 ||
			!strings.Contains(got, "workchain=0 after=000005") || !strings.Contains(got, errStillMissing.Error()) {
			t.Errorf("want two errors, one of which describes the gap, in the log:\n%s", got)
		}
		f.grow(base(5))
		synctest.Wait()
		expectNow(t, again, 10)
		if s := l.Stats(); s.GapsFound != 1 {
			t.Error("the same gap was found again, want it counted once")
		}
	})
}

// The gap is right after the newest block. A window that did not start again would contain the cursor before the gap.
func TestReaderResumedBeforeAPermanentGapReadsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), master(2))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		var again *Reader[shardBlock]
		i := blocksOf()
		i.Key = "at once"
		i.Wake = xsync.WakeFunc(func() {
			if again == nil {
				again = joinAt(t, l, blocksOf(), 2)
			}
		})
		joinAt(t, l, i)
		f.lacks[3] = true
		f.growSkipped([]int{3}, master(3), master(4))
		time.Sleep(repairTimeout)
		synctest.Wait()
		expectGap(t, r, 2)
		if w := l.Window(); !w.Live || len(w.Blocks) > 0 || w.After != cursorOf(4) || w.Reached != cursorOf(4) ||
			!w.Arrived.Equal(time.Now()) {
			t.Errorf("got window %+v, want an empty one after block 4, live", w)
		}
		if got, err := again.Next(); got.Payload != nil || err != nil {
			t.Errorf("Next returned %+v and error %v, want nothing", got, err)
		}
		f.set(func() { delete(f.lacks, 3) })
		expectEventually(t, joinAt(t, l, blocksOf(), 2), 3, 4)
	})
}

func TestReaderInsideNextReceivesNoBlockAfterAPermanentGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.lacks[3] = true
		f.growSkipped([]int{3}, base(2), master(2), master(3))
		synctest.Wait()
		wake := make(chan struct{})
		i := blocksOf()
		i.Key = "searching"
		i.Eval = func(p shardBlock) []byte {
			if p.number == 4 {
				<-wake
			}
			return blocksOf().Eval(p)
		}
		r := joinAt(t, l, i, 2)
		done := make(chan error)
		go func() {
			item, err := r.Next()
			if item.Payload != nil {
				t.Errorf("Next returned %+v, want no block", item)
			}
			done <- err
		}()
		synctest.Wait()
		f.grow(base(3))
		time.Sleep(repairTimeout)
		synctest.Wait()
		close(wake)
		if err := <-done; !errors.Is(err, ErrGap) {
			t.Errorf("Next returned error %v, want ErrGap", err)
		}
		expectGap(t, r, 2)
	})
}

func TestRepairIsRetriedBeforeTheNextBlockIsDelivered(t *testing.T) {
	type between = func(context.Context) ([]shardBlock, error)
	returns := func(blocks []shardBlock) between {
		return func(context.Context) ([]shardBlock, error) { return blocks, nil }
	}
	for name, first := range map[string]between{
		"returns no block":                     returns(nil),
		"fails":                                func(context.Context) ([]shardBlock, error) { return nil, errDown },
		"panics":                               func(context.Context) ([]shardBlock, error) { panic("boom") },
		"returns only the second block":        returns([]shardBlock{{4, master(4)}}),
		"returns only the first block":         returns([]shardBlock{{3, master(3)}}),
		"returns descending blocks":            returns([]shardBlock{{4, master(4)}, {3, master(3)}}),
		"adds the waiting block":               returns([]shardBlock{{3, master(3)}, {4, master(4)}, {6, master(5)}}),
		"returns a block of another workchain": returns([]shardBlock{{3, master(3)}, {4, base(4)}}),
		"adds a block of another workchain":    returns([]shardBlock{{3, master(3)}, {4, master(4)}, {5, base(4)}}),
		"adds an older block":                  returns([]shardBlock{{2, master(2)}, {3, master(3)}, {4, master(4)}}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1), master(2))
				l := openShards(t, f, Options[shardBlock]{MinBackoff: time.Second, MaxBackoff: time.Second})
				synctest.Wait()
				r := joinAt(t, l, blocksOf(-1))
				f.between = first
				f.growSkipped([]int{3, 4}, master(3), master(4), other(1), master(5))
				synctest.Wait()
				expectNow(t, r)
				time.Sleep(999 * time.Millisecond)
				f.set(func() { f.between = nil })
				expectNow(t, r)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				expectNow(t, r, 3, 4, 6)
				if s := l.Stats(); s.GapsFound != 1 || s.GapsRepaired != 1 || s.Restarts != 0 || len(f.asked) != 2 {
					t.Errorf("want one repaired gap and two calls of Between, got stats %+v and calls after %q",
						s, f.asked)
				}
			})
		})
	}
}

func TestRepairReadsALimitedNumberOfPages(t *testing.T) {
	for _, missing := range []int{repairBlocks * repairPages, repairBlocks*repairPages + 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newShardSource()
			f.grow(master(1), master(2))
			l := openShards(t, f, Options[shardBlock]{MinBackoff: time.Minute, MaxBackoff: time.Minute})
			synctest.Wait()
			f.set(func() {
				for n := 3; n <= missing+3; n++ {
					f.all = append(f.all, shardBlock{n, master(uint32(n))})
					f.passes[n] = n < missing+3
				}
			})
			time.Sleep(repairTimeout)
			synctest.Wait()
			s := l.Stats()
			repaired := missing <= repairBlocks*repairPages
			if repaired != (s.GapsRepaired == 1) || repaired != (int(s.Blocks) == missing+1) {
				t.Errorf("stats are %+v with %d missing blocks, want the gap repaired: %v", s, missing, repaired)
			}
			if len(f.asked) != repairPages || f.asked[1] != cursorOf(2+repairBlocks) {
				t.Errorf("Between was called after %q, want %d calls in steps of %d blocks",
					f.asked, repairPages, repairBlocks)
			}
		})
	}
}

func TestHangingRepairEndsWithTimeoutOrClose(t *testing.T) {
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newShardSource()
			f.grow(master(1))
			l := openShards(t, f, Options[shardBlock]{})
			synctest.Wait()
			r := joinAt(t, l, blocksOf())
			f.between = func(ctx context.Context) ([]shardBlock, error) { <-ctx.Done(); return nil, ctx.Err() }
			f.growSkipped([]int{2}, master(2), master(3))
			synctest.Wait()
			before := time.Now()
			if closes {
				if err := l.Close(t.Context()); err != nil || time.Since(before) > 0 || l.Stats().Blocks != 0 {
					t.Errorf("Close returned %v after %v, want nil at once; stats are %+v, want no blocks",
						err, time.Since(before), l.Stats())
				}
				return
			}
			time.Sleep(repairTimeout)
			synctest.Wait()
			expectGap(t, r, 1)
		})
	}
}

func TestRepairFindsMissingBlocksInOtherShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.growSkipped([]int{4, 5}, Place{0, left, 3}, Place{0, right, 3}, Place{0, right, 4}, Place{0, left, 4})
		synctest.Wait()
		expectNow(t, r, 4, 5, 6, 7)
		if s := l.Stats(); s.GapsFound != 1 || s.GapsRepaired != 1 {
			t.Errorf("got stats %+v, want one repaired gap", s)
		}
	})
}

func TestBlockWithLowerSeqNoIsCountedAndAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(7))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.grow(master(3), master(4), master(5))
		synctest.Wait()
		expectNow(t, r, 2, 3, 4)
		if s := l.Stats(); s.Backwards != 1 || s.GapsFound != 0 {
			t.Errorf("got stats %+v, want one block with a lower number and no gap", s)
		}
	})
}

func TestGapAfterFollowRestartsIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.set(func() { f.down = errDown })
		f.growSkipped([]int{2}, master(2), master(3))
		f.set(func() { f.down = nil })
		time.Sleep(time.Minute)
		expectNow(t, r, 2, 3)
	})
}

func TestBlocksSkippedWhileTheLogHasNoPositionAreNotAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1))
		f.recents = 1
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.set(func() { f.down, f.gone = errDown, 2 })
		f.grow(base(5), master(2), master(3), base(9))
		time.Sleep(time.Minute)
		f.set(func() { f.down, f.gone = nil, 2 })
		time.Sleep(time.Minute)
		f.grow(master(4))
		synctest.Wait()
		f.grow(base(10), master(5))
		synctest.Wait()
		if s := l.Stats(); s.GapsFound != 0 || s.Blocks != 3 {
			t.Errorf("got stats %+v, want 3 blocks and no gap", s)
		}
	})
}

func TestSourceWithoutPlaceOrBetweenIsNotCheckedForGaps(t *testing.T) {
	for name, remove := range map[string]func(*Source[shardBlock]){
		"without Place":   func(s *Source[shardBlock]) { s.Place = nil },
		"without Between": func(s *Source[shardBlock]) { s.Between = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1))
				src := f.source()
				remove(&src)
				l := New(src, Options[shardBlock]{Logger: quiet})
				l.Start()
				synctest.Wait()
				f.grow(master(5))
				synctest.Wait()
				if s := l.Stats(); s.GapsFound != 0 || s.Blocks != 1 {
					t.Errorf("got stats %+v, want one block and no gap", s)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
