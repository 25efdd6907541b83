package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// checkReported checks that a gap was reported for each block that the client lacks, if the client received the blocks
// before and after it in its shard. It makes an exception if the client resumed between these two blocks, for any
// reason, because the log cannot know then that the client lacks the block.
func (w *modelClient) checkReported(t *testing.T, f *shardSource) {
	t.Helper()
	newest := make(map[Place]int) // the client's newest block of each shard
	for _, n := range w.got {
		p := f.all[n-1].Place
		shard := Place{Workchain: p.Workchain, Shard: p.Shard}
		before := newest[shard]
		if newest[shard] = n; before == 0 || f.all[before-1].SeqNo+1 == p.SeqNo {
			continue
		}
		missing := 0
		for _, m := range slices.Backward(f.all[before : n-1]) {
			if m.Workchain == p.Workchain && overlap(m.Shard, p.Shard) {
				missing = m.number
				if m.Shard != p.Shard { // the shard has split and merged meanwhile
					missing = 0
					break
				}
			}
		}
		if missing == 0 {
			continue
		}
		from, until := cursorOf(before), cursorOf(n)
		back := func(cursor string) bool { return cursor >= from && cursor < until }
		if !slices.ContainsFunc(w.sentBack, back) && !slices.ContainsFunc(w.cuts, back) {
			t.Errorf("client %q from %q received no gap for block %d between %q and %q: sent back to %q, cut at %q",
				w.interest.Key, w.start, missing, from, until, w.sentBack, w.cuts)
		}
	}
}

// lateChain returns a chain whose block 3, of the base chain, is not stored at first, so that readers pass its place
// without it. Block 240 shows that it was missing.
func lateChain() *shardSource {
	f := newShardSource()
	f.grow(base(1), master(1), base(2))
	for n := range uint32(396) {
		if f.grow(master(2 + n)); n == 235 {
			f.grow(base(3))
		}
	}
	f.lacks[3] = true
	return f
}

func TestGapIsReportedAfterTheReadersPageWasDropped(t *testing.T) {
	for name, had := range map[string]int{"no block read": 0, "some blocks read": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := lateChain()
				l := openShards(t, f, Options[shardBlock]{Window: 5})
				limitHeld(l, 1)
				synctest.Wait()
				r := joinAt(t, l, blocksOf(), 1)
				for range 2 { // requests a page, reads it and requests the next one
					if _, err := takeAll(r); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				for range had {
					if item, err := r.Next(); err != nil || item.Payload == nil {
						t.Fatalf("Next returned %+v and error %v, want a block", item, err)
					}
				}
				at := r.Cursor()
				expectNow(t, joinAt(t, l, blocksOf(), 300)) // the page of this reader replaces the held page
				time.Sleep(holdTime)
				synctest.Wait()
				if c := r.catchUp; c != nil && len(c.entries) > 0 {
					t.Error("the reader still has entries, want its page dropped")
				}
				f.set(func() { delete(f.lacks, 3) })
				if got, gap := readToEnd(t, r); gap != cursorOf(1) || at == cursorOf(1) {
					t.Errorf("a reader at %q received blocks %d and gap %q, want a gap after block 1", at, got, gap)
				}
			})
		})
	}
}

func TestGapIsReportedAfterTheLogLostItsPosition(t *testing.T) {
	for name, window := range map[string]int{"live reader": 100, "catching-up reader": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1), base(1))
				l := openShards(t, f, Options[shardBlock]{Window: window})
				synctest.Wait()
				r := joinAt(t, l, blocksOf())
				f.growSkipped([]int{3}, base(2), master(2))
				synctest.Wait()
				expectNow(t, r, 4)
				for n := range uint32(100) {
					f.grow(master(3 + n))
				}
				synctest.Wait()
				for range 50 {
					if _, err := r.Next(); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				f.set(func() { f.down, f.gone = errDown, 2 })
				time.Sleep(time.Minute)
				f.set(func() { f.down = nil })
				time.Sleep(time.Minute)
				f.grow(base(3))
				if got, gap := readToEnd(t, r); gap != cursorOf(2) {
					t.Errorf("the reader received blocks %d and gap %q, want a gap after block 2", got, gap)
				}
			})
		})
	}
}

// A reader that resumes in the window reads no page that could show the gap, but the log also knows blocks from before
// its window.
func TestGapAtTheBeginningOfTheWindowIsReported(t *testing.T) {
	for name, lacks := range map[string]bool{"missing": true, "stored": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				bases, others := uint32(0), uint32(0)
				for n := range 300 {
					if n+1 == 191 || n+1 == 207 || n+1 == 208 {
						bases++
						f.grow(base(bases))
					} else {
						others++
						f.grow(other(others))
					}
				}
				f.lacks[207] = lacks
				l := openShards(t, f, Options[shardBlock]{})
				synctest.Wait()
				r := joinAt(t, l, blocksOf(), 205)
				if got, gap := readToEnd(t, r); lacks && gap != cursorOf(191) || !lacks && len(got) != 95 {
					t.Errorf("read blocks %d and gap %q, want a gap: %v", got, gap, lacks)
				}
				if !lacks && len(f.pages)+len(f.looked) > 0 {
					t.Errorf("Page was called after %q and Before for blocks %d, want no calls", f.pages, f.looked)
				}
			})
		})
	}
}
