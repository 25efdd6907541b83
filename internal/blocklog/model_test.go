package blocklog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// modelReader is a reader with the blocks that it has received. It reads only when it was woken.
type modelReader struct {
	*Reader[int]
	every  int
	chain  *chain
	placed bool // the log had a position when it joined
	start  int  // it must receive the blocks after this one; -1: after answers[head]
	head   int
	ready  atomic.Bool
	got    []int
	lost   *Lost
}

func joinModelReader(t *testing.T, l *Log[int], c *chain, rnd *rand.Rand) *modelReader {
	m := &modelReader{every: 1 + rnd.IntN(4), chain: c, start: -1, head: len(c.answers)}
	m.ready.Store(true)
	m.placed = l.positioned
	var after *string
	switch rnd.IntN(3) {
	case 0:
		if l.positioned {
			after, _ := numberAfter(l.view.Load().newest.cursor)
			m.start = after - 1
		}
	case 1:
		m.start = rnd.IntN(c.newest + 20) // perhaps after the newest
		cursor := cursorOf(m.start)
		after = &cursor
	case 2:
		m.start = rnd.IntN(c.newest + 1)
		cursor := between(m.start)
		after = &cursor
	}
	var err error
	m.Reader, err = l.Join(Interest[int]{Key: key(m.every), After: after, Eval: every(m.every), Wake: func() { m.ready.Store(true) }})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *modelReader) next(t *testing.T) bool {
	if m.lost != nil || !m.ready.Swap(false) {
		return false
	}
	item, err := m.Next()
	if errors.As(err, &m.lost) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if item.Payload == nil {
		return false
	}
	m.ready.Store(true)
	n, _ := strconv.Atoi(string(item.Payload))
	if len(m.got) > 0 && n <= m.got[len(m.got)-1] || item.Cursor != cursorOf(n) || m.Cursor() < item.Cursor {
		t.Fatalf("block %d with cursor %q, now at %q, after %v", n, item.Cursor, m.Cursor(), m.got)
	}
	m.got = append(m.got, n)
	return true
}

func (m *modelReader) lostErr() error {
	if m.lost == nil {
		return nil
	}
	return m.lost
}

// check checks that a reader has received exactly the matching blocks from its start to its cursor.
func (m *modelReader) check(t *testing.T) {
	t.Helper()
	if errors.Is(m.lostErr(), ErrNoPosition) {
		if m.start >= 0 || m.Cursor() != "" || m.got != nil || m.placed {
			t.Errorf("%v, but it began at %d, is at %q and has had %v", m.lost, m.start, m.Cursor(), m.got)
		}
		return
	}
	start := m.start
	if start < 0 && len(m.chain.answers) > m.head {
		start = m.chain.answers[m.head]
	}
	if start < 0 {
		if m.Cursor() != "" || m.got != nil {
			t.Errorf("at %q with %v before there was a head", m.Cursor(), m.got)
		}
		return
	}
	after, _ := numberAfter(m.Cursor())
	at := after - 1
	if m.lost != nil && (m.lost.Cursor != m.Cursor() || at+1 >= m.chain.oldest || !errors.Is(m.lost, errGone)) {
		t.Errorf("%v, but it is at %q and the oldest block is %d", m.lost, m.Cursor(), m.chain.oldest)
	}
	if at > max(start, m.chain.newest) || at < start {
		t.Errorf("cursor %d outside of %d to %d", at, start, m.chain.newest)
	}
	if want := upTo(start+1, at, m.every); !slices.Equal(m.got, want) {
		t.Errorf("every %d from %d to %d:\n got %v\nwant %v", m.every, start, at, m.got, want)
	}
}

