package blocklog

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// resume joins a reader that resumes from a cursor and matches every nth block.
func resume(t *testing.T, l *Log[int], cursor string, n int) *Reader[int] {
	t.Helper()
	r, err := l.Join(Interest[int]{Key: key(n), After: &cursor, Eval: every(n)})
	if err != nil {
		t.Fatalf("Join returned error %v", err)
	}
	return r
}

// readAll reads until no item arrives for one second or Next returns an error.
func readAll(t *testing.T, r *Reader[int]) (got []int, err error) {
	t.Helper()
	for {
		more, err := read(t, r)
		if got = append(got, more...); err != nil {
			return got, err
		}
		time.Sleep(time.Second)
		synctest.Wait()
		more, err = read(t, r)
		if got = append(got, more...); len(more) == 0 || err != nil {
			return got, err
		}
	}
}

// expectAll expects that the reader receives exactly the blocks want before it waits for more.
func expectAll(t *testing.T, r *Reader[int], want ...int) {
	t.Helper()
	if got, err := readAll(t, r); err != nil || !slices.Equal(got, want) {
		t.Fatalf("read blocks %v and error %v, want blocks %v", got, err, want)
	}
}

// expectLost expects that the reader ends at the cursor before any item, because the source has pruned its blocks.
func expectLost(t *testing.T, r *Reader[int], cursor string) {
	t.Helper()
	got, err := readAll(t, r)
	var lost *Lost
	if !errors.As(err, &lost) || lost.Cursor != cursor || r.Cursor() != cursor || !errors.Is(err, errGone) ||
		got != nil {
		t.Errorf("read blocks %v and error %v, and Cursor is %q; want no blocks and Lost at %q",
			got, err, r.Cursor(), cursor)
	}
}

func TestResumedReaderReceivesStoredThenLiveBlocks(t *testing.T) {
	for _, step := range []int{1, 3, 70} {
		for after, from := range map[string]int{
			"": 0, cursorOf(7): 7, between(120): 120, cursorOf(395): 395, cursorOf(400): 400,
		} {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(390)
				l := openStarted(t, c, Options[int]{Window: 8})
				c.grow(10)
				synctest.Wait()
				r := resume(t, l, after, step)
				if l.Stats().CatchingUp != 1 {
					t.Error("Stats does not count the reader as catching up before its first Next")
				}
				var got []int
				for range 1000 { // the reader reads three times as fast as the chain grows
					if c.newest < 600 {
						c.grow(1)
					}
					for range 3 {
						synctest.Wait()
						if item, err := r.Next(); err != nil {
							t.Fatal(err)
						} else if item.Payload != nil {
							n, _ := numberAfter(item.Cursor)
							got = append(got, n-1)
						}
					}
				}
				if want := upTo(from+1, 600, step); !slices.Equal(got, want) {
					t.Errorf("read blocks %v, want %v", got, want)
				}
				s := l.Stats()
				if s.CaughtUp == 0 || s.CatchingUp != 0 || s.Resumed != 1 || r.Cursor() != cursorOf(600) {
					t.Errorf("stats are %+v and Cursor is %q; want one live reader at block 600", s, r.Cursor())
				}
			})
		}
	}
}

func TestReaderThatFellOutOfTheWindowCatchesUpAndBecomesLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(7)
		l := open(t, c, Options[int]{Window: 10})
		never, some, idle := join(t, l, 1), join(t, l, 1), join(t, l, 1000)
		synctest.Wait()
		c.grow(4)
		synctest.Wait()
		if item, err := some.Next(); err != nil || item.Cursor != cursorOf(8) {
			t.Fatalf("Next returned %+v and error %v, want block 8", item, err)
		}
		c.grow(7) // block 8 has left the window, block 9 has not
		synctest.Wait()
		expect(t, some, upTo(9, 18, 1)...)
		if len(c.pages) > 0 {
			t.Errorf("the source returned pages after %q for a reader in the window, want none", c.pages)
		}
		expect(t, never)
		if s := l.Stats(); s.CatchingUp != 1 || s.Resumed != 0 || never.Cursor() != cursorOf(7) {
			t.Errorf("stats are %+v and Cursor is %q; want one reader that catches up from block 7", s, never.Cursor())
		}
		c.grow(400)
		synctest.Wait()
		expect(t, idle)
		if idle.Cursor() != cursorOf(418) {
			t.Errorf("Cursor of a reader without matches is %q, want that of block 418", idle.Cursor())
		}
		expectAll(t, never, upTo(8, 418, 1)...)
		expectAll(t, some, upTo(19, 418, 1)...)
		c.grow(1)
		synctest.Wait()
		pages := len(c.pages)
		for _, r := range []*Reader[int]{never, some} {
			expect(t, r, 419)
		}
		if s := l.Stats(); s.CatchingUp != 0 || s.CaughtUp != 2 || len(c.pages) != pages || int(s.PageReads) != pages {
			t.Errorf("stats are %+v after %d pages, want 2 readers that caught up with %d pages",
				s, len(c.pages), pages)
		}
		for _, r := range []*Reader[int]{never, some, idle} {
			if len(r.group.items) > 0 {
				t.Errorf("the group keeps %d items after all readers have read them, want 0", len(r.group.items))
			}
		}
	})
}

