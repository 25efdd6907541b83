package blocklog

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// limitHeld sets the maximum number of pages that a Log keeps for readers of each kind.
func limitHeld[B any](l *Log[B], n int) { l.deliveries.held.limit, l.searches.held.limit = n, n }

func heldPagesOf[B any](l *Log[B]) int { return l.deliveries.held.Len() + l.searches.held.Len() }

func queuedPagesOf[B any](l *Log[B]) int { return l.deliveries.queue.Len() + l.searches.queue.Len() }

// A pool calls Next for one reader at a time, in the order in which the readers were woken. Each call takes 100 µs.
type pool struct {
	t     *testing.T
	log   *Log[int]
	count int

	search int // Interest.SearchBlocks

	mu    sync.Mutex // guards woken and pooled.queued
	woken []*pooled
}

type pooled struct {
	*Reader[int]
	queued, closed bool
	blocks         int // number of blocks received
}

// join joins a reader that needs blocks divisible by step.
func (p *pool) join(client *Client, after string, step int) *pooled {
	r := new(pooled)
	wake := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !r.queued {
			r.queued, p.woken = true, append(p.woken, r)
		}
	}
	p.count++
	var err error
	r.Reader, err = p.log.Join(Interest[int]{
		Key: strconv.Itoa(p.count), Client: client, After: &after, Eval: every(step), SearchBlocks: p.search,
		Wake: xsync.WakeFunc(wake),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	wake()
	return r
}

// pop returns the reader whose turn it is, or nil if there is none.
func (p *pool) pop() *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.woken) == 0 {
		return nil
	}
	r := p.woken[0]
	r.queued, p.woken = false, p.woken[1:]
	return r
}

// next calls Next until the reader has no block.
func (p *pool) next(r *pooled) {
	for ; ; r.blocks++ {
		item, err := r.Next()
		if err != nil {
			p.t.Fatal(err)
		}
		if item.Payload == nil {
			return
		}
	}
}

// run serves readers until done returns true, and returns the time that this takes. Before each of them, it serves
// those in first.
func (p *pool) run(limit time.Duration, done func() bool, first ...*pooled) time.Duration {
	begun := time.Now()
	for time.Since(begun) < limit {
		for _, r := range first {
			p.next(r)
		}
		if done() {
			break
		}
		if r := p.pop(); r != nil && !r.closed {
			p.next(r)
		}
		time.Sleep(100 * time.Microsecond)
		synctest.Wait()
	}
	return time.Since(begun)
}

// Readers that search keep their pages until it is their turn. Others must not wait until these pages have been read.
func TestReadersThatSearchDoNotDelayOthers(t *testing.T) {
	const stored, clients, perClient = 12_000, 200, 3
	for name, cursor := range map[string]func(i int) string{
		"each from a cursor of its own": func(i int) string { return cursorOf(stored - 500 - i) },
		"pairs from one cursor":         func(i int) string { return cursorOf(stored - 500 - i%(perClient*clients/2)) },
		"from the cursors of the other": func(i int) string { return cursorOf(i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(stored)
				c.pageTakes = time.Millisecond
				l := openStarted(t, c, Options[int]{Window: 5})
				limitHeld(l, 100)
				p := &pool{t: t, log: l, search: 2}
				var searching [clients]Client
				for i := range clients * perClient {
					p.join(&searching[i%clients], cursor(i), stored+1)
				}
				p.run(300*time.Millisecond, func() bool { return false })
				all := p.join(new(Client), cursorOf(0), 1)
				even := p.join(new(Client), cursorOf(1), 2) // the last block of its pages does not match
				done := func() bool { return all.blocks >= 1000 && even.blocks >= 500 }
				took := p.run(10*time.Second, done, all, even)
				if most := 100 * time.Millisecond; took > most {
					t.Errorf("received %d blocks and %d even blocks after %v, want 1000 and 500 within %v",
						all.blocks, even.blocks, took, most)
				}
			})
		})
	}
}

// Readers that search receive their blocks although others read pages all the time.
func TestReadersThatFindBlocksDoNotStopThoseThatSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stored = 12_000
		c := newChain(stored)
		c.pageTakes = 10 * time.Millisecond
		l := openStarted(t, c, Options[int]{Window: 5})
		limitHeld(l, 100)
		p := &pool{t: t, log: l, search: 2}
		for i := range 300 {
			p.join(new(Client), cursorOf(i/60*100+i%60), 1)
		}
		r := p.join(new(Client), cursorOf(80), 2000) // shares no page with the others
		took := p.run(10*time.Second, func() bool { return r.blocks > 0 }, r)
		left := l.Stats().CatchingUp
		if most := time.Second; took > most || left < 100 {
			t.Errorf("received %d blocks after %v, while %d readers catch up, want a block within %v",
				r.blocks, took, left, most)
		}
	})
}

// Readers that find blocks in hundreds of pages must not delay others that need few pages, also if these start at the
// cursor of a page that waits already.
func TestReadersOfManyPagesDoNotDelayThoseOfFewPages(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("a page at the cursor waits already: ", waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(15_000)
				c.pageTakes = 10 * time.Millisecond
				l := openStarted(t, c, Options[int]{Window: 5})
				p := &pool{t: t, log: l}
				for i := range 600 { // 16 calls at once need 375 ms for one page of each
					p.join(new(Client), cursorOf(2000+i/100*2000+i%100), 50)
				}
				p.run(3*time.Second, func() bool { return false })
				cursor := cursorOf(0)
				if waits {
					cursor = l.deliveries.queue.inOrder.Back().Value.(*page[int]).after
				}
				r := p.join(new(Client), cursor, 1)
				took := p.run(10*time.Second, func() bool { return r.blocks >= 500 }, r)
				if most := 250 * time.Millisecond; took > most {
					t.Errorf("received %d blocks after %v, want 500 within %v", r.blocks, took, most)
				}
			})
		})
	}
}

// A reader that has its page waits for its turn. Readers of hundreds of pages must not occupy all turns before it.
func TestReaderOfFewPagesWaitsForFewTurnsOfOthers(t *testing.T) {
	for name, others := range map[string]struct {
		perClient int
		again     int // number of blocks after which a client replaces a reader; 0 means never
	}{
		"others have one reader":                         {1, 0},
		"others have 15 readers":                         {15, 0},
		"others have 15 readers, which start again soon": {15, 450},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(50_000)
				c.pageTakes = 100 * time.Microsecond // as long as a turn, so the pages of the others are there at once
				l := openStarted(t, c, Options[int]{Window: 5})
				p := &pool{t: t, log: l}
				readers, usages := make([]*pooled, 600), make([]xsync.Usage, 600/others.perClient)
				join := func(i int) {
					client := &Client{Usage: &usages[i/others.perClient]}
					readers[i] = p.join(client, cursorOf(i/100*5_000+i%100), 1) // shares no page with the others
				}
				for i := range readers {
					join(i)
				}
				startAgain := func() {
					for i, r := range readers {
						if others.again > 0 && r.blocks >= others.again {
							r.Close()
							r.closed = true
							join(i)
						}
					}
				}
				p.run(900*time.Millisecond, func() bool { startAgain(); return false }) // about 15 pages for each
				r := p.join(new(Client), cursorOf(45_000), 1)
				took := p.run(10*time.Second, func() bool { startAgain(); return r.blocks >= 1000 })
				if most := 400 * time.Millisecond; took > most { // each page waits for 60 ms if those of all others do
					t.Errorf("received %d blocks after %v, want 1000 within %v", r.blocks, took, most)
				}
			})
		})
	}
}
