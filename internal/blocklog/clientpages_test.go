package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// modelConnection is the connection of all clients of the models, so that they wait for the pages of each other, and so
// that their groups share the time for the newest block.
var modelConnection = Client{Live: new(xsync.Usage)}

// slowFor returns eval for readers of modelConnection. For two of five blocks, it takes all the time of the connection,
// so that its other groups are postponed.
func slowFor[B any](number func(B) int, eval func(B) []byte) func(B) []byte {
	return func(b B) []byte {
		if number(b)%5 < 2 {
			modelConnection.Live.Add(2 * liveTime / liveFraction)
		}
		return eval(b)
	}
}

// resumeAs is like resume, for a reader of a client.
func resumeAs(t *testing.T, l *Log[int], client *Client, cursor string) *Reader[int] {
	t.Helper()
	r, err := l.Join(Interest[int]{Key: key(1), Client: client, After: &cursor, Eval: every(1)})
	if err != nil {
		t.Fatalf("Join returned error %v", err)
	}
	return r
}

// Clients may subscribe from many cursors and not read. The connection of another client that resumes does not wait for
// the pages of all these subscriptions.
func TestSubscriptionsOfClientsThatDoNotReadDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(16_000)
		c.pageTakes = time.Millisecond
		l := openStarted(t, c, Options[int]{Window: 5})
		var clients [40]Client
		for i := range 10_000 {
			clients[i/250].SetBlocked(true)
			expect(t, resumeAs(t, l, &clients[i/250], cursorOf(5000+i))) // requests its page
		}
		r := resumeAs(t, l, new(Client), cursorOf(100))
		expect(t, r)
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		expect(t, r, upTo(101, 200, 1)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := c.paged(); n > 200 {
			t.Errorf("%d pages were read for 40 clients that do not read, want at most 200", n)
		}
	})
}

// More clients than pages may be kept do not read, so that each of them takes one block of its page only.
func TestPagesOfBlockedClientsAreDroppedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(16_000)
		l := openStarted(t, c, Options[int]{Window: 5})
		var clients [3 * maxHeldPages]Client
		for i := range clients {
			r := resumeAs(t, l, &clients[i], cursorOf(5000+i))
			expect(t, r)
			synctest.Wait()
			if item, err := r.Next(); item.Payload == nil || err != nil {
				t.Fatalf("client %d received %+v and error %v, want a block", i, item, err)
			}
			clients[i].SetBlocked(true)
		}
		if heldPagesOf(l) != maxHeldPages {
			t.Errorf("%d pages are held, want %d", heldPagesOf(l), maxHeldPages)
		}
	})
}

func TestAllReadersOfOneClientReceiveAllBlocks(t *testing.T) {
	for name, cursor := range map[string]func(i int) string{
		"each from a cursor of its own": func(i int) string { return cursorOf(7 * i) },
		"pairs from one cursor":         func(i int) string { return cursorOf(i / 2) },
		"after the newest block":        func(i int) string { return cursorOf(980 + i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(1000)
				c.pageTakes = time.Millisecond
				l := openStarted(t, c, Options[int]{Window: 5})
				const n = 50
				var clients [2]Client
				readers, got := make([]*Reader[int], n), make([][]int, n)
				for i := range readers {
					readers[i] = resumeAs(t, l, &clients[i%2], cursor(i))
				}
				left := map[int]bool{0: true, 1: true, 2: true, 20: true, 47: true} // these clients leave early
				for round := range 2000 {
					for i, r := range readers {
						if left[i] && round > i {
							r.Close()
							continue
						}
						more, err := read(t, r)
						if err != nil {
							t.Fatal(err)
						}
						got[i] = append(got[i], more...)
					}
					if round == 1000 {
						c.grow(50)
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				for i := range readers {
					after, _ := numberAfter(cursor(i))
					if want := upTo(after, 1050, 1); !left[i] && !slices.Equal(got[i], want) {
						t.Errorf("reader %d received %d blocks, want exactly blocks %d to 1050", i, len(got[i]), after)
					}
				}
				if len(l.clients) > 0 || heldPagesOf(l) > 0 || len(l.pages) > 0 {
					t.Errorf("%d clients and %d pages are left, and %d are held; want none",
						len(l.clients), len(l.pages), heldPagesOf(l))
				}
			})
		})
	}
}

