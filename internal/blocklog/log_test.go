package blocklog

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/internal/xsync"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }

var quiet = slog.New(slog.DiscardHandler)

// open returns a Log of c that is closed when the test ends.
func open(t *testing.T, c *chain, o Options[int]) *Log[int] {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	l := New(c.source(), o)
	t.Cleanup(func() { shut(t, l) })
	return l
}

// openStarted is like open, but starts the Log and waits until it has a position, or as long as it can.
func openStarted(t *testing.T, c *chain, o Options[int]) *Log[int] {
	t.Helper()
	l := open(t, c, o)
	l.Start()
	synctest.Wait()
	return l
}

// shut closes a Log and waits until it has ended.
func shut(t *testing.T, l *Log[int]) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Errorf("Close returned error %v", err)
	}
}

// join joins a reader that starts now and matches every nth block.
func join(t *testing.T, l *Log[int], n int) *Reader[int] {
	t.Helper()
	r, err := l.Join(Interest[int]{Key: key(n), Eval: every(n)})
	if err != nil {
		t.Fatalf("Join returned error %v", err)
	}
	return r
}

// read reads the available items. It checks that the cursor and the payload of each item belong to the same block, and
// that the position of the reader is not before the item.
func read(t *testing.T, r *Reader[int]) (got []int, err error) {
	t.Helper()
	for {
		item, err := r.Next()
		if err != nil || item.Payload == nil {
			return got, err
		}
		n, _ := strconv.Atoi(string(item.Payload))
		if item.Cursor != cursorOf(n) {
			t.Errorf("the item with the payload of block %d has cursor %q", n, item.Cursor)
		}
		if r.Cursor() < item.Cursor {
			t.Errorf("Cursor is %q after Next returned block %d", r.Cursor(), n)
		}
		got = append(got, n)
	}
}

// expect expects that exactly the blocks want are available now.
func expect(t *testing.T, r *Reader[int], want ...int) {
	t.Helper()
	if got, err := read(t, r); err != nil || !slices.Equal(got, want) {
		t.Fatalf("read blocks %v and error %v, want blocks %v", got, err, want)
	}
}

// upTo returns the numbers between from and to, both inclusive, that are divisible by step.
func upTo(from, to, step int) (s []int) {
	for n := from; n <= to; n++ {
		if n%step == 0 {
			s = append(s, n)
		}
	}
	return s
}

func TestOneFollowServesManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		l := open(t, c, Options[int]{})
		if synctest.Wait(); c.heads != 0 {
			t.Fatal("Recent was called before the first Join, want no call")
		}
		var readers []*Reader[int]
		for i := range 300 {
			readers = append(readers, join(t, l, 1+i%3))
		}
		synctest.Wait()
		c.grow(20)
		synctest.Wait()
		for i, r := range readers {
			expect(t, r, upTo(11, 30, 1+i%3)...)
			expect(t, r)
		}
		if got := c.asked(); !slices.Equal(got, []string{cursorOf(10)}) || c.heads != 1 {
			t.Errorf("Recent was called %d times and Follow after %q, want one call of each", c.heads, got)
		}
		if got, want := l.Stats(), (Stats{Blocks: 20, Readers: 300, Groups: 3}); got != want {
			t.Errorf("got stats %+v, want %+v", got, want)
		}
		for _, r := range readers {
			r.Close()
			r.Close()
		}
		c.grow(1)
		synctest.Wait()
		if got, want := l.Stats(), (Stats{Blocks: 21}); got != want {
			t.Errorf("got stats %+v after all readers were closed, want %+v", got, want)
		}
		if c.running != 1 {
			t.Error("Follow ended when the last reader was closed, want it to run until Close")
		}
	})
}

func TestReaderWithoutCursorEndsIfTheLogHasNoPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		c.fail(errDown)
		l := open(t, c, Options[int]{MinBackoff: 10 * time.Second})
		r := join(t, l, 1)
		synctest.Wait()
		expectNoPosition(t, r) // the first attempt has failed
		again := join(t, l, 1)
		synctest.Wait()
		expect(t, again) // waits for the next attempt; otherwise its client would join again and again without a pause
		c.fail(nil)
		c.grow(2)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expectNoPosition(t, again)
		later := join(t, l, 1)
		c.grow(2)
		synctest.Wait()
		expect(t, later, 8, 9)
		for _, r := range []*Reader[int]{r, again, later} {
			r.Close()
		}
		if s := l.Stats(); s.Readers != 0 || s.CatchingUp != 0 || s.EndedByGap != 0 {
			t.Errorf("stats are %+v after all readers were closed, want no readers and no gap", s)
		}
	})
}

