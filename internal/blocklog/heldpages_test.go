package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Readers that continue after a stop still receive all their blocks.
func TestUnfinishedPagesAreLimited(t *testing.T) {
	for name, taken := range map[string]int{"not looked at": 0, "begun": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 3 * maxHeldPages
				c := newChain(n + 500)
				l := open(t, c, Options[int]{Window: 5})
				l.Start()
				synctest.Wait()
				before := heapInUse()
				readers := make([]*Reader[int], n)
				for i := range readers {
					readers[i] = resume(t, l, cursorOf(i+1), 1)
					expect(t, readers[i]) // asks
				}
				if synctest.Wait(); l.held.Len() != maxHeldPages {
					t.Errorf("%d pages are held for %d readers, want %d", l.held.Len(), n, maxHeldPages)
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
							t.Fatalf("reader %d has %+v, %v", i, item, err)
						}
					}
				}
				synctest.Wait()
				if held := l.held.Len(); held > maxHeldPages || held < maxHeldPages/2 {
					t.Errorf("%d pages are held by %d readers", held, n)
				}
				// A block of this chain takes 40 bytes, with its cursor.
				if grown, most := int(heapInUse()-before), maxHeldPages*pageBlocks*40+n*1000; grown > most {
					t.Errorf("%d readers that stopped keep %d bytes, want at most %d", n, grown, most)
				}
				for i, r := range readers {
					if i%100 > 0 {
						r.Close()
					}
				}
				for i := 0; i < n; i += 100 {
					expectAll(t, readers[i], upTo(i+2+taken, n+500, 1)...)
				}
				if l.held.Len() > 0 {
					t.Errorf("%d pages are held when all have been read", l.held.Len())
				}
			})
		})
	}
}

func TestReadersAtOneCursorHoldOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(450)
		c.pageTakes = time.Second
		l := open(t, c, Options[int]{Window: 5})
		l.Start()
		synctest.Wait()
		readers := make([]*Reader[int], maxHeldPages+10)
		for i := range readers {
			readers[i] = resume(t, l, "", 50)
			expect(t, readers[i])
		}
		for from := 1; from <= 301; from += 100 {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if held := l.held.Len(); held != 1 {
				t.Errorf("%d pages are held", held)
			}
			for _, r := range readers {
				expect(t, r, upTo(from, from+99, 50)...)
			}
		}
		synctest.Wait() // for the last one to begin
		if c.paged() != 5 {
			t.Errorf("%d pages were read", c.paged())
		}
	})
}

// A client that needs a few recent blocks does not wait for all readers that are far behind, and they do not wait
// forever.
func TestRecentPagesAreReadEarlyAndAllPagesInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(16_000)
		c.pageTakes = 10 * time.Millisecond
		l := open(t, c, Options[int]{Window: 5})
		l.Start()
		synctest.Wait()
		for i := range 2000 { // a page waits for the 125 calls before it
			expect(t, resume(t, l, cursorOf(i+1), 1<<30))
		}
		past := resume(t, l, cursorOf(16_100), 1)
		expect(t, past)
		honest := resume(t, l, cursorOf(15_950), 1)
		var got []int
		begun := time.Now()
		for len(got) < 50 {
			more, err := read(t, honest)
			if got = append(got, more...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if waited := time.Since(begun); waited > 50*time.Millisecond {
			t.Errorf("a client that was away for 50 blocks had them after %v", waited)
		}
		time.Sleep(2 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range 2000 {
			if !slices.Contains(c.pages, cursorOf(i+1)) {
				t.Fatalf("the page after block %d was not read within two seconds", i+1)
			}
		}
		if i := slices.Index(c.pages, cursorOf(40)); i > 100 {
			t.Errorf("the page that was asked for as number 40 was read as number %d", i)
		}
		if i := slices.Index(c.pages, cursorOf(16_100)); i < 1000 {
			t.Errorf("a page past the newest block was read as number %d", i)
		}
	})
}
