package blocklog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

func TestSlowReaderCatchesUpFromTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{Window: 500})
		slow, quick := join(t, l, 1), join(t, l, 1)
		synctest.Wait()
		for range 50 {
			c.grow(10)
			synctest.Wait()
			if _, err := read(t, quick); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, slow, upTo(1, 500, 1)...)
		c.grow(1)
		synctest.Wait()
		expect(t, slow, 501)
	})
}

// A caller that stops after the last item would miss blocks if Last were true too early.
func TestLastIsTrueOnlyForTheNewestItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		wakes := 0
		r, err := l.Join(Interest[int]{Key: "a", Eval: every(2), Wake: xsync.WakeFunc(func() { wakes++ })})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for n, blocks := range []int{6, 2, 3} {
			before := wakes
			c.grow(blocks)
			synctest.Wait()
			if wakes == before {
				t.Errorf("round %d: the reader was not woken", n)
			}
			for left := blocks / 2; left > 0; left-- {
				if item, err := r.Next(); err != nil || item.Payload == nil || item.Last != (left == 1) {
					t.Errorf("round %d: Next returned %q, Last %v and %v with %d blocks left", n, item.Payload,
						item.Last, err, left)
				}
			}
		}
	})
}

func TestReaderWithRareMatchesStaysLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{Window: 10})
		r := join(t, l, 100)
		synctest.Wait()
		c.grow(505)
		synctest.Wait()
		if r.Cursor() != cursorOf(99) {
			t.Errorf("Cursor is %q before the first match was read, want that of block 99", r.Cursor())
		}
		expect(t, r, 100, 200, 300, 400, 500)
		if r.Cursor() != cursorOf(505) {
			t.Errorf("Cursor is %q, want that of block 505", r.Cursor())
		}
	})
}

func TestReadersWithEqualKeysShareOneEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var first, second, other atomic.Int32
		counting := func(n *atomic.Int32) func(int) []byte {
			return func(b int) []byte { n.Add(1); return every(2)(b) }
		}
		a, _ := l.Join(Interest[int]{Key: "a", Eval: counting(&first)})
		b, _ := l.Join(Interest[int]{Key: "a", Eval: counting(&second)})
		o, _ := l.Join(Interest[int]{Key: "b", Eval: counting(&other)})
		synctest.Wait()
		c.grow(20)
		synctest.Wait()
		var payloads [3][]byte
		for i, r := range []*Reader[int]{a, b, o} {
			item, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			payloads[i] = item.Payload
			expect(t, r, upTo(3, 20, 2)...)
		}
		if first.Load() != 20 || second.Load() != 0 || other.Load() != 20 {
			t.Errorf("the Evals were called %d, %d and %d times for 20 blocks, want 20, 0 and 20",
				first.Load(), second.Load(), other.Load())
		}
		if &payloads[0][0] != &payloads[1][0] || &payloads[0][0] == &payloads[2][0] {
			t.Error("want readers with equal keys, and only those, to share a payload")
		}
		a.Close() // its Eval still serves reader b
		c.grow(2)
		synctest.Wait()
		expect(t, b, 22)
		if _, err := a.Next(); err != ErrClosed {
			t.Errorf("Next of a closed reader returned error %v, want ErrClosed", err)
		}
		b.Close()
		again, _ := l.Join(Interest[int]{Key: "a", Eval: counting(&second)})
		c.grow(2)
		synctest.Wait()
		expect(t, again, 24)
		if second.Load() != 2 {
			t.Error("a reader joined a group that had no readers left")
		}
	})
}

func TestReadersAreWokenOnlyForMatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		woken := map[int]int{}
		for _, n := range []int{1, 5, 100} {
			wake := xsync.WakeFunc(func() { woken[n]++ })
			if _, err := l.Join(Interest[int]{Key: key(n), Eval: every(n), Wake: wake}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		c.grow(20)
		synctest.Wait()
		if woken[1] != 20 || woken[5] != 4 || woken[100] != 0 {
			t.Errorf("20 blocks woke the readers %v times, want 20, 4 and 0 times", woken)
		}
	})
}

func TestWakeMayCallNextCloseAndJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var r, joined *Reader[int]
		var got []int
		r, _ = l.Join(Interest[int]{Key: key(1), Eval: every(1), Wake: xsync.WakeFunc(func() {
			ready, _ := read(t, r)
			got = append(got, ready...)
			if len(got) == 3 {
				r.Close()
				joined = join(t, l, 1)
			}
		})})
		synctest.Wait()
		c.grow(5)
		synctest.Wait()
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("Wake read blocks %v, want 1, 2 and 3", got)
		}
		expect(t, joined, 4, 5)
	})
}

func TestPanickingWakeDoesNotAffectOtherReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		logger, text := logged()
		l := open(t, c, Options[int]{Logger: logger})
		woken := 0
		l.Join(Interest[int]{Eval: every(1), Wake: xsync.WakeFunc(func() { panic("boom") })})
		r, _ := l.Join(Interest[int]{Eval: every(1), Wake: xsync.WakeFunc(func() { woken++ })})
		l.Join(Interest[int]{Key: "other", Eval: every(1), Wake: xsync.WakeFunc(func() { woken++ })})
		synctest.Wait()
		c.grow(2)
		synctest.Wait()
		expect(t, r, 1, 2)
		if woken != 4 || l.Stats().Restarts != 0 {
			t.Errorf("readers were woken %d times with %d restarts, want 4 and 0", woken, l.Stats().Restarts)
		}
		if !strings.Contains(text.String(), "sharegroup_test.go") {
			t.Errorf("want a stack trace in the log:\n%s", text)
		}
	})
}

