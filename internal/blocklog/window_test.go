package blocklog

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestLogStartsWithTheNewestStoredBlocksInItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(300)
		c.recents = 1000
		blocks := 0
		l := open(t, c, Options[int]{Events: Events[int]{Block: func(int) { blocks++ }}})
		early := join(t, l, 50) // joins before Recent has returned
		other := resume(t, l, cursorOf(230), 50)
		synctest.Wait()
		if w := l.Window(); w.After != cursorOf(200) || !slices.Equal(w.Blocks, upTo(201, 300, 1)) || w.Live ||
			w.Reached != cursorOf(300) || !w.Arrived.IsZero() {
			t.Errorf("got window %+v, want blocks 201 to 300, not live", w)
		}
		if _, ok := l.Arrived(); ok || l.Stats().Blocks > 0 || blocks > 0 || early.Cursor() != cursorOf(300) {
			t.Errorf("stored blocks count as arrived: stats %+v, %d events; a reader is at %q, want block 300",
				l.Stats(), blocks, early.Cursor())
		}
		r := resume(t, l, cursorOf(200), 30)
		if item, err := r.Next(); err != nil || item.Cursor != cursorOf(210) || !item.Arrived.IsZero() {
			t.Errorf("Next returned %+v and error %v, want block 210 without an arrival time", item, err)
		}
		expect(t, r, 240, 270, 300)
		expect(t, other, 250, 300)
		c.grow(50)
		synctest.Wait()
		if item, err := early.Next(); err != nil || item.Cursor != cursorOf(350) || !item.Arrived.Equal(time.Now()) {
			t.Errorf("Next returned %+v and error %v, want block 350 that arrived now", item, err)
		}
		expect(t, r, 330)
		expect(t, other, 350)
		if w := l.Window(); len(c.pages) > 0 || w.After != cursorOf(200) || !w.Live || len(w.Blocks) != 150 ||
			!w.Arrived.Equal(time.Now()) {
			t.Errorf("got pages after %q and window %+v, want no page and 150 blocks, live", c.pages, w)
		}
		if l.Stats().Blocks != 50 || blocks != 50 {
			t.Errorf("stats count %d blocks, and Events.Block was called %d times; want 50", l.Stats().Blocks, blocks)
		}
		before := resume(t, l, cursorOf(199), 100)
		expectAll(t, before, 200, 300)
		if len(c.pages) != 1 {
			t.Errorf("pages after %q were read for a cursor before the window, want one", c.pages)
		}
	})
}

func TestWindowOfStoredBlocksStaysWithinItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(300)
		c.recents = 1000
		l := openStarted(t, c, Options[int]{Window: 7})
		if w := l.Window(); w.After != cursorOf(293) || !slices.Equal(w.Blocks, upTo(294, 300, 1)) {
			t.Errorf("got window %+v, want blocks 294 to 300", w)
		}
	})
}

func TestRecentBlocksBeyondTheRequestedNumberAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newChain(300).source()
		src.Recent = func(context.Context, int) ([]int, error) { return upTo(1, 300, 1), nil }
		l := New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		l.Start()
		synctest.Wait()
		if w := l.Window(); w.After != cursorOf(200) || len(w.Blocks) != 100 {
			t.Errorf("got window %+v, want 100 blocks after block 200", w)
		}
	})
}

func TestReaderThatResumesBeforeTheWindowReadsFromTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(12)
		c.oldest, c.recents = 10, 1000
		l := openStarted(t, c, Options[int]{})
		if w := l.Window(); w.After != cursorOf(10) {
			t.Errorf("got window %+v, want one after block 10", w)
		}
		expectLost(t, resume(t, l, "", 1), "")
		expectAll(t, resume(t, l, cursorOf(9), 1), 10, 11, 12)
	})
}

