package blocklog

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// readToEnd reads for 20 s or until a gap is reported. It returns the blocks, and the cursor before the gap if there is
// one.
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

// quietChain returns a chain with n blocks, and a log that follows it live from block 2 on. Block 5, which belongs to
// the base chain, is not stored any more when readers catch up. The blocks after it belong to the masterchain.
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
	for name, more := range map[string]int{
		"no block shows the gap":                                    0,
		"a block in the window shows the gap":                       1,
		"a block shows the gap, and the window begins after a page": 4,
	} {
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
					t.Fatalf("the window begins after %q, want block 103", l.Window().After)
				}
				newest := len(f.all)
				all := joinAt(t, l, blocksOf(), 2)
				if _, gap := readToEnd(t, all); gap != cursorOf(3) {
					t.Errorf("a reader of all blocks received a gap after %q, want %q", gap, cursorOf(3))
				}
				all.Close()
				i, back := blocksOf(), cursorOf(3)
				i.After, i.Reported = &back, all.reportedAt(back)
				again, err := l.Join(i)
				if err != nil {
					t.Fatal(err)
				}
				got, gap := readToEnd(t, again)
				if gap != "" || !slices.Equal(got, append([]int{4}, numbers(6, newest)...)) {
					t.Errorf("when its client resumed, the reader received blocks %d and gap %q, want no gap", got, gap)
				}
				if got, gap := readToEnd(t, joinAt(t, l, blocksOf(-1), 2)); gap != "" || len(got) < 21 {
					t.Errorf("a reader of the masterchain received blocks %d and gap %q, want no gap", got, gap)
				}
				// The client of this reader has received the missing block, but the log cannot know that.
				got, gap = readToEnd(t, joinAt(t, l, blocksOf(), 5))
				complete := gap == "" && slices.Equal(got, numbers(6, newest))
				if more == 0 && !complete || more > 0 && gap != cursorOf(3) {
					t.Errorf("a reader that resumes from the missing block received blocks %d and gap %q", got, gap)
				}
				for range 2 { // the clients of these readers lack the missing block
					if _, gap := readToEnd(t, joinAt(t, l, blocksOf(), 3)); gap != cursorOf(3) {
						t.Errorf("a reader that resumes before the missing block received gap %q, want %q",
							gap, cursorOf(3))
					}
				}
				f.set(func() { delete(f.lacks, 5) })
				got, gap = readToEnd(t, joinAt(t, l, blocksOf(), 2))
				if gap != "" || !slices.Equal(got, numbers(3, newest)) {
					t.Errorf("with all blocks stored, a reader received blocks %d and gap %q, want no gap", got, gap)
				}
			})
		})
	}
}

func TestReadersOfASharedPageReceiveOnlyGapsAfterTheirCursors(t *testing.T) {
	for _, lateFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f, l := quietChain(t, 150)
			early, late := joinAt(t, l, blocksOf(), 2), joinAt(t, l, blocksOf(), 103)
			if _, err := takeAll(early); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			both := []*Reader[shardBlock]{early, late}
			if lateFirst {
				slices.Reverse(both)
			}
			f.paging = make(chan struct{})
			for _, r := range both { // requests the second page of early, which is the first page of late
				if _, err := takeAll(r); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if early.awaited == nil || early.awaited != late.awaited {
				t.Fatal("the readers do not wait for the same page")
			}
			close(f.paging)
			if _, gap := readToEnd(t, early); gap != cursorOf(3) {
				t.Errorf("the reader that resumed before the missing block received gap %q, want %q", gap, cursorOf(3))
			}
			if got, gap := readToEnd(t, late); gap != "" || !slices.Equal(got, numbers(104, len(f.all))) {
				t.Errorf("the reader that resumed after the missing block received blocks %d and gap %q", got, gap)
			}
		})
	}
}

// The log cannot know whether a client that resumes soon after the missing block has received that block.
func TestGapAroundTheCursorIsReportedOncePerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := quietChain(t, 131)
		f.grow(base(4), master(129))
		synctest.Wait()
		l.addPermanent(cursorOf(1)) // another gap
		i, after := blocksOf(), cursorOf(30)
		i.After = &after
		var first *Reader[shardBlock]
		// Only the other gap was reported to the last client.
		otherGap := newReportedGaps(l.gaps.Load(), l.permanentNumber.Load())
		for n, reported := range []ReportedGaps{0, 0, otherGap} {
			i.Reported = reported
			r, err := l.Join(i)
			if err != nil {
				t.Fatal(err)
			}
			if _, gap := readToEnd(t, r); gap != cursorOf(3) {
				t.Errorf("client %d received gap %q, want %q", n, gap, cursorOf(3))
			}
			if first == nil {
				first = r
			}
		}
		// The first client continued, and its connection was cut.
		i.Reported = first.reportedAt(first.Cursor()) &^ sentBackHere
		back, err := l.Join(i)
		if err != nil {
			t.Fatal(err)
		}
		if got, gap := readToEnd(t, back); gap != "" || !slices.Equal(got, numbers(31, 133)) {
			t.Errorf("the first client resumed later and received blocks %d and gap %q, want no gap", got, gap)
		}
	})
}

func TestBlockThatArrivesWhileAReaderBecomesLiveRevealsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := quietChain(t, 25)
		r := joinAt(t, l, blocksOf(), 2)
		if _, err := takeAll(r); err != nil { // requests the page
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
			t.Fatalf("prepareHandover returned %+v, want no gap", s)
		}
		f.grow(base(4)) // replaces the log's head of that shard
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.checkHandover(s); !s.hasGaps() || s.gaps[0].before != cursorOf(3) {
			t.Errorf("the new block revealed gaps %+v, want one after block 3", s.gaps)
		}
	})
}

// The last 32 blocks up to a cursor show gaps right after the cursor in the shards of these blocks.
func TestGapRightAfterTheCursorInAnotherShardIsReported(t *testing.T) {
	for name, between := range map[string]uint32{
		"the oldest of the blocks that are read shows the gap": startBlocks - 1,
		"none of the blocks that are read shows the gap":       startBlocks,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(base(1), base(2))
				for n := range between {
					f.grow(master(1 + n))
				}
				at := len(f.all) // the block at the cursor
				f.grow(base(3), master(1+between), base(4))
				f.lacks[at+1] = true
				for n := range uint32(200) {
					f.grow(master(2 + between + n))
				}
				l := openShards(t, f, Options[shardBlock]{Window: 5})
				synctest.Wait()
				got, gap := readToEnd(t, joinAt(t, l, blocksOf(), at))
				shown := between < startBlocks
				if shown && gap != cursorOf(2) && gap != cursorOf(at) || !shown && gap != "" {
					t.Errorf("received blocks %d and gap %q, want a gap: %v", got, gap, shown)
				}
				if len(f.looked) != 1 && gap == "" {
					t.Errorf("Before was called %d times for the blocks up to the cursor, want once", len(f.looked))
				}
				if _, again := readToEnd(t, joinAt(t, l, blocksOf(), at)); again != gap {
					t.Errorf("the next reader received gap %q, want %q", again, gap)
				}
			})
		})
	}
}