// expectNoPosition expects that a reader ends because the log had no position.
func expectNoPosition(t *testing.T, r *Reader[int]) {
	t.Helper()
	got, err := read(t, r)
	var lost *Lost
	if !errors.As(err, &lost) || lost.Cursor != "" || !errors.Is(err, ErrNoPosition) || got != nil || r.Cursor() != "" {
		t.Errorf("read blocks %v and error %v, and Cursor is %q; want only ErrNoPosition", got, err, r.Cursor())
	}
}

func TestEmptyChainIsFollowedFromFirstBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		r := join(t, open(t, c, Options[int]{}), 1)
		synctest.Wait()
		c.grow(2)
		synctest.Wait()
		expect(t, r, 1, 2)
	})
}

func TestCloseEndsReadersAndWaitsForFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		woken := 0
		idle, _ := l.Join(Interest[int]{Key: "idle", Eval: every(100), Wake: xsync.WakeFunc(func() { woken++ })})
		slow := join(t, l, 1)
		synctest.Wait()
		c.grow(3)
		synctest.Wait()
		if item, err := slow.Next(); item.Cursor != cursorOf(1) || err != nil {
			t.Fatalf("Next returned %+v and error %v, want block 1", item, err)
		}
		shut(t, l)
		if c.running != 0 {
			t.Error("Close returned before Follow did")
		}
		for r, cursor := range map[*Reader[int]]string{idle: cursorOf(3), slow: cursorOf(1)} {
			if _, err := r.Next(); err != ErrClosed {
				t.Errorf("Next returned error %v, want ErrClosed", err)
			}
			if r.Cursor() != cursor {
				t.Errorf("Cursor is %q, want %q", r.Cursor(), cursor)
			}
			r.Close()
		}
		if woken != 1 {
			t.Errorf("the idle reader was woken %d times, want once", woken)
		}
		if _, err := l.Join(Interest[int]{Eval: every(1)}); err != ErrClosed {
			t.Errorf("Join returned error %v, want ErrClosed", err)
		}
		if got, want := l.Stats(), (Stats{Blocks: 3}); got != want {
			t.Errorf("got stats %+v, want %+v", got, want)
		}
	})
}

func TestCloseReturnsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		src, hung := c.source(), make(chan struct{})
		src.Follow = func(context.Context, string) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) { <-hung; yield(1, nil) }
		}
		l := New(src, Options[int]{Logger: quiet})
		l.Start()
		l.Start()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err != context.DeadlineExceeded {
			t.Errorf("Close returned %v, want the context's error", err)
		}
		close(hung)
		shut(t, l)
		if got := l.Stats().Blocks; got != 0 {
			t.Error("a block was accepted after Close")
		}
		l.Start()
		shut(t, New(src, Options[int]{Logger: quiet})) // never started
	})
}

func TestCloseDoesNotWaitForTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		c.fail(errDown)
		l := openStarted(t, c, Options[int]{MinBackoff: time.Hour})
		before := time.Now()
		shut(t, l)
		if took := time.Since(before); took > 0 {
			t.Errorf("Close took %v, want no wait", took)
		}
	})
}

func TestBlockBeingDeliveredDuringCloseIsNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		woken := 0
		r, _ := l.Join(Interest[int]{Eval: func(b int) []byte {
			if b < 3 {
				return nil
			}
			if err := l.Close(ctx); err != context.Canceled {
				t.Errorf("Close returned %v, want the context's error", err)
			}
			return every(1)(b)
		}, Wake: xsync.WakeFunc(func() { woken++ })})
		synctest.Wait()
		c.grow(3)
		synctest.Wait()
		if item, err := r.Next(); err != ErrClosed || r.Cursor() != cursorOf(2) || woken != 1 {
			t.Errorf("Next returned %v and error %v after %d wakes at %q, want ErrClosed after one wake at block 2",
				item, err, woken, r.Cursor())
		}
	})
}

func TestWindowHasTheArrivalTimeOfItsNewestBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(3)
		l := openStarted(t, c, Options[int]{})
		if at, ok := l.Arrived(); ok {
			t.Errorf("Arrived is %v before any block, want none", at)
		}
		time.Sleep(time.Hour)
		c.grow(1)
		want := time.Now()
		time.Sleep(time.Minute)
		if at, ok := l.Arrived(); !ok || !at.Equal(want) {
			t.Errorf("Arrived is %v, %v, want %v", at, ok, want)
		}
	})
}

// logged returns a logger and the buffer to which it writes.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// Arrived returns the arrival time of the newest block. If no block has arrived, or none since the source lost its
// history, ok is false.
func (l *Log[B]) Arrived() (last time.Time, ok bool) {
	last = l.view.Load().arrived
	return last, !last.IsZero()
}
