package blocklog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// storedForest has 400 blocks of two workchains, the odd ones of the masterchain.
func storedForest() *forest {
	f := newForest()
	for i := range uint32(200) {
		f.grow(master(i+1), base(i+1))
	}
	return f
}

func numbers(from, to int) (all []int) {
	for ; from <= to; from++ {
		all = append(all, from)
	}
	return all
}

func TestCatchUpReadsTheBlockAtItsCursorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedForest()
		l := openForest(t, f, Options[piece]{Window: 5})
		synctest.Wait()
		live := enter(t, l, of())
		f.grow(master(201))
		synctest.Wait()
		has(t, live, 401)
		if len(f.looked) > 0 {
			t.Errorf("the source was asked before blocks %d for a live reader", f.looked)
		}
		hasAll(t, enter(t, l, of(), 0), numbers(1, 401)...)
		if len(f.looked) > 0 {
			t.Errorf("the source was asked before blocks %d for the oldest block", f.looked)
		}
		hasAll(t, enter(t, l, of(), 10), numbers(11, 401)...)
		if len(f.looked) != 1 || f.looked[0] != 11 || len(f.asked) > 0 {
			t.Errorf("the source was asked before blocks %d, and for %q", f.looked, f.asked)
		}
	})
}

func TestGapInStoredBlocksEndsReadersWhomItConcernsAndIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedForest()
		f.lacks[152] = true // of the base chain
		l := openForest(t, f, Options[piece]{Window: 5})
		synctest.Wait()
		told := func() (lost *Lost, took time.Duration) {
			r := enter(t, l, of(), 20)
			defer r.Close()
			begun, had := time.Now(), 0
			for {
				got, err := taken(r)
				if had += len(got); err != nil {
					if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || had != 130 {
						t.Fatalf("%v after %d blocks", err, had)
					}
					return lost, time.Since(begun)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		lost, took := told()
		if lost.Cursor != cursorOf(150) || took < healPatience || took > healPatience+time.Second {
			t.Errorf("%v after %v", lost, took)
		}
		if lost, took = told(); lost.Cursor != cursorOf(150) || took > time.Second || took < DefaultMinBackoff {
			t.Errorf("the next time: %v after %v", lost, took)
		}
		masters := enter(t, l, of(-1), 140)
		var odd []int
		for n := 141; n < 400; n += 2 {
			odd = append(odd, n)
		}
		hasAll(t, masters, odd...)
	})
}

// Each reader is there for a second only, as one whose line is cut again and again.
func TestGapInStoredBlocksIsWaitedForOnceAsReadersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedForest()
		f.lacks[152] = true
		l := openForest(t, f, Options[piece]{Window: 5})
		synctest.Wait()
		for begun := time.Now(); time.Since(begun) < 2*healPatience; {
			r := enter(t, l, of(), 145)
			for range 10 {
				if _, err := taken(r); err != nil {
					if took := time.Since(begun); !errors.Is(err, ErrGap) || took < healPatience {
						t.Errorf("%v after %v", err, took)
					}
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			r.Close()
		}
		t.Error("no reader was told of the gap")
	})
}

func TestBlockThatIsStoredLateIsReadInItsPlace(t *testing.T) {
	for name, missing := range map[string]int{"inside a page": 50, "between pages": 121, "next of the shard at the cursor": 22} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := storedForest()
				f.lacks[missing] = true
				l := openForest(t, f, Options[piece]{Window: 5})
				synctest.Wait()
				r := enter(t, l, of(), 20)
				var got []int
				for i := range 20 {
					more, err := taken(r)
					if got = append(got, more...); err != nil {
						t.Fatalf("%v after %d", err, got)
					}
					if time.Sleep(time.Second); i == 2 {
						f.set(func() { delete(f.lacks, missing) })
					}
				}
				for i, n := range got {
					if n != 21+i {
						t.Fatalf("read %d", got)
					}
				}
				if len(got) != 380 || l.Stats().Gaps != 0 {
					t.Errorf("read %d blocks, stats %+v", len(got), l.Stats())
				}
			})
		})
	}
}

func TestWindowBeginsAfterAGapInTheNewestStoredBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedForest()
		f.lacks[380] = true
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		if w := l.Window(); w.After != cursorOf(382) || len(w.Blocks) != 18 {
			t.Errorf("the window begins after %q and has %d blocks", w.After, len(w.Blocks))
		}
		r := enter(t, l, of(), 370)
		for i := 0; i < 10; i++ {
			if _, err := taken(r); err != nil {
				if r.Cursor() != cursorOf(378) || !errors.Is(err, ErrGap) {
					t.Errorf("%v", err)
				}
				return
			}
			time.Sleep(healPatience)
		}
		t.Error("a reader that resumes from before the gap was not told")
	})
}

func TestPageIsNotTrustedIfTheBlocksBeforeItAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedForest()
		src := f.source()
		before := src.Before
		src.Before = func(ctx context.Context, b piece, shard *uint64, n int) ([]piece, error) {
			blocks, err := before(ctx, b, shard, n)
			return append(blocks, b), err
		}
		l := New(src, Options[piece]{Window: 5, Logger: quiet})
		l.Start()
		synctest.Wait()
		if got, gap := readToEnd(t, enter(t, l, of(), 20)); len(got) > 0 || gap != "" {
			t.Errorf("read %d, gap after %q", got, gap)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestGapsThatStayAreRememberedUpToABound(t *testing.T) {
	l := New(newForest().source(), Options[piece]{})
	for n := range 3 * maxLasting {
		if l.noteLasting(cursorOf(n + 1)); l.lasting[cursorOf(n+1)].number == 0 || len(l.lasting) > maxLasting {
			t.Fatalf("%d are remembered after %d", len(l.lasting), n+1)
		}
		if n == maxLasting-1 && len(l.lasting) != maxLasting {
			t.Errorf("%d are remembered of %d", len(l.lasting), maxLasting)
		}
	}
}
