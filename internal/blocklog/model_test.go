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

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/internal/xsync"
)

// modelReader is a reader with the blocks that it has received. It reads only after it was woken.
type modelReader struct {
	*Reader[int]
	every  int
	chain  *chain
	placed bool // the log had a position when it joined
	start  int  // the reader must receive the blocks after this one; -1 means after answers[head]
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
		m.start = rnd.IntN(c.newest + 20) // may be after the newest block
		cursor := cursorOf(m.start)
		after = &cursor
	case 2:
		m.start = rnd.IntN(c.newest + 1)
		cursor := between(m.start)
		after = &cursor
	}
	var err error
	wake := xsync.WakeFunc(func() { m.ready.Store(true) })
	i := Interest[int]{Key: key(m.every), After: after, Eval: every(m.every), Wake: wake}
	if m.every > 1 {
		i.Client = &modelConnection
		i.Eval = slowFor(func(b int) int { return b }, i.Eval)
	}
	m.Reader, err = l.Join(i)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// next reads one block if the reader has been woken, and reports whether it should be called again.
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
		t.Fatalf("received block %d with cursor %q after %v, and Cursor is %q", n, item.Cursor, m.got, m.Cursor())
	}
	m.got = append(m.got, n)
	return true
}

// lostErr returns m.lost as an error that is nil if the reader has not ended.
func (m *modelReader) lostErr() error {
	if m.lost == nil {
		return nil
	}
	return m.lost
}

// check checks that the reader has received exactly the matching blocks from its start to its cursor.
func (m *modelReader) check(t *testing.T) {
	t.Helper()
	if errors.Is(m.lostErr(), ErrNoPosition) || m.lost == nil && m.Reader.lost == ErrNoPosition {
		if m.start >= 0 || m.Cursor() != "" || m.got != nil || m.placed {
			t.Errorf("the reader ended with %v although it started at %d, is at %q and received %v",
				m.lost, m.start, m.Cursor(), m.got)
		}
		return
	}
	start := m.start
	if start < 0 && len(m.chain.answers) > m.head {
		start = m.chain.answers[m.head]
	}
	if start < 0 {
		if m.Cursor() != "" || m.got != nil {
			t.Errorf("the reader is at %q with blocks %v before Recent has returned", m.Cursor(), m.got)
		}
		return
	}
	after, _ := numberAfter(m.Cursor())
	at := after - 1
	if m.lost != nil && (m.lost.Cursor != m.Cursor() || at+1 >= m.chain.oldest || !errors.Is(m.lost, errGone)) {
		t.Errorf("the reader ended with %v although it is at %q and the oldest block is %d",
			m.lost, m.Cursor(), m.chain.oldest)
	}
	if at > max(start, m.chain.newest) || at < start {
		t.Errorf("Cursor is that of block %d, want one from %d to %d", at, start, m.chain.newest)
	}
	if want := upTo(start+1, at, m.every); !slices.Equal(m.got, want) {
		t.Errorf("blocks divisible by %d from %d to %d:\n got %v\nwant %v", m.every, start, at, m.got, want)
	}
}

// At random, the source fails, repeats blocks, yields blocks out of order, and loses its position and its history.
// Pages fail, take time, and lack the newest blocks. Readers join at any cursor, read in bursts, and leave. Each reader
// receives exactly its matching blocks after its start, in order, or ends with the right cursor.
func TestEveryReaderReceivesExactlyItsBlocks(t *testing.T) {
	var total Stats
	var losts, rereads, loses, mostRounds int
	seeds := testkit.RaceSample(t, 200)
	for seed := range testkit.Seeds(t, seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				c := newChain(rnd.IntN(300))
				c.recents = []int{1, 2, 50, 1000}[rnd.IntN(4)]
				if rnd.IntN(4) == 0 {
					c.down = errDown
				}
				c.pageTakes = time.Duration(rnd.IntN(2)*rnd.IntN(500)) * time.Millisecond
				c.lie = func(n int) int { // an earlier block or the same block again
					if n%3 != 0 {
						return 0
					}
					return n - n%7
				}
				l := open(t, c, Options[int]{Window: []int{3, 30, 100, 1000}[rnd.IntN(4)]})
				limitHeld(l, []int{12, maxHeldPages}[seed%2])
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
							c.set(func() { c.down, c.gone = errDown, 1+rnd.IntN(2) })
							loses++
						case 7:
							c.set(func() { c.oldest = max(c.oldest, c.newest-rnd.IntN(200)) })
						}
					case 9, 10:
						synctest.Wait() // so that the newest block at the time of Join is defined
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
							m.ready.Store(true) // read without a wake
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
				c.set(func() { c.down, c.pageDown, c.lag, c.gone = nil, nil, 0, 0 })
				time.Sleep(time.Minute)
				c.grow(50) // after every reader's start
				atEnd := func(m *modelReader) bool {
					return m.lost != nil || m.Cursor() == cursorOf(c.newest) && m.at.next != catchingUp
				}
				// If there are more readers than held pages, only a few readers make progress in a round.
				readAll := func() {
					rounds := 0
					for ; rounds < 100; rounds++ {
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
				}
				readAll()
				for range 10 { // each block must wake the readers that have read all others
					c.grow(1)
					readAll()
				}
				synctest.Wait()
				for _, m := range readers {
					m.check(t)
					if !atEnd(m) {
						t.Errorf("a reader from %d stopped at %q, want %q", m.start, m.Cursor(), cursorOf(c.newest))
					}
				}
				s := l.Stats()
				for _, m := range readers {
					if m.lost != nil {
						s.CatchingUp--
					}
					if len(m.group.items) > 0 {
						t.Errorf("the group keeps %d items although all have been read, want 0", len(m.group.items))
					}
				}
				if s.Readers != len(readers) || s.CatchingUp != 0 || int(s.PageReads) != len(c.pages) ||
					c.most > pageCalls || len(l.pages) > 0 || queuedPagesOf(l) > 0 || l.calls > 0 ||
					heldPagesOf(l) > len(readers) {
					t.Errorf("unexpected stats %+v with %d readers and %d pages, of which %d were concurrent",
						s, len(readers), len(c.pages), c.most)
				}
				total.CaughtUp += s.CaughtUp
				total.Resumed += s.Resumed
				total.PageReads += s.PageReads
			})
		})
	}
	t.Logf("%d readers lost, %d rereads, %d lost positions, at most %d rounds, stats %+v",
		losts, rereads, loses, mostRounds, total)
	if min(losts, rereads, loses) < seeds/4 || int(min(total.CaughtUp, total.PageReads)) < 5*seeds {
		t.Errorf("the random runs cover too few cases, see the numbers above")
	}
}
