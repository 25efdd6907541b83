package blocklog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

func master(seqNo uint32) Place { return Place{-1, wholeShard, seqNo} }
func base(seqNo uint32) Place   { return Place{0, wholeShard, seqNo} }
func other(seqNo uint32) Place  { return Place{1, wholeShard, seqNo} }

// gapEvents records the calls of Events.Gap.
type gapEvents []string

func (s *gapEvents) gap(workchain int32, after string, repaired bool, n int) {
	*s = append(*s, fmt.Sprint(workchain, " ", after, " ", repaired, " ", n))
}

func TestGapBeforeUndeliveredBlocksIsRepairedWithoutEndingReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		var gaps gapEvents
		var blocks []int
		block := func(p shardBlock) { blocks = append(blocks, p.number) }
		l := openShards(t, f, Options[shardBlock]{Events: Events[shardBlock]{Gap: gaps.gap, Block: block}})
		r := joinAt(t, l, blocksOf())
		synctest.Wait()
		f.growSkipped([]int{4, 5}, base(2), base(3), base(4), base(5), master(2))
		synctest.Wait()
		for n := 3; n <= 7; n++ {
			if item, err := r.Next(); err != nil || item.Cursor != cursorOf(n) || !item.Arrived.Equal(time.Now()) {
				t.Fatalf("Next returned %+v and error %v, want block %d that arrived now", item, err, n)
			}
		}
		s := l.Stats()
		if s.GapsFound != 1 || s.GapsRepaired != 1 || s.EndedByGap != 0 || s.Blocks != 5 || s.CaughtUp != 0 {
			t.Errorf("got stats %+v, want one repaired gap that ended no reader", s)
		}
		if !slices.Equal(gaps, gapEvents{"0 000003 true 0"}) || !slices.Equal(blocks, []int{3, 4, 5, 6, 7}) {
			t.Errorf("got gap events %q and blocks %v, want one repaired gap and blocks 3 to 7", gaps, blocks)
		}
		if !slices.Equal(f.asked, []string{cursorOf(3)}) {
			t.Errorf("Between was called after %q, want one call after block 3", f.asked)
		}
	})
}

// Block 4 of the base chain is missing. The gap is found after two blocks of the masterchain and one of another
// workchain have been delivered.
func TestLateGapEndsOnlyReadersOfLaterBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1), other(1))
		var gaps gapEvents
		l := openShards(t, f, Options[shardBlock]{Events: Events[shardBlock]{Gap: gaps.gap}})
		synctest.Wait()
		var wakes int
		masters, bases, all := joinAt(t, l, blocksOf(-1)), joinAt(t, l, blocksOf(0)), joinAt(t, l, blocksOf())
		slow, both := joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf(0, -1))
		i := blocksOf(1)
		i.Wake = xsync.WakeFunc(func() { wakes++ })
		others := joinAt(t, l, i)
		f.growSkipped([]int{4}, base(2), master(2), master(3), other(2))
		synctest.Wait()
		added := joinAt(t, l, blocksOf()) // receives no block from before it joined
		from5, from3 := joinAt(t, l, blocksOf(), 5), joinAt(t, l, blocksOf(0), 3)
		expectNow(t, masters, 5, 6)
		expectNow(t, bases)
		expectNow(t, all, 5, 6, 7)
		expectNow(t, from5, 6, 7)
		expectNow(t, from3)
		if item, err := both.Next(); item.Cursor != cursorOf(5) || err != nil {
			t.Fatalf("Next returned %+v and error %v, want block 5", item, err)
		}
		f.grow(base(3), master(4))
		synctest.Wait()
		expectNow(t, masters, 9)
		expectNow(t, bases, 4, 8)
		expectGap(t, all, 3)
		expectGap(t, both, 3)
		expectNow(t, slow, 4, 5, 6, 7, 8, 9)
		expectNow(t, others, 7)
		expectNow(t, added, 8, 9)
		expectGap(t, from5, 3) // its client may have received block 5 while block 4 was missing
		expectNow(t, from3, 4, 8)
		again := joinAt(t, l, blocksOf(), 3)
		expectNow(t, again, 4, 5, 6, 7, 8, 9)
		if len(f.pages) > 0 || !slices.Equal(gaps, gapEvents{"0 000002 true 3"}) {
			t.Errorf("got pages after %q and gap events %q, want no page and one repaired gap", f.pages, gaps)
		}
		if wakes > 2 {
			t.Errorf("a reader of another workchain was woken %d times, want at most 2", wakes)
		}
		s := l.Stats()
		if s.GapsFound != 1 || s.GapsRepaired != 1 || s.EndedByGap != 3 || s.Blocks != 6 || s.CatchingUp != 3 {
			t.Errorf("got stats %+v, want one repaired gap that ended 3 readers", s)
		}
		w := l.Window()
		for n, p := range w.Blocks {
			if p.number != n+2 {
				t.Errorf("the window has blocks %v, want blocks from 2 on in order", w.Blocks)
			}
		}
		for _, r := range []*Reader[shardBlock]{masters, bases, all, slow, both, others, added, from5, from3, again} {
			r.Close()
		}
		if s := l.Stats(); s.CatchingUp != 0 || s.Groups != 0 {
			t.Errorf("stats are %+v after all readers were closed, want no readers", s)
		}
	})
}

func TestLateBlockHasNoArrivalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		r := joinAt(t, l, blocksOf(0))
		f.growSkipped([]int{3}, base(2), master(2), base(3))
		synctest.Wait()
		if item, _ := r.Next(); item.Cursor != cursorOf(3) || !item.Arrived.IsZero() {
			t.Errorf("Next returned %+v, want block 3 without an arrival time", item)
		}
		if item, _ := r.Next(); item.Cursor != cursorOf(5) || item.Arrived.IsZero() {
			t.Errorf("Next returned %+v, want block 5 with an arrival time", item)
		}
	})
}

func TestLateBlockBeforeTheWindowIsReadFromTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{Window: 3})
		synctest.Wait()
		bases, all, slow := joinAt(t, l, blocksOf(0)), joinAt(t, l, blocksOf()), joinAt(t, l, blocksOf())
		f.growSkipped([]int{3}, base(2), master(2), master(3))
		synctest.Wait()
		expectNow(t, all, 4, 5)
		f.grow(master(4), master(5), master(6))
		synctest.Wait()
		expectNow(t, all, 6, 7, 8)
		f.grow(base(3))
		synctest.Wait()
		expectEventually(t, bases, 3, 9)
		expectGap(t, all, 2)
		expectEventually(t, slow, 3, 4, 5, 6, 7, 8, 9)
		if len(f.pages) == 0 || len(l.Window().Blocks) != 3 {
			t.Errorf("got pages after %q and window %+v, want at least one page and 3 blocks", f.pages, l.Window())
		}
	})
}

func TestLateBlockBeforeTheWindowIsNotInserted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		f.lacks[5] = true
		f.growSkipped([]int{3, 5}, base(2), master(2), master(3), master(4)) // block 5 is never stored
		time.Sleep(repairTimeout)
		bases := joinAt(t, l, blocksOf(0), 2)
		f.grow(other(1), base(3))
		synctest.Wait()
		w := l.Window()
		if w.After != cursorOf(6) || len(w.Blocks) != 2 || w.Blocks[0].number != 7 || l.Stats().GapsRepaired != 1 {
			t.Errorf("got window %+v and stats %+v, want blocks 7 and 8 and one repaired gap", w, l.Stats())
		}
		expectEventually(t, bases, 3, 8)
	})
}

