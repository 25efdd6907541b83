package blocklog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// modelled is a reader and what it has had.
type modelled struct {
	*Reader[int]
	every  int
	chain  *chain
	before int // how many blocks had arrived when it joined
	got    []int
	behind *Behind
}

func (m *modelled) next(t *testing.T) bool {
	item, err := m.Next()
	if errors.As(err, &m.behind) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if item.Payload == nil {
		return false
	}
	n, _ := strconv.Atoi(string(item.Payload))
	m.got = append(m.got, n)
	if !slices.IsSorted(m.got) || item.Cursor != cursorOf(n) {
		t.Fatalf("block %d with cursor %q after %v", n, item.Cursor, m.got)
	}
	return true
}

// from is the newest block when it joined.
func (m *modelled) from() int { return m.chain.answered + m.before }

// check says what a reader must have had: exactly the matching blocks from its join to its cursor.
func (m *modelled) check(t *testing.T, newest int) {
	t.Helper()
	at, _ := strconv.Atoi(m.Cursor())
	if m.behind != nil && m.behind.Cursor != m.Cursor() {
		t.Errorf("told cursor %q, but is at %q", m.behind.Cursor, m.Cursor())
	}
	if at > newest || at < m.from() {
		t.Errorf("cursor %d outside of %d to %d", at, m.from(), newest)
	}
	if want := upTo(m.from()+1, at, m.every); !slices.Equal(m.got, want) {
		t.Errorf("every %d from %d to %d:\n got %v\nwant %v", m.every, m.from(), at, m.got, want)
	}
}

// A source that fails at random, replays what it gave before and lies about the order, and readers that come, read
// in bursts and go at random: each has exactly the blocks that match it, from its join on, in order.
func TestEveryReaderHasExactlyItsBlocks(t *testing.T) {
	var behinds, rereads int
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				c := newChain(rnd.IntN(20))
				if rnd.IntN(4) == 0 {
					c.down = errDown
				}
				c.lie = func(n int) int { // a block from before, or the same again
					if n%3 != 0 {
						return 0
					}
					return n - n%7
				}
				l := open(t, c, Options{Window: []int{5, 100, 1000}[rnd.IntN(3)]})
				l.Start()
				if rnd.IntN(2) == 0 {
					synctest.Wait()
				}
				var readers []*modelled
				for range 300 {
					switch rnd.IntN(12) {
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
						synctest.Wait() // or "newest when it joined" means nothing
						n := 1 + rnd.IntN(4)
						readers = append(readers, &modelled{Reader: join(t, l, n), every: n, chain: c, before: int(l.Stats().Blocks)})
					case 8:
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
						if m.Cursor() < cursorOf(m.from()) {
							t.Errorf("cursor %q of one who joined at %d", m.Cursor(), m.from())
						}
						m.feed.mu.Lock()
						if m.at.next < m.feed.since {
							rereads++
						}
						m.feed.mu.Unlock()
						for n := rnd.IntN(60); n > 0 && m.next(t); n-- {
						}
						if m.behind != nil || rnd.IntN(10) == 0 {
							synctest.Wait()
							m.check(t, c.newest)
							m.Close()
							m.check(t, c.newest)
							readers = slices.Delete(readers, i, i+1)
						}
						if m.behind != nil {
							behinds++
						}
					}
				}
				c.fail(nil)
				time.Sleep(time.Minute)
				for _, m := range readers {
					for m.next(t) {
					}
					m.check(t, c.newest)
					if m.behind == nil && m.Cursor() != cursorOf(c.newest) {
						t.Errorf("ends at %q, the chain at %q", m.Cursor(), cursorOf(c.newest))
					}
				}
				if s := l.Stats(); s.Readers != len(readers) || c.answered+int(s.Blocks) != c.newest {
					t.Errorf("stats %+v for %d readers of block %d to %d", s, len(readers), c.answered+1, c.newest)
				}
			})
		})
	}
	if behinds < 50 || rereads < 50 {
		t.Errorf("only %d readers fell out of the window and %d read it: this tests little", behinds, rereads)
	}
}

// Readers on goroutines of their own join, read and leave while blocks come in and the source fails. Nobody waits
// for anybody, so the race detector sees the schedules.
func TestReadersOnTheirOwnGoroutinesMissNothing(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(0)
			c.replay = 3
			l := open(t, c, Options{Window: 1 << 20, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
			l.Start()
			synctest.Wait()
			var readers sync.WaitGroup
			for i := range 16 {
				readers.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 12 {
						readSome(t, l, rnd)
					}
				})
			}
			finished := make(chan struct{})
			go func() { readers.Wait(); close(finished) }()
			for n := 0; ; n++ {
				select {
				case <-finished:
					synctest.Wait()
					if got := l.Stats(); got.Readers != 0 || got.Feeds != 0 {
						t.Errorf("stats %+v when all have left", got)
					}
					return
				case <-time.After(time.Millisecond):
				}
				c.grow(100)
				runtime.Gosched()
				if n%4 == 3 {
					c.fail(errDown)
					time.Sleep(time.Millisecond)
					c.fail(nil)
				}
			}
		})
	}
}

// Close comes while everybody reads: all of them are told, at a position they can go on from.
func TestCloseAmongReadersTellsEachOfThem(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(0)
			l := open(t, c, Options{Window: 1 << 20})
			l.Start()
			synctest.Wait()
			var readers sync.WaitGroup
			for i := range 8 {
				step := 1 + i%3
				ready := make(chan struct{}, 1)
				r, _ := l.Join(key(step), every(step), func() {
					select {
					case ready <- struct{}{}:
					default:
					}
				})
				readers.Go(func() {
					var got []int
					for {
						more, err := read(t, r)
						got = append(got, more...)
						if err == ErrClosed {
							break
						} else if err != nil {
							t.Error(err)
						}
						<-ready
					}
					at, _ := strconv.Atoi(r.Cursor())
					if want := upTo(1, at, step); !slices.Equal(got, want) {
						t.Errorf("closed at %d after %v, want %v", at, got, want)
					}
				})
			}
			c.grow(2000)
			for range rand.New(rand.NewPCG(seed, 2)).IntN(300) {
				runtime.Gosched()
			}
			shut(t, l)
			readers.Wait()
		})
	}
}

// readSome joins, reads a random number of matches as it is woken, checks that none is missing, and leaves, half of
// the time while somebody else is still reading with it.
func readSome(t *testing.T, l *Log[int], rnd *rand.Rand) {
	step, want := 1+rnd.IntN(3), rnd.IntN(400)
	ready := make(chan struct{}, 1)
	r, err := l.Join(key(step), every(step), func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Error(err)
		return
	}
	var left sync.WaitGroup
	defer left.Wait()
	before, _ := strconv.Atoi(r.Cursor())
	before -= before % step
	for n := 0; n < want; {
		item, err := r.Next()
		switch {
		case err != nil:
			t.Error(err)
			return
		case item.Payload == nil:
			<-ready
			continue
		}
		got, _ := strconv.Atoi(string(item.Payload))
		if n > 0 && got != before+step || n == 0 && got <= before || r.Cursor() < item.Cursor {
			t.Errorf("block %d after %d, step %d, cursor %q", got, before, step, r.Cursor())
		}
		before = got
		if n++; n%50 == 0 {
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		}
	}
	left.Go(r.Close)
	for {
		if item, err := r.Next(); err != nil || item.Payload == nil {
			return
		}
	}
}
