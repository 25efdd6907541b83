package blocklog

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestPrunedCursorEndsReaderBeforeAnyItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(100)
		c.oldest = 50
		l := open(t, c, Options[int]{Window: 10})
		woken := 0
		l.Start()
		synctest.Wait()
		c.grow(20)
		synctest.Wait()
		for _, after := range []string{"", cursorOf(48), "1st", "foreign"} {
			r, _ := l.Join(Interest[int]{After: &after, Eval: every(1), Wake: xsync.WakeFunc(func() { woken++ })})
			expectLost(t, r, after)
			expectLost(t, r, after) // a second Next returns the same error
			r.Close()
		}
		if woken != 4 || l.Stats().PageReads != 4 || l.Stats().CatchingUp != 0 {
			t.Errorf("readers were woken %d times and stats are %+v, want 4 wakes and 4 pages", woken, l.Stats())
		}
		expectAll(t, resume(t, l, cursorOf(49), 1), upTo(50, 120, 1)...)
	})
}

func TestHistoryPrunedDuringCatchUpEndsReaderAtItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(500)
		l := open(t, c, Options[int]{})
		r := resume(t, l, "", 2)
		expect(t, r)
		synctest.Wait()
		expect(t, r, upTo(1, 100, 2)...) // requests the next page
		synctest.Wait()
		c.set(func() { c.oldest = 300 })
		expect(t, r, upTo(101, 200, 2)...)
		synctest.Wait()
		expectLost(t, r, cursorOf(200))
	})
}

func TestFailedPageIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(30)
		logger, text := logged()
		l := New(c.source(), Options[int]{MinBackoff: time.Second, MaxBackoff: 10 * time.Second, Logger: logger})
		defer shut(t, l)
		live := join(t, l, 1)
		synctest.Wait()
		c.set(func() { c.pageDown = errDown })
		r := resume(t, l, cursorOf(20), 1)
		expect(t, r)
		for range 60 {
			time.Sleep(time.Second)
			expect(t, r)
		}
		c.grow(1)
		synctest.Wait()
		expect(t, live, 31)
		if n := c.paged(); n < 6 || n > 15 {
			t.Errorf("Page was called %d times in a minute, want 6 to 15", n)
		}
		c.set(func() { c.pageDown = nil })
		time.Sleep(10 * time.Second)
		expectAll(t, r, upTo(21, 31, 1)...)
		lines := strings.Count(text.String(), "reading stored blocks for subscriptions failed; retrying")
		several := strings.Count(text.String(), "failures=3") + strings.Count(text.String(), "failures=4")
		if lines < 3 || lines > 7 || several == 0 || !strings.Contains(text.String(), errDown.Error()) {
			t.Errorf("%d lines in a minute, want 3 to 7 that count all failures:\n%s", lines, text)
		}
		if l.Stats().Restarts != 0 {
			t.Error("Follow was restarted after a failed page, want no restart")
		}
	})
}

func TestPanicInPageCountsAsSourceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(30)
		logger, text := logged()
		src, calls := c.source(), 0
		src.Page = func(ctx context.Context, after string, n int) ([]int, error) {
			if calls++; calls == 1 {
				panic("boom")
			}
			return c.page(ctx, after, n)
		}
		l := New(src, Options[int]{Logger: logger})
		defer shut(t, l)
		r := resume(t, l, cursorOf(20), 1)
		expectAll(t, r, upTo(21, 30, 1)...)
		if !strings.Contains(text.String(), "stack=") {
			t.Errorf("want a stack trace in the log:\n%s", text)
		}
	})
}

func TestUnorderedPageIsRejected(t *testing.T) {
	for name, page := range map[string][]int{
		"descending blocks":   {23, 22, 21},
		"block at the cursor": {20, 21, 22},
		"repeated block":      {21, 21, 22},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(30)
				logger, text := logged()
				src, calls := c.source(), 0
				src.Page = func(ctx context.Context, after string, n int) ([]int, error) {
					if calls++; calls == 1 {
						return page, nil
					}
					return c.page(ctx, after, n)
				}
				l := New(src, Options[int]{Logger: logger})
				defer shut(t, l)
				r := resume(t, l, cursorOf(20), 1)
				expectAll(t, r, upTo(21, 30, 1)...)
				if !strings.Contains(text.String(), "not in ascending order") {
					t.Errorf("want the error about the order in the log:\n%s", text)
				}
			})
		})
	}
}

func TestLaggingPagesAreRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(100)
		c.lag = 60
		l := openStarted(t, c, Options[int]{Window: 10})
		r := resume(t, l, cursorOf(30), 1)
		expectAll(t, r, upTo(31, 40, 1)...)
		for range 60 {
			c.grow(1)
			c.set(func() { c.lag++ })
			time.Sleep(time.Second)
			expect(t, r)
		}
		if n := c.paged(); n < 30 || n > 70 {
			t.Errorf("Page was called %d times in a minute, want 30 to 70", n)
		}
		c.set(func() { c.lag = 0 })
		time.Sleep(DefaultMaxBackoff)
		expectAll(t, r, upTo(41, 160, 1)...)
	})
}

func TestReadersAtOneCursorShareEachPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(350)
		c.pageTakes = time.Millisecond
		l := openStarted(t, c, Options[int]{})
		woken := make(chan int, 1000)
		var readers [1000]*Reader[int]
		var got [1000][]int
		cursor := cursorOf(20)
		for i := range readers {
			n := i%10 + 1
			wake := xsync.WakeFunc(func() { woken <- i })
			readers[i], _ = l.Join(Interest[int]{Key: key(n), After: &cursor, Eval: every(n), Wake: wake})
			woken <- i
		}
		for range 5 * len(readers) {
			select {
			case i := <-woken:
				more, err := read(t, readers[i])
				if err != nil {
					t.Fatal(err)
				}
				got[i] = append(got[i], more...)
			case <-time.After(time.Second):
			}
		}
		for i := range got {
			if want := upTo(21, 350, i%10+1); !slices.Equal(got[i], want) {
				t.Fatalf("reader %d received blocks %v, want %v", i, got[i], want)
			}
		}
		if want := []string{cursorOf(20), cursorOf(120), cursorOf(220), cursorOf(320)}; !slices.Equal(c.pages, want) {
			t.Errorf("pages after %q were read, want %q", c.pages, want)
		}
		if s := l.Stats(); s.PageReads != 4 || s.PageBlocks != 330 || s.CaughtUp != 1000 || s.Resumed != 1000 {
			t.Errorf("got stats %+v, want 4 pages with 330 blocks for 1000 readers that caught up", s)
		}
	})
}

func TestAtMost16PagesAreReadConcurrentlyAndOnlyForWaitingReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(500)
		c.pageTakes = time.Second
		l := openStarted(t, c, Options[int]{})
		var readers []*Reader[int]
		for i := range 100 {
			readers = append(readers, resume(t, l, cursorOf(2*i), 1))
			expect(t, readers[i])
			synctest.Wait()
		}
		for _, r := range readers[:50] { // the pages of the first 16 are being read
			r.Close()
		}
		if queuedPagesOf(l) != 50 || len(l.pages) != 66 {
			t.Errorf("50 readers have %d pages, of which %d are queued, want 66 and 50", len(l.pages), queuedPagesOf(l))
		}
		again := resume(t, l, cursorOf(0), 1) // uses the page that a closed reader requested
		expect(t, again)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.pages) != 66 || c.most != 16 || len(l.pages) > 0 {
			t.Errorf("%d pages were read, up to %d concurrently, and %d are left; want 66, 16 and 0",
				len(c.pages), c.most, len(l.pages))
		}
		c.pageTakes = 0
		expectAll(t, again, upTo(1, 500, 1)...)
		for i, r := range readers[50:] {
			expectAll(t, r, upTo(2*(50+i)+1, 500, 1)...)
		}
	})
}

func TestClosingTheLastReaderEndsRetriesOfItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(100)
		c.pageDown = errDown
		l := openStarted(t, c, Options[int]{})
		r, other := resume(t, l, "", 1), resume(t, l, "", 1)
		expect(t, r)
		expect(t, other)
		time.Sleep(time.Minute)
		r.Close()
		calls := c.paged()
		time.Sleep(time.Minute)
		if c.paged() == calls {
			t.Error("the page was not retried for the other reader")
		}
		other.Close()
		other.Close()
		calls = c.paged()
		time.Sleep(time.Hour)
		synctest.Wait() // for the check of the silent source
		if c.paged() != calls || len(l.pages) != 0 || l.Stats().CatchingUp != 0 || l.busy != 2 {
			t.Errorf("after all readers were closed: %d calls of Page, %d pages, %d tasks, want 0, 0, 2; stats %+v",
				c.paged()-calls, len(l.pages), l.busy, l.Stats())
		}
		if _, err := other.Next(); err != ErrClosed {
			t.Errorf("Next returned error %v, want ErrClosed", err)
		}
	})
}

func TestCloseWaitsOnlyForPagesBeingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(100)
		hung := make(chan struct{})
		src, calls := c.source(), atomic.Int32{}
		src.Page = func(ctx context.Context, after string, n int) ([]int, error) {
			if after == "" {
				return nil, errDown
			}
			calls.Add(1)
			<-hung
			return c.page(ctx, after, n)
		}
		logger, text := logged()
		l := New(src, Options[int]{Logger: logger, MinBackoff: time.Hour})
		woken := 0
		failing := resume(t, l, "", 1)
		expect(t, failing)
		synctest.Wait()
		var readers []*Reader[int]
		for i := range 20 { // four are queued
			cursor := cursorOf(i + 1)
			r, _ := l.Join(Interest[int]{After: &cursor, Eval: every(1), Wake: xsync.WakeFunc(func() { woken++ })})
			expect(t, r)
			readers = append(readers, r)
		}
		synctest.Wait()
		before := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err != context.DeadlineExceeded {
			t.Errorf("Close returned %v, want the context's error", err)
		}
		close(hung)
		shut(t, l)
		if took := time.Since(before); took != time.Second || calls.Load() != 16 || woken != 20 {
			t.Errorf("Close took %v with %d calls and %d wakes, want 1s, 16 and 20", took, calls.Load(), woken)
		}
		for i, r := range readers {
			if _, err := r.Next(); err != ErrClosed || r.Cursor() != cursorOf(i+1) {
				t.Errorf("Next returned error %v at %q, want ErrClosed at block %d", err, r.Cursor(), i+1)
			}
			r.Close()
		}
		failing.Close()
		if s := l.Stats(); s.CatchingUp != 0 || s.Readers != 0 {
			t.Errorf("stats are %+v after all readers were closed, want no readers", s)
		}
		if strings.Count(text.String(), "reading stored blocks for subscriptions failed; retrying") != 1 {
			t.Errorf("want one failed page in the log:\n%s", text)
		}
	})
}
