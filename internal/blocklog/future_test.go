package blocklog

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// deliveryTime returns the time that it takes to accept the given number of blocks while the given number of pages
// wait. Most of these pages have cursors far after the newest block.
func deliveryTime(t *testing.T, pages, blocks int) time.Duration {
	src := newChain(0).source()
	l := New(src, Options[int]{Logger: quiet})
	l.started, l.positioned = true, true // the test delivers the blocks itself
	l.calls = pageCalls                  // as if all page calls hung
	readers := make([]*Reader[int], pages)
	for i := range readers {
		cursor := fmt.Sprintf("9%06d", i)
		if i%100 == 0 {
			cursor = cursorOf(i/100 + 1)
		}
		readers[i] = resume(t, l, cursor, 1<<30) // no block matches
		if _, err := readers[i].Next(); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	for n := range blocks {
		l.accept(n + 1)
	}
	took := time.Since(begun)
	if ahead := pages - min(blocks, (pages+99)/100); len(l.pages) != pages || l.future.Len() != ahead {
		t.Errorf("%d pages and %d future pages after %d blocks, want %d and %d",
			len(l.pages), l.future.Len(), blocks, pages, ahead)
	}
	for _, r := range readers {
		r.Close()
	}
	if len(l.pages) > 0 || l.future.Len() > 0 || queuedPagesOf(l) > 0 {
		t.Errorf("%d pages, %d future pages and %d queued pages after all readers were closed, want 0",
			len(l.pages), l.future.Len(), queuedPagesOf(l))
	}
	return took
}

// The page after the cursor was parked for the first reader, which has not called Next since the log reached it.
func TestReaderJoinsAtAParkedPageThatTheLogHasReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		l := openStarted(t, c, Options[int]{})
		after := between(12) // no block in the window has this cursor
		joined := func() (*Reader[int], *int) {
			wakes := new(int)
			wake := xsync.WakeFunc(func() { *wakes++ })
			r, err := l.Join(Interest[int]{Key: "all", After: &after, Eval: every(1), Wake: wake})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, r)
			return r, wakes
		}
		first, _ := joined()
		synctest.Wait()
		c.grow(5)
		synctest.Wait()
		second, wakes := joined()
		expectAll(t, first, 13, 14, 15)
		if *wakes == 0 {
			t.Error("the second reader was not woken")
		}
		expectAll(t, second, 13, 14, 15)
	})
}

func TestSlowPageReadsDoNotDelayNewBlocks(t *testing.T) {
	for attempt := 1; ; attempt++ {
		few, many := deliveryTime(t, 100, 2000), deliveryTime(t, 50_000, 2000)
		if many < 30*few+20*time.Millisecond {
			return
		}
		if attempt == 4 {
			t.Fatalf("2000 blocks take %v while 100 pages wait, and %v while 50,000 pages wait", few, many)
		}
	}
}

// The first reader of a page has a cursor that is part of a long string, and leaves before the second one.
func TestWaitingPageKeepsOnlyTheCursorOfAClient(t *testing.T) {
	l := New(newChain(0).source(), Options[int]{Logger: quiet})
	l.started, l.positioned = true, true
	l.calls = pageCalls // as if all page calls hung
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const pages, long = 100, 100 << 10
	before := heap()
	var readers []*Reader[int]
	wait := func(cursor string) *Reader[int] {
		r := resume(t, l, cursor, 1<<30)
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i := range pages {
		cursor := fmt.Sprintf("9%06d", i)
		first := wait((cursor + strings.Repeat("x", long))[:len(cursor)])
		readers = append(readers, wait(cursor))
		first.Close()
	}
	if grown := heap() - before; int64(grown) > pages*long/10 {
		t.Errorf("%d waiting pages keep %d bytes", pages, grown)
	}
	for _, r := range readers {
		r.Close()
	}
}
