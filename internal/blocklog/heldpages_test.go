package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Readers that stop reading and continue later still receive all their blocks.
func TestNumberOfUnreadPagesInMemoryIsLimited(t *testing.T) {
	for name, taken := range map[string]int{"no block read": 0, "one block read": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 3 * maxHeldPages
				c := newChain(n + 500)
				l := openStarted(t, c, Options[int]{Window: 5})
				before := heapInUse()
				readers := make([]*Reader[int], n)
				for i := range readers {
					readers[i] = resume(t, l, cursorOf(i+1), 1)
					expect(t, readers[i]) // requests a page
				}
				if synctest.Wait(); heldPagesOf(l) != maxHeldPages {
					t.Errorf("%d pages are held for %d readers, want %d", heldPagesOf(l), n, maxHeldPages)
				}
				for i, r := range readers {
					for k := range taken {
						item, err := r.Next()
						for item.Payload == nil && err == nil { // its page was dropped, or has not been read yet
							time.Sleep(time.Second)
							synctest.Wait()
							item, err = r.Next()
						}
						if err != nil || item.Cursor != cursorOf(i+2+k) {
							t.Fatalf("reader %d received %+v and error %v, want block %d", i, item, err, i+2+k)
						}
					}
				}
				synctest.Wait()
				if held := heldPagesOf(l); held > maxHeldPages || held < maxHeldPages/2 {
					t.Errorf("%d pages are held for %d readers, want %d to %d", held, n, maxHeldPages/2, maxHeldPages)
				}
				// A block of this chain and its cursor take 40 bytes.
				if grown, most := int(heapInUse()-before), maxHeldPages*pageBlocks*40+n*1000; grown > most {
					t.Errorf("%d readers that stopped use %d bytes, want at most %d", n, grown, most)
				}
				for i, r := range readers {
					if i%100 > 0 {
						r.Close()
					}
				}
				for i := 0; i < n; i += 100 {
					expectAll(t, readers[i], upTo(i+2+taken, n+500, 1)...)
				}
				if heldPagesOf(l) > 0 {
					t.Errorf("%d pages are held after all have been read, want 0", heldPagesOf(l))
				}
			})
		})
	}
}

func TestReadersAtOneCursorShareOnePageInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(450)
		c.pageTakes = time.Second
		l := openStarted(t, c, Options[int]{Window: 5})
		readers := make([]*Reader[int], maxHeldPages+10)
		for i := range readers {
			readers[i] = resume(t, l, "", 50)
			expect(t, readers[i])
		}
		for from := 1; from <= 301; from += 100 {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if held := heldPagesOf(l); held != 1 {
				t.Errorf("%d pages are held, want 1", held)
			}
			for _, r := range readers {
				expect(t, r, upTo(from, from+99, 50)...)
			}
		}
		synctest.Wait() // until the last page is being read
		if c.paged() != 5 {
			t.Errorf("%d pages were read, want 5", c.paged())
		}
	})
}

// A client that needs only a few recent blocks does not wait for all readers that are far behind. Those readers do not
// wait forever either.
func TestRecentPagesAreReadFirstAndAllPagesEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(16_000)
		c.pageTakes = 10 * time.Millisecond
		l := openStarted(t, c, Options[int]{Window: 5})
		var clients [2000]Client
		for i := range clients { // with 16 concurrent calls, the last page would be read after 125 rounds
			clients[i].SetBlocked(true) // so that pages that are not taken leave room for others
			expect(t, resumeAs(t, l, &clients[i], cursorOf(i+1)))
		}
		future := resume(t, l, cursorOf(16_100), 1)
		expect(t, future)
		recent := resume(t, l, cursorOf(15_950), 1)
		var got []int
		begun := time.Now()
		for len(got) < 50 {
			more, err := read(t, recent)
			if got = append(got, more...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if waited := time.Since(begun); waited > 50*time.Millisecond {
			t.Errorf("a client that needs 50 recent blocks received them after %v, want at most 50ms", waited)
		}
		time.Sleep(3 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range 2000 {
			if !slices.Contains(c.pages, cursorOf(i+1)) {
				t.Fatalf("the page after block %d was not read within three seconds", i+1)
			}
		}
		if i := slices.Index(c.pages, cursorOf(40)); i > 100 {
			t.Errorf("the page that was requested 40th was read as number %d, want at most 100", i)
		}
		if i := slices.Index(c.pages, cursorOf(16_100)); i < 1000 {
			t.Errorf("a page after the newest block was read as number %d, want at least 1000", i)
		}
	})
}
