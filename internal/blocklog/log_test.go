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
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, c *chain, o Options[int]) *Log[int] {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	l := New(c.source(), o)
	t.Cleanup(func() { shut(t, l) })
	return l
}

func shut(t *testing.T, l *Log[int]) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Error("Close:", err)
	}
}

func join(t *testing.T, l *Log[int], n int) *Reader[int] {
	t.Helper()
	r, err := l.Join(Interest[int]{Key: key(n), Eval: every(n)})
	if err != nil {
		t.Fatal("Join:", err)
	}
	return r
}

// read takes the available items, and checks that cursor and payload belong to one block and that Cursor keeps up.
func read(t *testing.T, r *Reader[int]) (got []int, err error) {
	t.Helper()
	for {
		item, err := r.Next()
		if err != nil || item.Payload == nil {
			return got, err
		}
		n, _ := strconv.Atoi(string(item.Payload))
		if item.Cursor != cursorOf(n) {
			t.Errorf("block %d came with cursor %q", n, item.Cursor)
		}
		if r.Cursor() < item.Cursor {
			t.Errorf("Cursor is %q after block %d", r.Cursor(), n)
		}
		got = append(got, n)
	}
}

func expect(t *testing.T, r *Reader[int], want ...int) {
	t.Helper()
	if got, err := read(t, r); err != nil || !slices.Equal(got, want) {
		t.Fatalf("read %v, %v; want %v", got, err, want)
	}
}

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
			t.Fatal("the source was called before the first Join")
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
			t.Errorf("%d heads and follows %q; want one of each", c.heads, got)
		}
		if got, want := l.Stats(), (Stats{Blocks: 20, Readers: 300, Groups: 3}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
		for _, r := range readers {
			r.Close()
			r.Close()
		}
		c.grow(1)
		synctest.Wait()
		if got, want := l.Stats(), (Stats{Blocks: 21}); got != want {
			t.Errorf("stats %+v when all have left, want %+v", got, want)
		}
		if c.running != 1 {
			t.Error("the Follow ended with the last reader; it ends with the log")
		}
	})
}

func TestReaderWithoutPositionEndsIfRecentIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		c.fail(errDown)
		l := open(t, c, Options[int]{MinBackoff: 10 * time.Second})
		r := join(t, l, 1)
		synctest.Wait()
		expectUnplaced(t, r) // the first attempt has failed
		again := join(t, l, 1)
		synctest.Wait()
		expect(t, again) // it waits for the next attempt, or its client would come back at once, again and again
		c.fail(nil)
		c.grow(2)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expectUnplaced(t, again)
		later := join(t, l, 1)
		c.grow(2)
		synctest.Wait()
		expect(t, later, 8, 9)
		for _, r := range []*Reader[int]{r, again, later} {
			r.Close()
		}
		if s := l.Stats(); s.Readers != 0 || s.CatchingUp != 0 || s.EndedByGap != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// expectUnplaced expects that a reader ends because the log had no position.
func expectUnplaced(t *testing.T, r *Reader[int]) {
	t.Helper()
	got, err := read(t, r)
	if lost := (*Lost)(nil); !errors.As(err, &lost) || lost.Cursor != "" || !errors.Is(err, ErrNoPosition) || got != nil || r.Cursor() != "" {
		t.Errorf("read %v, %v, at %q; want no position", got, err, r.Cursor())
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

func TestCloseEndsReadersAndWaitsForTheFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		woken := 0
		idle, _ := l.Join(Interest[int]{Key: "idle", Eval: every(100), Wake: func() { woken++ }})
		slow := join(t, l, 1)
		synctest.Wait()
		c.grow(3)
		synctest.Wait()
		if item, err := slow.Next(); item.Cursor != cursorOf(1) || err != nil {
			t.Fatal(item, err)
		}
		shut(t, l)
		if c.running != 0 {
			t.Error("Close came back before Follow")
		}
		for r, cursor := range map[*Reader[int]]string{idle: cursorOf(3), slow: cursorOf(1)} {
			if _, err := r.Next(); err != ErrClosed {
				t.Errorf("Next: %v, want ErrClosed", err)
			}
			if r.Cursor() != cursor {
				t.Errorf("cursor %q, want %q", r.Cursor(), cursor)
			}
			r.Close()
		}
		if woken != 1 {
			t.Errorf("the idle reader was woken %d times, want once", woken)
		}
		if _, err := l.Join(Interest[int]{Eval: every(1)}); err != ErrClosed {
			t.Errorf("Join: %v, want ErrClosed", err)
		}
		if got, want := l.Stats(), (Stats{Blocks: 3}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

func TestCloseDoesNotWaitLongerThanItsContext(t *testing.T) {
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
			t.Errorf("Close: %v, want the context's error", err)
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
		l := open(t, c, Options[int]{MinBackoff: time.Hour})
		l.Start()
		synctest.Wait()
		before := time.Now()
		shut(t, l)
		if took := time.Since(before); took > 0 {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestBlockInDeliveryDuringCloseIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		woken := 0
		r, _ := l.Join(Interest[int]{Eval: func(b int) []byte {
			if b < 3 {
				return nil
			}
			if err := l.Close(over); err != context.Canceled {
				t.Errorf("Close: %v, want the context's error", err)
			}
			return every(1)(b)
		}, Wake: func() { woken++ }})
		synctest.Wait()
		c.grow(3)
		synctest.Wait()
		if item, err := r.Next(); err != ErrClosed || r.Cursor() != cursorOf(2) || woken != 1 {
			t.Errorf("%v, %v, cursor %q, woken %d times; want the end after block 2 and one wake", item, err, r.Cursor(), woken)
		}
	})
}

func TestArrivedIsTheTimeOfTheNewestBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(3)
		l := open(t, c, Options[int]{})
		l.Start()
		synctest.Wait()
		if at, ok := l.Arrived(); ok {
			t.Errorf("arrived %v before any block", at)
		}
		time.Sleep(time.Hour)
		c.grow(1)
		came := time.Now()
		time.Sleep(time.Minute)
		if at, ok := l.Arrived(); !ok || !at.Equal(came) {
			t.Errorf("arrived %v, %v; want %v", at, ok, came)
		}
	})
}

// logged returns a logger and the text that it writes.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// Arrived returns the arrival of the newest block. If no block has arrived, or none since the source lost its history,
// ok is false.
func (l *Log[B]) Arrived() (last time.Time, ok bool) {
	last = l.view.Load().arrived
	return last, !last.IsZero()
}
