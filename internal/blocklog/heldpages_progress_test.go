package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The readers do not take their pages at once when the source returns them.
func TestReadersDoNotDropPagesThatOthersStillRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(1000)
		l := open(t, c, Options[int]{Window: 5})
		limitHeld(l, 4)
		l.Start()
		synctest.Wait()
		const n = 10
		readers, got := make([]*Reader[int], n), make([][]int, n)
		for i := range readers {
			readers[i] = resume(t, l, cursorOf(i), 1)
		}
		for range 60 { // a reader needs 10 pages, and the log holds at most 4
			for i, r := range readers {
				more, err := read(t, r)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = append(got[i], more...)
				synctest.Wait() // the source returns the page that the reader waits for
			}
		}
		for i := range readers {
			if want := upTo(i+1, 1000, 1); !slices.Equal(got[i], want) {
				t.Errorf("reader %d received %d blocks, want exactly blocks %d to 1000", i, len(got[i]), want[0])
			}
		}
		if pages := c.paged(); pages > 11*n {
			t.Errorf("%d pages were read for %d readers, want at most 11 per reader", pages, n)
		}
	})
}

func TestUnreadPagesOfOneReaderDelayOtherReadersOnlyBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(1000)
		l := open(t, c, Options[int]{Window: 5})
		limitHeld(l, 4)
		l.Start()
		synctest.Wait()
		const n = 10
		for i := range n {
			expect(t, resume(t, l, cursorOf(i), 1)) // requests its page and stops
		}
		time.Sleep(time.Second)
		synctest.Wait()
		r := resume(t, l, cursorOf(n), 1)
		begun := time.Now()
		for got := 0; got < 1000-n; {
			more, err := read(t, r)
			if err != nil {
				t.Fatal(err)
			}
			if got += len(more); time.Since(begun) > time.Minute {
				t.Fatalf("received only %d blocks in a minute, want all", got)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
	})
}

func TestCloseDoesNotWaitUntilPagesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, newChain(1000), Options[int]{Window: 5})
		limitHeld(l, 4)
		l.Start()
		synctest.Wait()
		for i := range 5 {
			expect(t, resume(t, l, cursorOf(i), 1))
		}
		synctest.Wait()
		if queuedPagesOf(l) != 1 || heldPagesOf(l) != 4 {
			t.Fatalf("%d pages are queued and %d are held, want 1 and 4", queuedPagesOf(l), heldPagesOf(l))
		}
		begun := time.Now()
		if shut(t, l); time.Since(begun) > 0 {
			t.Errorf("Close took %v, want no wait", time.Since(begun))
		}
	})
}