func TestEvalPanicEndsReaderThatIsCatchingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		c.pageTakes = time.Second
		l := open(t, c, Options[int]{Window: 5})
		eval := func(b int) []byte {
			if b == 5 || b == 20 {
				panic(errGone)
			}
			return every(1)(b)
		}
		l.Start()
		synctest.Wait()
		zero, seven := "", cursorOf(7)
		early, _ := l.Join(Interest[int]{Key: "bad", After: &zero, Eval: eval})
		got, err := readAll(t, early)
		var lost *Lost
		if !errors.As(err, &lost) || lost.Cursor != cursorOf(4) || !slices.Equal(got, []int{1, 2, 3, 4}) {
			t.Errorf("read blocks %v and error %v, want blocks 1 to 4 and Lost after block 4", got, err)
		}
		woken := 0
		wake := xsync.WakeFunc(func() { woken++ })
		late, _ := l.Join(Interest[int]{Key: "bad", After: &seven, Eval: eval, Wake: wake})
		expect(t, late)
		c.grow(10)
		synctest.Wait()
		if _, err := late.Next(); !errors.As(err, &lost) || lost.Cursor != seven || woken != 1 {
			t.Errorf("got error %v and %d wakes, want Lost at block 7 and one wake", err, woken)
		}
		late.Close()
		late.Close()
		early.Close()
		if s := l.Stats(); s.CatchingUp != 0 || s.Readers != 0 {
			t.Errorf("stats are %+v after all readers were closed, want no readers", s)
		}
	})
}

// A caller serves a Reader that searches stored blocks after the others, which have new blocks.
func TestReaderReportsThatItSearchesUntilItIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, newChain(390), Options[int]{Window: 8})
		l.Start()
		synctest.Wait()
		r := resume(t, l, "", 1_000_000) // matches nothing
		searched := 0
		for range 100 {
			item, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); item.Searching {
				searched++
			}
		}
		if searched == 0 || searched > 50 {
			t.Errorf("the reader reported %d of 100 times that it searches, want that until it is live", searched)
		}
	})
}

// Otherwise a client that receives blocks of each page would wait for one turn of all searches per page. It does not
// matter whether the last block of a page matches.
func TestReaderThatFindsBlocksDoesNotReportThatItSearches(t *testing.T) {
	for _, step := range []int{1, 3, 60} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, newChain(390), Options[int]{Window: 8})
			l.Start()
			synctest.Wait()
			r := resume(t, l, "", step)
			for got := 0; got < 390/step; synctest.Wait() {
				item, err := r.Next()
				if err != nil || item.Searching {
					t.Fatalf("a reader of every block divisible by %d returned %+v and error %v after %d blocks, "+
						"want no search", step, item, err, got)
				}
				if item.Payload != nil {
					got++
				}
			}
		})
	}
}

// A live client that was too slow for the window resumes: it should not wait for all that search.
func TestReaderThatLeavesTheWindowDoesNotReportThatItSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(20)
		l := openStarted(t, c, Options[int]{Window: 8})
		r := resume(t, l, "", 20) // its page has no match, except at its end
		for item, err := r.Next(); item.Searching || item.Behind; item, err = r.Next() {
			if synctest.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		c.grow(200)
		synctest.Wait()
		for range 3 {
			if item, err := r.Next(); err != nil || item.Searching {
				t.Errorf("the reader returned %+v and error %v, want no search", item, err)
			}
		}
	})
}
