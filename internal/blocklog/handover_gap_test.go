package blocklog

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// readToEnd reads until no block arrives for a while, and returns the cursor before a reported gap, if there is one.
func readToEnd(t *testing.T, r *Reader[shardBlock]) (got []int, gap string) {
	t.Helper()
	for range 20 {
		more, err := takeAll(r)
		got = append(got, more...)
		var lost *Lost
		if errors.As(err, &lost) && errors.Is(err, ErrGap) {
			return got, lost.Cursor
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	return got, ""
}

// quietChain returns a chain that is followed live from block 2 on. Its block 5, of the base chain, is not stored when
// readers catch up. Blocks of the masterchain follow it, up to block n.
func quietChain(t *testing.T, n int) (*shardSource, *Log[shardBlock]) {
	f := newShardSource()
	f.grow(master(1), base(1))
	l := openShards(t, f, Options[shardBlock]{Window: 6})
	synctest.Wait()
	f.grow(base(2), master(2), base(3))
	for i := range n - 5 {
		f.grow(master(uint32(3 + i)))
	}
	synctest.Wait()
	f.lacks[5] = true
	return f, l
}

func TestGapBetweenPagesAndWindowIsReported(t *testing.T) {
	for name, more := range map[string]int{"none has come": 0, "one in the window": 1, "the window begins at the end of a page": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, l := quietChain(t, 102)
				if more > 0 { // after the first page, which ends with block 103
					f.grow(master(100), master(101), base(4))
				}
				for n := range more {
					f.grow(master(uint32(102 + n)))
				}
				if synctest.Wait(); more == 4 && l.Window().After != cursorOf(103) {
					t.Fatalf("the window begins after %q", l.Window().After)
				}
				newest := len(f.all)
				all := joinAt(t, l, blocksOf(), 2)
				if _, gap := readToEnd(t, all); gap != cursorOf(3) {
					t.Errorf("a reader of all blocks gap reported after %q, want %q", gap, cursorOf(3))
				}
				all.Close()
				i, back := blocksOf(), cursorOf(3)
				i.After, i.Mark = &back, all.Mark(back)
				again, err := l.Join(i)
				if err != nil {
					t.Fatal(err)
				}
				if got, gap := readToEnd(t, again); gap != "" || !slices.Equal(got, append([]int{4}, numbers(6, newest)...)) {
					t.Errorf("its client, back again, has had %d, gap %q", got, gap)
				}
				if got, gap := readToEnd(t, joinAt(t, l, blocksOf(-1), 2)); gap != "" || len(got) < 21 {
					t.Errorf("a reader of the masterchain has had %d, gap %q", got, gap)
				}
				had, gap := readToEnd(t, joinAt(t, l, blocksOf(), 5)) // it has the missing block, but the log cannot know
				if more == 0 && (gap != "" || !slices.Equal(had, numbers(6, newest))) || more > 0 && gap != cursorOf(3) {
					t.Errorf("a reader that has had the missing block has had %d, gap %q", had, gap)
				}
				for range 2 { // a client with the block before the missing one lacks that
					if _, gap := readToEnd(t, joinAt(t, l, blocksOf(), 3)); gap != cursorOf(3) {
						t.Errorf("a reader from the block before it gap reported after %q", gap)
					}
				}
				f.set(func() { delete(f.lacks, 5) })
				if got, gap := readToEnd(t, joinAt(t, l, blocksOf(), 2)); gap != "" || !slices.Equal(got, numbers(3, newest)) {
					t.Errorf("when all is stored, a reader has had %d, gap %q", got, gap)
				}
			})
		})
	}
}