// A client waits for its own pages only, not for those that another one does not read.
func TestClientThatDoesNotReadDoesNotBlockOthersAtItsCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(1000)
		l := openStarted(t, c, Options[int]{Window: 5})
		var deaf, reading Client
		for i := range 20 {
			expect(t, resumeAs(t, l, &deaf, cursorOf(i)))
		}
		other, alone := make([]*Reader[int], 20), resume(t, l, cursorOf(19), 1)
		for i := range other {
			other[i] = resumeAs(t, l, &reading, cursorOf(i))
		}
		for i, r := range append(other, alone) {
			expectAll(t, r, upTo(min(i, 19)+1, 1000, 1)...)
		}
	})
}

// Another client joins the first pages of a client while they are being read, and then does not read.
func TestClientDoesNotWaitForOthersThatShareItsPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(2000)
		c.pageTakes = 5 * time.Millisecond
		l := openStarted(t, c, Options[int]{Window: 5})
		var reading, deaf Client
		r := resumeAs(t, l, &reading, cursorOf(0))
		for page := range maxClientPages {
			expect(t, r, upTo(max(1, 100*page-99), 100*page, 1)...)
			expect(t, resumeAs(t, l, &deaf, cursorOf(100*page)))
			time.Sleep(c.pageTakes)
			synctest.Wait()
		}
		deaf.SetBlocked(true)
		expectAll(t, r, upTo(100*maxClientPages-99, 2000, 1)...)
		if r.Close(); l.clients[&reading] != nil {
			t.Error("the log keeps a client without readers")
		}
	})
}

// A reader resumes from the newest block before the log has a position, while its client waits for other pages.
func TestReaderWhoseClientWaitsForPagesIsWokenWhenItCanBecomeLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		c.fail(errDown)
		l := open(t, c, Options[int]{MinBackoff: time.Hour})
		l.Start()
		time.Sleep(time.Minute)
		var client Client
		for i := range maxClientPages {
			expect(t, resumeAs(t, l, &client, cursorOf(i)))
		}
		woken, at := 0, cursorOf(10)
		r, err := l.Join(Interest[int]{Key: key(1), Client: &client, After: &at, Eval: every(1),
			Wake: xsync.WakeFunc(func() { woken++ })})
		if err != nil {
			t.Fatal(err)
		}
		expectAll(t, r)
		c.fail(nil)
		time.Sleep(time.Hour)
		if synctest.Wait(); woken != 1 {
			t.Errorf("the reader was woken %d times, want once", woken)
		}
		expect(t, r)
		c.grow(1)
		synctest.Wait()
		expect(t, r, 11)
	})
}

// The pages of readers that search are kept until it is their turn.
func TestReaderDoesNotWaitForOthersOfItsClientThatSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, newChain(2000), Options[int]{Window: 5})
		l.Start()
		synctest.Wait()
		var client Client
		for i := range 10 {
			after := cursorOf(i)
			r, err := l.Join(Interest[int]{Key: key(5000), Client: &client, After: &after, Eval: every(5000)})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, r)
			synctest.Wait()
			expect(t, r) // searches its first page and requests the next one
		}
		synctest.Wait()
		r := resumeAs(t, l, &client, cursorOf(500))
		expectAll(t, r, upTo(501, 2000, 1)...)
	})
}

// A client with many readers must not have a page read first for each of them.
func TestClientOfManyReadersDoesNotDelayOneThatNeedsFewPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(15_000)
		c.pageTakes = 10 * time.Millisecond
		l := openStarted(t, c, Options[int]{Window: 5})
		p := &pool{t: t, log: l}
		for i := range 40 {
			client := new(Client)
			for k := range 100 {
				p.join(client, cursorOf(1000+3*(100*i+k)), 1)
			}
		}
		p.run(time.Second, func() bool { return false }) // each client has received about 40 pages
		r := p.join(new(Client), cursorOf(0), 1)
		took := p.run(10*time.Second, func() bool { return r.blocks >= 500 }, r)
		if most := 200 * time.Millisecond; took > most {
			t.Errorf("received %d blocks after %v, want 500 within %v", r.blocks, took, most)
		}
	})
}

// Otherwise a client could request the pages of another one again and again, so that they are read first.
func TestPageCountsForEachClientThatRequestsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(1000)
		c.pageTakes = time.Second
		l := openStarted(t, c, Options[int]{Window: 5})
		p := &pool{t: t, log: l}
		first, second := new(Client), new(Client)
		for _, client := range []*Client{first, first, second} {
			p.next(p.join(client, cursorOf(100), 1))
		}
		for range 5 {
			r := p.join(second, cursorOf(100), 1)
			p.next(r)
			r.Close()
		}
		if got, again := first.requested(), second.requested(); got != 1 || again != 6 {
			t.Errorf("%d pages count for a client with two readers, want 1, and %d for one whose readers leave, want 6",
				got, again)
		}
	})
}
