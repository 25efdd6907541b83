package blocklog

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
			r, _ := l.Join(Interest[int]{After: &after, Eval: every(1), Wake: func() { woken++ }})
			expectLost(t, r, after)
			expectLost(t, r, after) // also when called again
			r.Close()
		}
		if woken != 4 || l.Stats().PageReads != 4 || l.Stats().CatchingUp != 0 {
			t.Errorf("woken %d times, stats %+v", woken, l.Stats())
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
		expect(t, r, upTo(1, 100, 2)...) // asks for the next page
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
			t.Errorf("asked %d times in a minute", n)
		}
		c.set(func() { c.pageDown = nil })
		time.Sleep(10 * time.Second)
		expectAll(t, r, upTo(21, 31, 1)...)
		lines := strings.Count(text.String(), "reading a page of blocks failed")
		if lines < 3 || lines > 7 || strings.Count(text.String(), "failures=3")+strings.Count(text.String(), "failures=4") == 0 || !strings.Contains(text.String(), errDown.Error()) {
			t.Errorf("%d lines in a minute:\n%s", lines, text)
		}
		if l.Stats().Restarts != 0 {
			t.Error("a failed page stopped the blocks")
		}
	})
}

func TestPanicOfPageCountsAsSourceFailure(t *testing.T) {
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
			t.Errorf("no stack in the log:\n%s", text)
		}
	})
}

func TestUnorderedPageIsRejected(t *testing.T) {
	for name, page := range map[string][]int{
		"descending":      {23, 22, 21},
		"not past cursor": {20, 21, 22},
		"twice":           {21, 21, 22},
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
					t.Errorf("the log lacks the failure:\n%s", text)
				}
			})
		})
	}
}

func TestLaggingPagesAreRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(100)
		c.lag = 60
		l := open(t, c, Options[int]{Window: 10})
		l.Start()
		synctest.Wait()
		r := resume(t, l, cursorOf(30), 1)
		expectAll(t, r, upTo(31, 40, 1)...)
		for range 60 {
			c.grow(1)
			c.set(func() { c.lag++ })
			time.Sleep(time.Second)
			expect(t, r)
		}
		if n := c.paged(); n < 6 || n > 20 {
			t.Errorf("%d pages read in a minute", n)
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
		l := open(t, c, Options[int]{})
		l.Start()
		synctest.Wait()
		woken := make(chan int, 1000)
		var readers [1000]*Reader[int]
		var got [1000][]int
		cursor := cursorOf(20)
		for i := range readers {
			readers[i], _ = l.Join(Interest[int]{Key: key(i%10 + 1), After: &cursor, Eval: every(i%10 + 1), Wake: func() { woken <- i }})
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
				t.Fatalf("read %v, want %v", got[i], want)
			}
		}
		if want := []string{cursorOf(20), cursorOf(120), cursorOf(220), cursorOf(320)}; !slices.Equal(c.pages, want) {
			t.Errorf("pages after %q, want %q", c.pages, want)
		}
		if s := l.Stats(); s.PageReads != 4 || s.PageBlocks != 330 || s.CaughtUp != 1000 || s.Resumed != 1000 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestAtMostSixteenPagesAreReadAndOnlyForWaitingReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(500)
		c.pageTakes = time.Second
		l := open(t, c, Options[int]{})
		l.Start()
		synctest.Wait()
		var readers []*Reader[int]
		for i := range 100 {
			readers = append(readers, resume(t, l, cursorOf(2*i), 1))
			expect(t, readers[i])
			synctest.Wait()
		}
		for _, r := range readers[:50] { // 16 of them are being read for
			r.Close()
		}
		if l.queue.Len() != 50 || len(l.pages) != 66 {
			t.Errorf("%d pages, %d queued for 50 readers", len(l.pages), l.queue.Len())
		}
		again := resume(t, l, cursorOf(0), 1) // uses the page that was requested for its predecessor
		expect(t, again)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.pages) != 66 || c.most != 16 || len(l.pages) > 0 {
			t.Errorf("%d pages read, %d at once, %d left", len(c.pages), c.most, len(l.pages))
		}
		c.pageTakes = 0
		expectAll(t, again, upTo(1, 500, 1)...)
		for i, r := range readers[50:] {
			expectAll(t, r, upTo(2*(50+i)+1, 500, 1)...)
		}
	})
}

func TestClosedReaderEndsRetriesOfItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(100)
		c.pageDown = errDown
		l := open(t, c, Options[int]{})
		l.Start()
		synctest.Wait()
		r, other := resume(t, l, "", 1), resume(t, l, "", 1)
		expect(t, r)
		expect(t, other)
		time.Sleep(time.Minute)
		r.Close()
		asked := c.paged()
		time.Sleep(time.Minute)
		if c.paged() == asked {
			t.Error("the other reader is not waited for")
		}
		other.Close()
		other.Close()
		asked = c.paged()
		time.Sleep(time.Hour)
		if c.paged() != asked || len(l.pages) != 0 || l.Stats().CatchingUp != 0 || l.busy != 2 {
			t.Errorf("%d pages asked for after the end, %d kept, %d busy, stats %+v", c.paged()-asked, len(l.pages), l.busy, l.Stats())
		}
		if _, err := other.Next(); err != ErrClosed {
			t.Errorf("Next: %v, want ErrClosed", err)
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
			r, _ := l.Join(Interest[int]{After: &cursor, Eval: every(1), Wake: func() { woken++ }})
			expect(t, r)
			readers = append(readers, r)
		}
		synctest.Wait()
		before := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err != context.DeadlineExceeded {
			t.Errorf("Close: %v, want the context's error", err)
		}
		close(hung)
		shut(t, l)
		if took := time.Since(before); took != time.Second || calls.Load() != 16 || woken != 20 {
			t.Errorf("closed after %v, %d calls, %d woken", took, calls.Load(), woken)
		}
		for i, r := range readers {
			if _, err := r.Next(); err != ErrClosed || r.Cursor() != cursorOf(i+1) {
				t.Errorf("Next: %v, at %q", err, r.Cursor())
			}
			r.Close()
		}
		failing.Close()
		if s := l.Stats(); s.CatchingUp != 0 || s.Readers != 0 || strings.Count(text.String(), "reading a page of blocks failed") != 1 {
			t.Errorf("stats %+v\n%s", s, text)
		}
	})
}