func TestPagesReadBeforeARepairAreReadAgain(t *testing.T) {
	for _, took := range []int{0, 1} { // number of received blocks after the gap
		synctest.Test(t, func(t *testing.T) {
			f := newShardSource()
			for n := range 10 {
				f.grow(master(uint32(n + 1)))
			}
			f.grow(base(1))
			l := openShards(t, f, Options[shardBlock]{Window: 2})
			synctest.Wait()
			f.lacks[12] = true
			f.growSkipped([]int{12}, base(2), master(11), master(12), master(13), master(14))
			synctest.Wait()
			paged, waiting := joinAt(t, l, blocksOf(), 10), joinAt(t, l, blocksOf(), 9)
			asking := joinAt(t, l, blocksOf(), 8)
			expectNow(t, paged)
			expectNow(t, waiting)
			synctest.Wait()
			expectNow(t, asking) // its page is being read
			f.set(func() { f.paging = make(chan struct{}) })
			for range 1 + took {
				if _, err := paged.Next(); err != nil { // the page of the reader lacks block 12
					t.Fatal(err)
				}
			}
			late := joinAt(t, l, blocksOf(), 7)
			expectNow(t, late)
			synctest.Wait()
			f.set(func() { delete(f.lacks, 12) })
			f.grow(base(3))
			synctest.Wait()
			expectNow(t, late) // the reader waits for a second read of its page
			close(f.paging)
			f.set(func() { f.paging = nil })
			if took == 0 {
				expectEventually(t, paged, 12, 13, 14, 15, 16, 17)
			} else {
				expectGap(t, paged, 11)
			}
			expectEventually(t, waiting, 10, 11, 12, 13, 14, 15, 16, 17)
			expectEventually(t, asking, 9, 10, 11, 12, 13, 14, 15, 16, 17)
			expectEventually(t, late, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
		})
	}
}

func TestReaderThatHasTheRepairedBlockContinuesAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		for n := range 10 {
			f.grow(master(uint32(n + 1)))
		}
		f.grow(base(1))
		l := openShards(t, f, Options[shardBlock]{Window: 2})
		synctest.Wait()
		f.growSkipped([]int{12}, base(2), master(11), master(12), master(13), master(14))
		synctest.Wait()
		r := joinAt(t, l, blocksOf(), 11)
		expectNow(t, r)
		synctest.Wait()
		if item, err := r.Next(); item.Cursor != cursorOf(12) || err != nil {
			t.Fatalf("Next returned %+v and error %v, want block 12", item, err)
		}
		f.grow(base(3))
		synctest.Wait()
		expectEventually(t, r, 13, 14, 15, 16, 17)
	})
}

// While the log searches for a missing block and inserts it, readers join existing and new groups, and one reader
// evaluates blocks of the window.
func TestReadersReceiveRepairedBlockInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		var added []*Reader[shardBlock]
		wake := make(chan struct{})
		i := blocksOf(0)
		i.Eval = func(p shardBlock) []byte {
			if p.number == 3 && added == nil {
				for _, key := range []string{"new", i.Key} {
					j := blocksOf()
					j.Key = key
					for range 2 {
						added = append(added, joinAt(t, l, j, 2))
					}
				}
				expectNow(t, added[0], 4, 5) // the reader is live and has received the blocks after the gap
			}
			return blocksOf(0).Eval(p)
		}
		bases := joinAt(t, l, i)
		searching := blocksOf()
		searching.Key = "searching"
		searching.Eval = func(p shardBlock) []byte {
			if p.number == 4 {
				<-wake
			}
			return blocksOf().Eval(p)
		}
		f.growSkipped([]int{3}, base(2), master(2), master(3))
		synctest.Wait()
		r := joinAt(t, l, searching, 2)
		var got []int
		done := make(chan error)
		go func() {
			for len(got) < 4 {
				more, err := takeAll(r)
				if got = append(got, more...); err != nil {
					done <- err
					return
				}
				time.Sleep(time.Second)
			}
			done <- nil
		}()
		synctest.Wait() // the reader is evaluating block 4
		f.grow(base(3))
		synctest.Wait()
		expectNow(t, bases, 3, 6)
		expectGap(t, added[0], 2)
		expectNow(t, added[1], 3, 4, 5, 6)
		expectNow(t, added[2], 3, 6)
		expectNow(t, added[3], 3, 6)
		close(wake)
		if err := <-done; err != nil || !slices.Equal(got, []int{3, 4, 5, 6}) {
			t.Errorf("read blocks %v and error %v, want blocks 3 to 6", got, err)
		}
	})
}

func TestEvalPanicOnLateBlockEndsReaderBeforeTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		i := blocksOf(0)
		i.Eval = func(p shardBlock) []byte {
			if p.number == 3 {
				panic(errDown)
			}
			return blocksOf(0).Eval(p)
		}
		r, fine := joinAt(t, l, i), joinAt(t, l, blocksOf())
		f.growSkipped([]int{3}, base(2), master(2), base(3))
		synctest.Wait()
		_, err := r.Next()
		var lost *Lost
		if !errors.As(err, &lost) || !isPanic(err, errDown) || lost.Cursor != cursorOf(2) {
			t.Errorf("Next returned error %v, want Lost with the panic at block 2", err)
		}
		expectNow(t, fine, 3, 4, 5)
	})
}
