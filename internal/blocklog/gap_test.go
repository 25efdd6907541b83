package blocklog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHoleThatStaysEndsThoseWhomItMayConcernAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1), master(2))
		logger, text := logged()
		var gaps told
		l := openForest(t, f, Options[piece]{Logger: logger, Events: Events[piece]{Gap: gaps.gap}})
		synctest.Wait()
		masters, bases, slow := enter(t, l, of(-1)), enter(t, l, of(0)), enter(t, l, of(0, -1))
		i := of()
		i.Concerns = nil
		all := enter(t, l, i)
		early := enter(t, l, of(0), 1) // and has not read yet
		i = of(-1)
		i.Key, i.Concerns = "panicking", func(int32) bool { panic("no idea") }
		bad := enter(t, l, i)
		f.lacks[6] = true
		f.without([]int{6}, master(3), base(2), base(3), master(4))
		synctest.Wait()
		born := enter(t, l, of(0))
		has(t, all, 4, 5, 7)
		has(t, bases, 5)
		f.grow(base(4), master(5))
		time.Sleep(healPatience - 1)
		if synctest.Wait(); l.Stats().Gaps > 0 || l.Window().last() != cursorOf(7) || l.Window().Live {
			t.Errorf("given up too early, or still live: %+v, %+v", l.Stats(), l.Window())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		has(t, masters, 4, 7, 9)
		hasGap(t, bases, 5)
		hasGap(t, all, 5)
		hasGap(t, slow, 3)
		hasGap(t, born, 7) // it is owed nothing from before
		hasGap(t, bad, 3)
		if w := l.Window(); w.After != cursorOf(8) || w.last() != cursorOf(9) || !w.Live {
			t.Errorf("window %+v", w)
		}
		f.set(func() { delete(f.lacks, 6) }) // now the source has it
		again := enter(t, l, of(0), 5)
		hasAll(t, again, 6, 8)
		hasGap(t, enter(t, l, of(), 7), 5) // it may have had 7 before the gap was told
		hasAll(t, enter(t, l, of(-1), 7), 9)
		hasAll(t, enter(t, l, of(), 8), 9)
		hasAll(t, early, 2, 5, 6, 8)
		if !slices.Equal(gaps, told{"0 000005 false 5"}) {
			t.Errorf("told %q", gaps)
		}
		if s := l.Stats(); s.Holes != 1 || s.Healed != 0 || s.Gaps != 6 || s.Blocks != 5 || s.Restarts != 0 {
			t.Errorf("stats %+v", s)
		}
		if n := len(f.asked); n < 3 || n > 20 {
			t.Errorf("asked %d times", n)
		}
		if got := text.String(); strings.Count(got, "level=ERROR") != 2 || !strings.Contains(got, "workchain=0 after=000005") || !strings.Contains(got, errStillMissing.Error()) {
			t.Errorf("the log does not tell:\n%s", got)
		}
		f.grow(base(5))
		synctest.Wait()
		has(t, again, 10)
		if s := l.Stats(); s.Holes != 1 {
			t.Error("the same hole was found again")
		}
	})
}

// The hole is right before the newest block's successor, and the window would cover the cursor before it.
func TestWhoGoesOnFromBeforeAHoleThatStaysReadsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), master(2))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		var again *Reader[piece]
		i := of()
		i.Key = "at once"
		i.Wake = func() {
			if again == nil {
				again = enter(t, l, of(), 2)
			}
		}
		enter(t, l, i)
		f.lacks[3] = true
		f.without([]int{3}, master(3), master(4))
		time.Sleep(healPatience)
		synctest.Wait()
		hasGap(t, r, 2)
		if w := l.Window(); !w.Live || len(w.Blocks) > 0 || w.After != cursorOf(4) || w.Reached != cursorOf(4) || !w.Arrived.Equal(time.Now()) {
			t.Errorf("window %+v", w)
		}
		if got, err := again.Next(); got.Payload != nil || err != nil {
			t.Error(got, err)
		}
		f.set(func() { delete(f.lacks, 3) })
		hasAll(t, enter(t, l, of(), 2), 3, 4)
	})
}

func TestReaderThatSearchesTheWindowWhenAHoleIsGivenUpHasNothingFromBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1), base(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		f.lacks[3] = true
		f.without([]int{3}, base(2), master(2), master(3))
		synctest.Wait()
		wake := make(chan struct{})
		i := of()
		i.Key = "searching"
		i.Eval = func(p piece) []byte {
			if p.number == 4 {
				<-wake
			}
			return of().Eval(p)
		}
		r := enter(t, l, i, 2)
		done := make(chan error)
		go func() {
			item, err := r.Next()
			if item.Payload != nil {
				t.Errorf("it has had %+v", item)
			}
			done <- err
		}()
		synctest.Wait()
		f.grow(base(3))
		time.Sleep(healPatience)
		synctest.Wait()
		close(wake)
		if err := <-done; !errors.Is(err, ErrGap) {
			t.Error(err)
		}
		hasGap(t, r, 2)
	})
}