func TestUnorderedRecentBlocksCountAsSourceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(3)
		src, asked := c.source(), 0
		src.Recent = func(ctx context.Context, n int) ([]int, error) {
			if asked++; asked < 3 {
				return []int{1, 3, 2}, nil
			}
			if n != recentBlocks {
				t.Errorf("Recent was called for %d blocks, want %d", n, recentBlocks)
			}
			return []int{1, 2, 3}, nil
		}
		logger, text := logged()
		l := New(src, Options[int]{Logger: logger})
		defer shut(t, l)
		l.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Count(text.String(), "not in ascending order") != 2 {
			t.Errorf("want two failures in the log:\n%s", text)
		}
		if !slices.Equal(l.Window().Blocks, []int{2, 3}) {
			t.Errorf("got window %+v, want blocks 2 and 3", l.Window())
		}
	})
}

func TestWindowIsLiveWhileBlocksArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(3)
		l := open(t, c, Options[int]{})
		live := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			if w := l.Window(); w.Live != want {
				t.Errorf("%s: Live is %v, want %v", when, w.Live, want)
			}
		}
		live(false, "before Start")
		l.Start()
		live(false, "before the first new block")
		c.grow(1)
		live(true, "after a new block")
		time.Sleep(DefaultSilence - 1)
		live(true, "just before the silence limit")
		time.Sleep(time.Nanosecond)
		live(false, "at the silence limit")
		c.grow(1)
		live(true, "after another block")
		c.set(func() { c.down, c.replay = errDown, 2 })
		live(false, "while the source fails")
		c.set(func() { c.down = nil })
		time.Sleep(DefaultMaxBackoff)
		live(false, "after repeated blocks")
		c.grow(1)
		live(true, "after a block that is not repeated")
		c.set(func() { c.down, c.gone = errDown, 2 })
		time.Sleep(time.Minute)
		if w := l.Window(); w.Blocks != nil || w.Live || w.Reached != cursorOf(6) {
			t.Errorf("the window is %+v without a position, want an empty one that is not live", w)
		}
		c.set(func() { c.down, c.newest = nil, 3 }) // the source lags behind the window
		time.Sleep(time.Minute)
		c.grow(2)
		live(false, "before the highest block is reached again")
		c.grow(1)
		live(true, "when the highest block is reached again")
	})
}

// A test of a host appends a block when Follow has ended, and then sends a query.
func TestWindowIsNotLiveWhenFollowReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Log[int]
		src, _, _ := scripted(func(yield func(int, error) bool) {
			yield(1, nil)
			if !l.Window().Live {
				t.Error("the window is not live after a block, want live")
			}
			if yield(0, errDown); l.Window().Live {
				t.Error("the window is live after Follow has yielded an error, want not live")
			}
		})
		l = New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		l.Start()
		synctest.Wait()
	})
}

func TestWindowStaysLiveWithoutSilenceLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(3)
		failed := func(err error, _ time.Duration) { t.Errorf("Failed was called with %v, want no call", err) }
		l := openStarted(t, c, Options[int]{Silence: -1, Events: Events[int]{Failed: failed}})
		c.grow(1)
		time.Sleep(1000 * time.Hour)
		if !l.Window().Live {
			t.Error("the window is not live, want live")
		}
	})
}

func TestWindowIsNotLiveBeforeItReachesObservedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(3)
		l := openStarted(t, c, Options[int]{})
		c.grow(1)
		synctest.Wait()
		for _, cursor := range []string{cursorOf(4), cursorOf(2), ""} {
			if l.Observed(cursor); !l.Window().Live || l.Window().Reached != cursorOf(4) {
				t.Errorf("the window is not live after Observed(%q), want live", cursor)
			}
		}
		l.Observed(cursorOf(6))
		l.Observed(cursorOf(5))
		if w := l.Window(); w.Live || w.Reached != cursorOf(6) {
			t.Errorf("the window is %+v after block 6 was observed, want not live", w)
		}
		c.grow(1)
		synctest.Wait()
		if l.Window().Live {
			t.Error("the window is live at block 5 after block 6 was observed")
		}
		c.grow(1)
		synctest.Wait()
		if !l.Window().Live {
			t.Error("the window is not live at block 6, which was observed")
		}
	})
}

