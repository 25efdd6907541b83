package blocklog

import (
	"fmt"
	"testing"
	"time"
)

// blocksTake returns the time that blocks take while pages wait, most of them at cursors far after the newest block.
func blocksTake(t *testing.T, pages, blocks int) time.Duration {
	src := newChain(0).source()
	l := New(src, Options[int]{Logger: quiet})
	l.started, l.positioned = true, true // the test delivers the blocks itself
	l.calls = pageCalls                  // and the source hangs
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
		t.Errorf("%d pages, %d of them ahead, after %d blocks", len(l.pages), l.future.Len(), blocks)
	}
	for _, r := range readers {
		r.Close()
	}
	if len(l.pages) > 0 || l.future.Len() > 0 || l.queue.Len() > 0 {
		t.Errorf("%d pages, %d ahead, %d queued when all readers have left", len(l.pages), l.future.Len(), l.queue.Len())
	}
	return took
}

func TestWaitingPagesDoNotDelayNewBlocks(t *testing.T) {
	for attempt := 1; ; attempt++ {
		few, many := blocksTake(t, 100, 2000), blocksTake(t, 50_000, 2000)
		if many < 30*few+20*time.Millisecond {
			return
		}
		if attempt == 4 {
			t.Fatalf("2000 blocks take %v while 100 pages wait, %v while 50,000 do", few, many)
		}
	}
}