// The source fails at random, repeats blocks, yields blocks out of order, and loses its position and its history. Its
// pages fail, take time and lag. Readers join at any cursor, read in bursts and leave at random. Each receives exactly
// its matching blocks from its start on, in order, or ends with the right cursor.
func TestEveryReaderReceivesExactlyItsBlocks(t *testing.T) {
	var total Stats
	var losts, rereads, loses, mostRounds int
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				c := newChain(rnd.IntN(300))
				c.recents = []int{1, 2, 50, 1000}[rnd.IntN(4)]
				if rnd.IntN(4) == 0 {
					c.down = errDown
				}
				c.pageTakes = time.Duration(rnd.IntN(2)*rnd.IntN(500)) * time.Millisecond
				c.lie = func(n int) int { // an earlier block, or the same again
					if n%3 != 0 {
						return 0
					}
					return n - n%7
				}
				l := open(t, c, Options[int]{Window: []int{3, 30, 100, 1000}[rnd.IntN(4)]})
				l.held.limit = []int{12, maxHeldPages}[seed%2]
				l.Start()
				if rnd.IntN(2) == 0 {
					synctest.Wait()
				}
				var readers []*modelReader
				for range 300 {
					switch rnd.IntN(16) {
					case 0, 1, 2:
						c.grow(rnd.IntN(6))
					case 3:
						c.grow(rnd.IntN(80))
					case 4:
						c.set(func() { c.down, c.replay = errDown, rnd.IntN(10) })
					case 5, 6:
						c.fail(nil)
						time.Sleep(time.Duration(rnd.IntN(15)) * time.Second)
					case 7:
						c.set(func() { c.pageDown, c.lag = nil, 0 })
					case 8:
						switch rnd.IntN(8) {
						case 0, 1, 2:
							c.set(func() { c.pageDown = errDown })
						case 3, 4, 5:
							c.set(func() { c.lag = rnd.IntN(c.newest + 1) })
						case 6:
							c.set(func() { c.down, c.goneOnce = errDown, true })
							loses++
						case 7:
							c.set(func() { c.oldest = max(c.oldest, c.newest-rnd.IntN(200)) })
						}
					case 9, 10:
						synctest.Wait() // or "newest when it joined" means nothing
						readers = append(readers, joinModelReader(t, l, c, rnd))
					case 11:
						synctest.Wait()
					default:
						if len(readers) == 0 {
							continue
						}
						i := rnd.IntN(len(readers))
						m := readers[i]
						if rnd.IntN(2) == 0 {
							synctest.Wait()
						}
						m.group.mu.Lock()
						if m.at.next < m.group.since {
							rereads++
						}
						m.group.mu.Unlock()
						if rnd.IntN(4) == 0 {
							m.ready.Store(true) // unasked
						}
						for n := rnd.IntN(150); n > 0 && m.next(t); n-- {
						}
						if m.lost != nil || rnd.IntN(15) == 0 {
							synctest.Wait()
							m.check(t)
							m.Close()
							m.check(t)
							readers = slices.Delete(readers, i, i+1)
						}
						if m.lost != nil {
							losts++
						}
					}
				}
				c.set(func() { c.down, c.pageDown, c.lag, c.goneOnce = nil, nil, 0, false })
				time.Sleep(time.Minute)
				c.grow(50) // after every reader's start
				atEnd := func(m *modelReader) bool {
					return m.lost != nil || m.Cursor() == cursorOf(c.newest) && m.at.next != catchingUp
				}
				rounds := 0
				for ; rounds < 100; rounds++ { // if there are more readers than held pages, few make progress in a round
					synctest.Wait()
					done := true
					for _, m := range readers {
						for m.next(t) {
						}
						done = done && atEnd(m)
					}
					if done {
						break
					}
					time.Sleep(holdTime / 2)
				}
				mostRounds = max(mostRounds, rounds)
				synctest.Wait()
				for _, m := range readers {
					m.check(t)
					if !atEnd(m) {
						t.Errorf("ends at %q, the chain at %q; from %d", m.Cursor(), cursorOf(c.newest), m.start)
					}
				}
				s := l.Stats()
				for _, m := range readers {
					if m.lost != nil {
						s.CatchingUp--
					}
					if len(m.group.items) > 0 {
						t.Errorf("%d items kept when all were read", len(m.group.items))
					}
				}
				if s.Readers != len(readers) || s.CatchingUp != 0 || int(s.PageReads) != len(c.pages) || c.most > pageCalls ||
					len(l.pages) > 0 || l.queue.Len() > 0 || l.calls > 0 || l.held.Len() > len(readers) {
					t.Errorf("stats %+v for %d readers and %d pages, %d at once", s, len(readers), len(c.pages), c.most)
				}
				total.CaughtUp += s.CaughtUp
				total.Resumed += s.Resumed
				total.PageReads += s.PageReads
			})
		})
	}
	t.Logf("%d lost, %d rereads, %d loses, %d rounds at most, %+v", losts, rereads, loses, mostRounds, total)
	if losts < 50 || rereads < 50 || loses < 50 || total.CaughtUp < 1000 || total.PageReads < 1000 {
		t.Errorf("this tests little")
	}
}
