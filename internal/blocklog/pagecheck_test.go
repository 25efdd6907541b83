package blocklog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// storedShards returns a shardSource with 400 blocks of two workchains. The blocks with odd numbers belong to the
// masterchain.
func storedShards() *shardSource {
	f := newShardSource()
	for i := range uint32(200) {
		f.grow(master(i+1), base(i+1))
	}
	return f
}

// numbers returns the numbers between from and to, both inclusive.
func numbers(from, to int) (all []int) {
	for ; from <= to; from++ {
		all = append(all, from)
	}
	return all
}

func TestCatchUpReadsTheBlocksUpToItsCursorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedShards()
		l := openShards(t, f, Options[shardBlock]{Window: 5})
		synctest.Wait()
		live := joinAt(t, l, blocksOf())
		f.grow(master(201))
		synctest.Wait()
		expectNow(t, live, 401)
		if len(f.looked) > 0 {
			t.Errorf("Before was called for blocks %d for a live reader, want no calls", f.looked)
		}
		expectEventually(t, joinAt(t, l, blocksOf(), 0), numbers(1, 401)...)
		if len(f.looked) > 0 {
			t.Errorf("Before was called for blocks %d at the oldest block, want no calls", f.looked)
		}
		expectEventually(t, joinAt(t, l, blocksOf(), 10), numbers(11, 401)...)
		if len(f.looked) != 1 || f.looked[0] != 11 || len(f.asked) > 0 {
			t.Errorf("Before was called for blocks %d and Between after %q, want only block 11", f.looked, f.asked)
		}
	})
}

func TestGapInStoredBlocksEndsAffectedReadersAfterOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedShards()
		f.lacks[152] = true // a block of the base chain
		l := openShards(t, f, Options[shardBlock]{Window: 5})
		synctest.Wait()
		readUntilGap := func() (lost *Lost, took time.Duration) {
			r := joinAt(t, l, blocksOf(), 20)
			defer r.Close()
			begun, had := time.Now(), 0
			for {
				got, err := takeAll(r)
				if had += len(got); err != nil {
					if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || had != 130 {
						t.Fatalf("the reader received error %v after %d blocks, want ErrGap after 130", err, had)
					}
					return lost, time.Since(begun)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		lost, took := readUntilGap()
		if lost.Cursor != cursorOf(150) || took < repairTimeout || took > repairTimeout+time.Second {
			t.Errorf("the first reader received %v after %v, want a gap after %v", lost, took, repairTimeout)
		}
		if lost, took = readUntilGap(); lost.Cursor != cursorOf(150) || took > time.Second || took < DefaultMinBackoff {
			t.Errorf("the second reader received %v after %v, want a gap within a second", lost, took)
		}
		masters := joinAt(t, l, blocksOf(-1), 140)
		var odd []int
		for n := 141; n < 400; n += 2 {
			odd = append(odd, n)
		}
		expectEventually(t, masters, odd...)
	})
}

// Each reader is closed after one second, as if the connection of its client was cut again and again.
func TestWaitForGapInStoredBlocksIsNotRepeatedForNewReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedShards()
		f.lacks[152] = true
		l := openShards(t, f, Options[shardBlock]{Window: 5})
		synctest.Wait()
		for begun := time.Now(); time.Since(begun) < 2*repairTimeout; {
			r := joinAt(t, l, blocksOf(), 145)
			for range 10 {
				if _, err := takeAll(r); err != nil {
					if took := time.Since(begun); !errors.Is(err, ErrGap) || took < repairTimeout {
						t.Errorf("a reader received error %v after %v, want ErrGap after %v", err, took, repairTimeout)
					}
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			r.Close()
		}
		t.Error("no reader ended with ErrGap, want one")
	})
}

func TestBlockThatIsStoredLateIsReadInOrder(t *testing.T) {
	for name, missing := range map[string]int{
		"inside a page": 50, "between pages": 121, "next block of the shard at the cursor": 22,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := storedShards()
				f.lacks[missing] = true
				l := openShards(t, f, Options[shardBlock]{Window: 5})
				synctest.Wait()
				r := joinAt(t, l, blocksOf(), 20)
				var got []int
				for i := range 20 {
					more, err := takeAll(r)
					if got = append(got, more...); err != nil {
						t.Fatalf("the reader received error %v after blocks %d, want nil", err, got)
					}
					if time.Sleep(time.Second); i == 2 {
						f.set(func() { delete(f.lacks, missing) })
					}
				}
				for i, n := range got {
					if n != 21+i {
						t.Fatalf("read blocks %d, want consecutive blocks from 21 on", got)
					}
				}
				if len(got) != 380 || l.Stats().EndedByGap != 0 {
					t.Errorf("read %d blocks with stats %+v, want 380 and no reader that ended", len(got), l.Stats())
				}
			})
		})
	}
}

func TestWindowStartsAfterGapInRecentBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedShards()
		f.lacks[380] = true
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		if w := l.Window(); w.After != cursorOf(382) || len(w.Blocks) != 18 {
			t.Errorf("the window begins after %q and has %d blocks, want 18 after block 382", w.After, len(w.Blocks))
		}
		r := joinAt(t, l, blocksOf(), 370)
		for i := 0; i < 10; i++ {
			if _, err := takeAll(r); err != nil {
				if r.Cursor() != cursorOf(378) || !errors.Is(err, ErrGap) {
					t.Errorf("the reader ended with %v at %q, want ErrGap at block 378", err, r.Cursor())
				}
				return
			}
			time.Sleep(repairTimeout)
		}
		t.Error("a reader that resumed before the gap did not end, want ErrGap")
	})
}

func TestPageIsRejectedIfTheBlocksBeforeItAreInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storedShards()
		src := f.source()
		before := src.Before
		src.Before = func(ctx context.Context, b shardBlock, shard *uint64, n int) ([]shardBlock, error) {
			blocks, err := before(ctx, b, shard, n)
			return append(blocks, b), err
		}
		l := New(src, Options[shardBlock]{Window: 5, Logger: quiet})
		l.Start()
		synctest.Wait()
		if got, gap := readToEnd(t, joinAt(t, l, blocksOf(), 20)); len(got) > 0 || gap != "" {
			t.Errorf("read blocks %d and gap %q, want nothing", got, gap)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNumberOfPermanentGapsIsLimited(t *testing.T) {
	l := New(newShardSource().source(), Options[shardBlock]{})
	for n := range 3 * maxPermanentGaps {
		l.addPermanent(cursorOf(n + 1))
		if l.permanentGaps[cursorOf(n+1)].number == 0 || len(l.permanentGaps) > maxPermanentGaps {
			t.Fatalf("the log has %d permanent gaps after %d were added, want at most %d",
				len(l.permanentGaps), n+1, maxPermanentGaps)
		}
		if n == maxPermanentGaps-1 && len(l.permanentGaps) != maxPermanentGaps {
			t.Errorf("the log has %d permanent gaps after %d were added, want all",
				len(l.permanentGaps), maxPermanentGaps)
		}
	}
}