func TestWindowIsNotLiveBeforeItReachesBlocksOfPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(30)
		src := c.source()
		src.Page = func(context.Context, string, int) ([]int, error) { return []int{21, 31, 33}, nil }
		l := New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		l.Start()
		synctest.Wait()
		c.grow(1)
		synctest.Wait()
		after := cursorOf(20)
		live := true
		wake := xsync.WakeFunc(func() { live = l.Window().Live })
		r, _ := l.Join(Interest[int]{After: &after, Eval: every(1), Wake: wake})
		if item, err := r.Next(); item.Payload != nil || err != nil {
			t.Fatalf("Next returned %+v and error %v, want nothing yet", item, err)
		}
		synctest.Wait()
		if w := l.Window(); live || w.Live || w.Reached != cursorOf(33) {
			t.Errorf("got window %+v, and Live was %v when a reader could read the page; want not live", w, live)
		}
		c.grow(2)
		synctest.Wait()
		if !l.Window().Live {
			t.Error("the window is not live with all blocks of the page, want live")
		}
	})
}

func TestReturnedWindowDoesNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := openStarted(t, c, Options[int]{Window: 10})
		type taken struct {
			Window[int]
			copied []int
		}
		var all []taken
		var readers sync.WaitGroup
		for range 100 {
			before := l.Window()
			c.grow(1)
			synctest.Wait()
			_ = append(before.Blocks, -1) // as a careless caller might do
			w := l.Window()
			all = append(all, taken{w, slices.Clone(w.Blocks)})
			readers.Go(func() {
				for i, b := range w.Blocks {
					if b != w.Blocks[0]+i {
						t.Errorf("the window has blocks %v, want consecutive ones", w.Blocks)
					}
				}
			})
			if len(w.Blocks) != min(10, w.Blocks[len(w.Blocks)-1]) || w.After != cursorOf(w.Blocks[0]-1) {
				t.Errorf("got window %+v, want at most 10 blocks directly after its cursor", w)
			}
		}
		readers.Wait()
		for _, w := range all {
			if !slices.Equal(w.Blocks, w.copied) {
				t.Errorf("the blocks of a window changed from %v to %v", w.copied, w.Blocks)
			}
		}
		if v := l.view.Load(); cap(v.blocks) > 20 || cap(v.stamps) > 20 {
			t.Errorf("the window has room for %d blocks and %d stamps, want at most 20", cap(v.blocks), cap(v.stamps))
		}
	})
}

func TestWindowAndObservedNeitherLockNorAllocate(t *testing.T) {
	l := New(newChain(0).source(), Options[int]{Logger: quiet})
	l.positioned = true
	for n := range 50 {
		l.accept(n + 1)
	}
	l.Observed(cursorOf(60))
	below, above, same := cursorOf(40), cursorOf(55), cursorOf(60)
	l.mu.Lock() // Window and Observed must not wait for it
	defer l.mu.Unlock()
	use := func() { _ = l.Window(); l.Observed(below); l.Observed(above); l.Observed(same) }
	if n := testing.AllocsPerRun(100, use); n > 0 {
		t.Errorf("Window and Observed made %v allocations, want 0", n)
	}
}

func TestBlockIsInTheWindowBeforeReadersAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		n := 0
		l.Join(Interest[int]{Eval: every(1), Wake: xsync.WakeFunc(func() {
			if n++; n > 5 {
				return // woken by Close
			}
			if w := l.Window(); len(w.Blocks) != n || !w.Live {
				t.Errorf("wake %d saw window %+v, want %d blocks, live", n, w, n)
			}
		})})
		synctest.Wait()
		c.grow(5)
		synctest.Wait()
		if n != 5 {
			t.Errorf("the reader was woken %d times, want 5", n)
		}
	})
}