// panicking is a log handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("logging failed") }

func TestPanickingLoggerDoesNotStopBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		c.fail(errDown)
		l := open(t, c, Options[int]{Logger: slog.New(panicking{})})
		l.Start()
		time.Sleep(time.Minute)
		c.fail(nil)
		time.Sleep(time.Minute)
		l.Join(Interest[int]{Eval: every(1), Wake: xsync.WakeFunc(func() { panic("boom") })})
		r, other := join(t, l, 1), join(t, l, 2)
		c.grow(4)
		synctest.Wait()
		expect(t, r, 1, 2, 3, 4)
		expect(t, other, 2, 4)
	})
}

func TestEvalPanicOnNewBlockEndsOnlyReadersWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		logger, text := logged()
		l := open(t, c, Options[int]{Logger: logger})
		woken, bad := 0, errors.New("bad block")
		eval := func(b int) []byte {
			if b == 5 {
				panic(bad)
			}
			return every(2)(b)
		}
		r, _ := l.Join(Interest[int]{Key: "bad", Eval: eval, Wake: xsync.WakeFunc(func() { woken++ })})
		other := join(t, l, 2)
		synctest.Wait()
		c.grow(8)
		synctest.Wait()
		got, err := read(t, r)
		var lost *Lost
		if !errors.As(err, &lost) || lost.Cursor != cursorOf(4) || !isPanic(err, bad) ||
			!slices.Equal(got, []int{2, 4}) {
			t.Errorf("read blocks %v and error %v, want blocks 2 and 4 and Lost at block 4", got, err)
		}
		if woken != 3 {
			t.Errorf("the reader was woken %d times, want 3, for two blocks and the end", woken)
		}
		expect(t, other, 2, 4, 6, 8)
		if got := text.String(); strings.Count(got, "stack=") != 1 || !strings.Contains(got, "sharegroup_test.go") {
			t.Errorf("want one stack trace in the log:\n%s", got)
		}
		again, _ := l.Join(Interest[int]{Key: "bad", Eval: eval})
		c.grow(2)
		synctest.Wait()
		expect(t, again, 10)
		if got := l.Stats(); got.Groups != 2 || got.Readers != 3 || got.Restarts != 0 {
			t.Errorf("got stats %+v, want 3 readers in 2 groups and no restart", got)
		}
	})
}

func TestEvalPanicOnBlockInWindowEndsReaderBeforeTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		logger, text := logged()
		l := open(t, c, Options[int]{Logger: logger})
		seen := 0
		r, _ := l.Join(Interest[int]{Eval: func(b int) []byte {
			if seen = max(seen, b); seen > b && b == 3 {
				panic("impure")
			}
			return every(1)(b)
		}})
		synctest.Wait()
		c.grow(100)
		synctest.Wait()
		got, err := read(t, r)
		var lost *Lost
		if !errors.As(err, &lost) || lost.Cursor != cursorOf(2) || !slices.Equal(got, []int{1, 2}) {
			t.Errorf("read blocks %v and error %v, want blocks 1 and 2 and Lost at block 2", got, err)
		}
		if !strings.Contains(text.String(), "impure") {
			t.Error("the panic is not in the log")
		}
	})
}

func TestGroupKeepsOnlyUnreadPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		big := func(int) []byte { return make([]byte, groupBytes/8-matchBytes) }
		slow, _ := l.Join(Interest[int]{Eval: big})
		quick, _ := l.Join(Interest[int]{Eval: big})
		synctest.Wait()
		for range 100 {
			c.grow(1)
			synctest.Wait()
			if _, err := quick.Next(); err != nil {
				t.Fatal(err)
			}
		}
		g := slow.group
		if len(g.items) != 8 || g.bytes != groupBytes {
			t.Errorf("the group keeps %d payloads with %d bytes, want 8 with %d", len(g.items), g.bytes, groupBytes)
		}
		n := 0
		for item, err := slow.Next(); item.Payload != nil; item, err = slow.Next() {
			if n++; err != nil || item.Cursor != cursorOf(n) {
				t.Fatalf("Next returned cursor %q and error %v, want block %d", item.Cursor, err, n)
			}
		}
		if n != 100 || g.bytes != 0 || g.items != nil {
			t.Errorf("read %d blocks, and the group keeps %d payloads with %d bytes; want 100, 0 and 0",
				n, len(g.items), g.bytes)
		}
		c.grow(1)
		synctest.Wait()
		quick.Next()
		slow.Close()
		if len(g.items) != 0 {
			t.Error("the group keeps a payload that only a closed reader had not read")
		}
	})
}

// isPanic reports whether err wraps a panic with value.
func isPanic(err error, value any) bool {
	var p *guard.PanicError
	return errors.As(err, &p) && p.Value == value
}