func TestSourceIsAskedAgainForWhatIsMissingAndTheBlockWaits(t *testing.T) {
	for name, first := range map[string]func(context.Context) ([]piece, error){
		"has nothing yet":     func(context.Context) ([]piece, error) { return nil, nil },
		"fails":               func(context.Context) ([]piece, error) { return nil, errDown },
		"panics":              func(context.Context) ([]piece, error) { panic("boom") },
		"has only the second": func(context.Context) ([]piece, error) { return []piece{{4, master(4)}}, nil },
		"has only the first":  func(context.Context) ([]piece, error) { return []piece{{3, master(3)}}, nil },
		"descends":            func(context.Context) ([]piece, error) { return []piece{{4, master(4)}, {3, master(3)}}, nil },
		"gives the block": func(context.Context) ([]piece, error) {
			return []piece{{3, master(3)}, {4, master(4)}, {6, master(5)}}, nil
		},
		"gives another chain's": func(context.Context) ([]piece, error) { return []piece{{3, master(3)}, {4, base(4)}}, nil },
		"gives another's too": func(context.Context) ([]piece, error) {
			return []piece{{3, master(3)}, {4, master(4)}, {5, base(4)}}, nil
		},
		"gives an older one": func(context.Context) ([]piece, error) {
			return []piece{{2, master(2)}, {3, master(3)}, {4, master(4)}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(master(1), master(2))
				l := openForest(t, f, Options[piece]{MinBackoff: time.Second, MaxBackoff: time.Second})
				synctest.Wait()
				r := enter(t, l, of(-1))
				f.between = first
				f.without([]int{3, 4}, master(3), master(4), other(1), master(5))
				synctest.Wait()
				has(t, r)
				time.Sleep(999 * time.Millisecond)
				f.set(func() { f.between = nil })
				has(t, r)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				has(t, r, 3, 4, 6)
				if s := l.Stats(); s.Holes != 1 || s.Healed != 1 || s.Restarts != 0 || len(f.asked) != 2 {
					t.Errorf("stats %+v, asked after %q", s, f.asked)
				}
			})
		})
	}
}

func TestMissingBlocksAreReadInPagesUpToABound(t *testing.T) {
	for _, missing := range []int{healBlocks * healPages, healBlocks*healPages + 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newForest()
			f.grow(master(1), master(2))
			l := openForest(t, f, Options[piece]{MinBackoff: time.Minute, MaxBackoff: time.Minute})
			synctest.Wait()
			f.set(func() {
				for n := 3; n <= missing+3; n++ {
					f.all = append(f.all, piece{n, master(uint32(n))})
					f.passes[n] = n < missing+3
				}
			})
			time.Sleep(healPatience)
			synctest.Wait()
			s := l.Stats()
			if fine := missing <= healBlocks*healPages; fine != (s.Healed == 1) || fine != (int(s.Blocks) == missing+1) {
				t.Errorf("%d missing: stats %+v", missing, s)
			}
			if len(f.asked) != healPages || f.asked[1] != cursorOf(2+healBlocks) {
				t.Errorf("asked after %q", f.asked)
			}
		})
	}
}

func TestHangingSearchForMissingBlocksEndsWithItsPatienceOrTheLog(t *testing.T) {
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newForest()
			f.grow(master(1))
			l := openForest(t, f, Options[piece]{})
			synctest.Wait()
			r := enter(t, l, of())
			f.between = func(ctx context.Context) ([]piece, error) { <-ctx.Done(); return nil, ctx.Err() }
			f.without([]int{2}, master(2), master(3))
			synctest.Wait()
			before := time.Now()
			if closes {
				if err := l.Close(t.Context()); err != nil || time.Since(before) > 0 || l.Stats().Blocks != 0 {
					t.Errorf("closed after %v: %v, %+v", time.Since(before), err, l.Stats())
				}
				return
			}
			time.Sleep(healPatience)
			synctest.Wait()
			hasGap(t, r, 1)
		})
	}
}

func TestOtherLinesMissingBlocksAreFoundAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		f.without([]int{4, 5}, Place{0, left, 3}, Place{0, right, 3}, Place{0, right, 4}, Place{0, left, 4})
		synctest.Wait()
		has(t, r, 4, 5, 6, 7)
		if s := l.Stats(); s.Holes != 1 || s.Healed != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestSeqNoThatGoesBackIsCountedAndCountedOnFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(7))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		f.grow(master(3), master(4), master(5))
		synctest.Wait()
		has(t, r, 2, 3, 4)
		if s := l.Stats(); s.Backwards != 1 || s.Holes != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestHoleThatARestartLeftIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1))
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		f.set(func() { f.down = errDown })
		f.without([]int{2}, master(2), master(3))
		f.set(func() { f.down = nil })
		time.Sleep(time.Minute)
		has(t, r, 2, 3)
	})
}

func TestPlaceThatIsLostIsNotAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(master(1))
		f.recents = 1
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		f.set(func() { f.down, f.gone = errDown, true })
		f.grow(base(5), master(2), master(3), base(9))
		time.Sleep(time.Minute)
		f.set(func() { f.down, f.gone = nil, true })
		time.Sleep(time.Minute)
		f.grow(master(4))
		synctest.Wait()
		f.grow(base(10), master(5))
		synctest.Wait()
		if s := l.Stats(); s.Holes != 0 || s.Blocks != 3 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestSourceWithoutPlacesIsNotChecked(t *testing.T) {
	for name, without := range map[string]func(*Source[piece]){
		"place":   func(s *Source[piece]) { s.Place = nil },
		"between": func(s *Source[piece]) { s.Between = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(master(1))
				src := f.source()
				without(&src)
				l := New(src, Options[piece]{Logger: quiet})
				l.Start()
				synctest.Wait()
				f.grow(master(5))
				synctest.Wait()
				if s := l.Stats(); s.Holes != 0 || s.Blocks != 1 {
					t.Errorf("stats %+v", s)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
