package blocklog

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Readers on their own goroutines join, read and leave while blocks arrive and the source fails. They do not wait for
// each other, so that the race detector sees many schedules.
func TestConcurrentReadersReceiveEveryBlock(t *testing.T) {
	for seed := range testkit.Seeds(t, 9) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(0)
			c.replay, c.recents = 3, 200
			l := open(t, c, Options[int]{
				Window: 1 << (20 - 7*(seed%3)), MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
			})
			limitHeld(l, []int{2, maxHeldPages}[seed%2])
			l.Start()
			synctest.Wait()
			var readers sync.WaitGroup
			for i := range 16 {
				readers.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 12 {
						readSome(t, l, c, rnd)
					}
				})
			}
			finished := make(chan struct{})
			go func() { readers.Wait(); close(finished) }()
			for n := 0; ; n++ {
				select {
				case <-finished:
					synctest.Wait()
					if got := l.Stats(); got.Readers != 0 || got.Groups != 0 || got.CatchingUp != 0 {
						t.Errorf("stats are %+v after all readers were closed, want no readers", got)
					}
					if len(l.pages) > 0 || queuedPagesOf(l) > 0 {
						t.Errorf("%d pages are in memory and %d are queued after all readers were closed, want 0",
							len(l.pages), queuedPagesOf(l))
					}
					return
				case <-time.After(time.Millisecond):
				}
				c.grow(100)
				runtime.Gosched()
				if n%4 == 3 {
					c.set(func() {
						if c.down, c.pageDown = errDown, errDown; n%8 == 3 {
							c.gone = 2
						}
					})
					time.Sleep(time.Millisecond)
					c.set(func() { c.down, c.pageDown = nil, nil })
				}
			}
		})
	}
}

func TestCloseEndsConcurrentReadersAtTheirPositions(t *testing.T) {
	for seed := range testkit.Seeds(t, 50) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(0)
			l := openStarted(t, c, Options[int]{Window: 1 << 20})
			var readers sync.WaitGroup
			for i := range 8 {
				step := 1 + i%3
				ready := make(chan struct{}, 1)
				r, _ := l.Join(Interest[int]{Key: key(step), Eval: every(step), Wake: xsync.WakeFunc(func() {
					select {
					case ready <- struct{}{}:
					default:
					}
				})})
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
						t.Errorf("a reader at block %d has received blocks %v, want %v", at, got, want)
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

// readSome joins a reader, reads a random number of matches, and checks that none is missing. Then another goroutine
// closes the reader while readSome still calls Next.
func readSome(t *testing.T, l *Log[int], c *chain, rnd *rand.Rand) {
	step, want := 1+rnd.IntN(3), rnd.IntN(400)
	var after *string
	if rnd.IntN(3) > 0 {
		c.mu.Lock()
		cursor := cursorOf(max(0, c.newest+150-rnd.IntN(500)))
		c.mu.Unlock()
		after = &cursor
	}
	ready := make(chan struct{}, 1)
	r, err := l.Join(Interest[int]{Key: key(step), After: after, Eval: every(step), Wake: xsync.WakeFunc(func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	})})
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
		case errors.Is(err, ErrNoPosition) && n == 0 && after == nil:
			r.Close()
			return
		case err != nil:
			t.Error(err)
			return
		case item.Payload == nil:
			<-ready
			continue
		}
		got, _ := strconv.Atoi(string(item.Payload))
		exact := n > 0 || after != nil
		if exact && got != before+step || !exact && got <= before || r.Cursor() < item.Cursor {
			t.Errorf("received block %d after %d although every block divisible by %d matches; Cursor is %q",
				got, before, step, r.Cursor())
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