func TestSharedPageReportsOnlyGapsAfterEachCursor(t *testing.T) {
	for _, lateAsks := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f, l := quietChain(t, 150)
			early, late := joinAt(t, l, blocksOf(), 2), joinAt(t, l, blocksOf(), 103)
			if _, err := takeAll(early); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			both := []*Reader[shardBlock]{early, late}
			if lateAsks {
				slices.Reverse(both)
			}
			f.paging = make(chan struct{})
			for _, r := range both { // the first page of the one, the second of the other
				if _, err := takeAll(r); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if early.awaited == nil || early.awaited != late.awaited {
				t.Fatal("they wait for different pages")
			}
			close(f.paging)
			if _, gap := readToEnd(t, early); gap != cursorOf(3) {
				t.Errorf("the reader from before the missing block gap reported after %q", gap)
			}
			if got, gap := readToEnd(t, late); gap != "" || !slices.Equal(got, numbers(104, len(f.all))) {
				t.Errorf("the reader from after it has had %d, gap %q", got, gap)
			}
		})
	}
}

// A client that resumes soon after the missing block may have received it or not.
func TestGapAroundTheCursorIsReportedOncePerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := quietChain(t, 131)
		f.grow(base(4), master(129))
		synctest.Wait()
		l.addLasting(cursorOf(1)) // another gap
		i, after := blocksOf(), cursorOf(30)
		i.After = &after
		var first *Reader[shardBlock]
		for n, mark := range []Mark{0, 0, newMark(l.gaps.Load(), l.lastingNumber.Load())} { // the last client knows of the other gap
			i.Mark = mark
			r, err := l.Join(i)
			if err != nil {
				t.Fatal(err)
			}
			if _, gap := readToEnd(t, r); gap != cursorOf(3) {
				t.Errorf("client %d gap reported after %q", n, gap)
			}
			if first == nil {
				first = r
			}
		}
		i.Mark = first.Mark(first.Cursor()) &^ markHere // it continued, and its connection was cut
		back, err := l.Join(i)
		if err != nil {
			t.Fatal(err)
		}
		if got, gap := readToEnd(t, back); gap != "" || !slices.Equal(got, numbers(31, 133)) {
			t.Errorf("the first one, further on, has had %d, gap %q", got, gap)
		}
	})
}

func TestBlockThatArrivesDuringHandoverShowsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := quietChain(t, 25)
		r := joinAt(t, l, blocksOf(), 2)
		if _, err := takeAll(r); err != nil { // asks for the page
			t.Fatal(err)
		}
		synctest.Wait()
		for len(f.all) > 0 {
			item, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if item.Cursor == cursorOf(len(f.all)) {
				break
			}
		}
		s := l.prepareHandover(r)
		if s == nil || s.hasGaps() {
			t.Fatalf("the window shows %+v", s)
		}
		f.grow(base(4)) // takes the place of the log's newest block of that shard
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.checkHandover(s); !s.hasGaps() || s.gaps[0].before != cursorOf(3) {
			t.Errorf("the new block shows %+v", s.gaps)
		}
	})
}

// The last 32 blocks up to a cursor show a gap right after it in their shards.
func TestGapRightAfterTheCursorInAnotherShardIsReported(t *testing.T) {
	for name, between := range map[string]uint32{"shown by the last of the blocks that are read": startBlocks - 1, "by none": startBlocks} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(base(1), base(2)) // the second is block 2
				for n := range between {
					f.grow(master(1 + n))
				}
				at := len(f.all) // the cursor
				f.grow(base(3), master(1+between), base(4))
				f.lacks[at+1] = true
				for n := range uint32(200) {
					f.grow(master(2 + between + n))
				}
				l := openShards(t, f, Options[shardBlock]{Window: 5})
				synctest.Wait()
				got, gap := readToEnd(t, joinAt(t, l, blocksOf(), at))
				if between < startBlocks && gap != cursorOf(2) && gap != cursorOf(at) || between == startBlocks && gap != "" {
					t.Errorf("gap after %q, having had %d", gap, got)
				}
				if len(f.looked) != 1 && gap == "" {
					t.Errorf("%d calls for the blocks up to the cursor", len(f.looked))
				}
				if _, again := readToEnd(t, joinAt(t, l, blocksOf(), at)); again != gap {
					t.Errorf("the next time: gap after %q", again)
				}
			})
		})
	}
}
