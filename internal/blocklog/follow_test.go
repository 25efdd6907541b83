package blocklog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scripted returns a source whose Follow plays one step per call, and then waits for its end.
func scripted(steps ...func(yield func(int, error) bool)) (Source[int], *[]string, *[]time.Time) {
	var follows []string
	var times []time.Time
	src := newChain(0).source()
	src.Follow = func(ctx context.Context, after string) iter.Seq2[int, error] {
		follows, times = append(follows, after), append(times, time.Now())
		step := func(yield func(int, error) bool) {
			<-ctx.Done()
			yield(0, ctx.Err())
		}
		if n := len(follows); n <= len(steps) {
			step = steps[n-1]
		}
		return step
	}
	return src, &follows, &times
}

func gives(err error, blocks ...int) func(func(int, error) bool) {
	return func(yield func(int, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

func TestFailedSourceIsFollowedFromItsLastCursor(t *testing.T) {
	for name, end := range map[string]func(yield func(int, error) bool){
		"error":               gives(errDown),
		"no error":            gives(nil),
		"panic":               func(func(int, error) bool) { panic("boom") },
		"panic with an error": func(func(int, error) bool) { panic(errDown) },
		"yield after error":   func(yield func(int, error) bool) { yield(0, errDown); yield(9, nil) },
		"gone after a block":  gives(errGone),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, follows, _ := scripted(
					func(yield func(int, error) bool) { gives(nil, 1, 2)(yield); end(yield) },
					gives(nil, 3),
				)
				logger, text := logged()
				l := New(src, Options[int]{Logger: logger, Silence: -1})
				defer shut(t, l)
				r := join(t, l, 1)
				time.Sleep(time.Minute)
				synctest.Wait()
				expect(t, r, 1, 2, 3)
				if want := []string{"", cursorOf(2), cursorOf(3)}; !slices.Equal(*follows, want) {
					t.Errorf("followed from %q, want %q", *follows, want)
				}
				if got := l.Stats().Restarts; got != 2 {
					t.Errorf("%d restarts, want 2", got)
				}
				if got := strings.Count(text.String(), "level=WARN"); got != 2 {
					t.Errorf("%d failures logged, want 2:\n%s", got, text)
				}
				if strings.Contains(text.String(), "error=<nil>") {
					t.Errorf("a failure was logged without its reason:\n%s", text)
				}
				if stack := strings.Contains(text.String(), "stack="); stack != (strings.Contains(name, "panic") || name == "yield after error") {
					t.Errorf("stack logged: %v\n%s", stack, text)
				}
			})
		})
	}
}

func TestBackoffGrowsWithFailuresAndStartsAgainAfterABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []func(func(int, error) bool)
		for i := range 24 {
			blocks := []int{1} // from the second time on a duplicate, which is no progress
			if i >= 12 {
				blocks = []int{2}
			}
			steps = append(steps, gives(errDown, blocks...))
		}
		src, _, times := scripted(steps...)
		logger, text := logged()
		l := New(src, Options[int]{MinBackoff: time.Second, MaxBackoff: 10 * time.Second, Logger: logger})
		defer shut(t, l)
		l.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(*times) != 25 {
			t.Fatalf("followed %d times", len(*times))
		}
		for i := range 24 {
			attempt := i%12 + 1
			wait := (*times)[i+1].Sub((*times)[i])
			most := min(time.Second<<attempt, 10*time.Second)
			if least := max(most/2, time.Second); wait < least || wait > most {
				t.Errorf("attempt %d waited %v, want %v to %v", attempt, wait, least, most)
			}
		}
		if !strings.Contains(text.String(), "attempt=12") || strings.Contains(text.String(), "attempt=13") {
			t.Errorf("attempts are not counted in the log:\n%s", text)
		}
		if got := l.Stats(); got != (Stats{Blocks: 2, Duplicates: 22, Restarts: 24}) {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestBackoffIsRandomWithinItsLimits(t *testing.T) {
	for _, tt := range []struct{ least, most, wantLow, wantHigh time.Duration }{
		{100, 10_000, 100, 200},
		{100, 150, 100, 150},
		{100, 100, 100, 100},
	} {
		seen := map[time.Duration]bool{}
		for range 2000 {
			d := backoff(tt.least, tt.most, 1)
			if d < tt.wantLow || d > tt.wantHigh {
				t.Fatalf("waits %v, want %v to %v", d, tt.wantLow, tt.wantHigh)
			}
			seen[d] = true
		}
		if spread := int(tt.wantHigh-tt.wantLow) + 1; len(seen) < spread*9/10 {
			t.Errorf("%v: only %d different waits of %d", tt, len(seen), spread)
		}
	}
}

func TestDuplicateAndOutOfOrderBlocksAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, _, _ := scripted(gives(nil, 1, 1, 3, 2, 3, 4, 1, 4, 4, 5))
		l := New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		r := join(t, l, 1)
		synctest.Wait()
		expect(t, r, 1, 3, 4, 5)
		if got := l.Stats(); got.Blocks != 4 || got.Duplicates != 4 || got.OutOfOrder != 2 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestLostHistoryEndsReadersAndLogRestartsAtHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		l := open(t, c, Options[int]{})
		woken := 0
		idle, _ := l.Join(Interest[int]{Key: "idle", Eval: every(1000), Wake: func() { woken++ }})
		slow := join(t, l, 1)
		synctest.Wait()
		c.grow(100) // more than a group keeps
		synctest.Wait()
		if item, err := slow.Next(); err != nil || item.Cursor != cursorOf(11) {
			t.Fatal(item, err)
		}
		c.set(func() { c.down = errDown })
		synctest.Wait()
		c.set(func() { c.down, c.newest, c.oldest = nil, 500, 400 })
		for len(c.asked()) < 2 {
			time.Sleep(10 * time.Millisecond)
		}
		if _, ok := l.Arrived(); ok {
			t.Error("a block arrived, says the log that has lost them")
		}
		if woken != 1 {
			t.Errorf("the idle reader was woken %d times, want once", woken)
		}
		between := join(t, l, 1) // neither on the old stream nor on the new yet
		if between.Cursor() != "" {
			t.Errorf("cursor %q without a position", between.Cursor())
		}
		time.Sleep(DefaultMaxBackoff)

		for r, cursor := range map[*Reader[int]]string{idle: cursorOf(110), slow: cursorOf(11)} {
			expect(t, r) // asks the source
			synctest.Wait()
			for range 2 {
				got, err := read(t, r)
				var lost *Lost
				if !errors.As(err, &lost) || lost.Cursor != cursor || !errors.Is(err, errGone) || got != nil {
					t.Errorf("read %v, %v; want Lost after %q", got, err, cursor)
				} else if want := `blocklog: stream lost after cursor "` + cursor + `": page: history is gone`; err.Error() != want {
					t.Errorf("error %q, want %q", err, want)
				}
			}
			if r.Cursor() != cursor {
				t.Errorf("cursor %q, want %q", r.Cursor(), cursor)
			}
			r.Close()
		}
		expectUnplaced(t, between)
		between.Close()
		between = join(t, l, 1)
		later := join(t, l, 1)
		c.grow(2)
		synctest.Wait()
		expect(t, between, 501, 502)
		expect(t, later, 501, 502)
		if s := l.Stats(); s.Readers != 2 || s.Groups != 1 || s.CatchingUp != 0 {
			t.Errorf("after the loss: %+v", s)
		}
		if _, ok := l.Arrived(); !ok {
			t.Error("no block arrived, says the log")
		}
	})
}

func TestSourceWithoutHistoryIsCalledWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		c.oldest = 20
		l := open(t, c, Options[int]{})
		r := join(t, l, 1)
		time.Sleep(time.Minute)
		if n := len(c.asked()); n < 5 || n > 20 {
			t.Errorf("asked %d times in a minute", n)
		}
		expect(t, r)
		synctest.Wait()
		if _, err := r.Next(); !errors.Is(err, errGone) {
			t.Error(err)
		}
	})
}

func TestPanicOfRecentOrCursorCountsAsSourceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(1)
		src, heads, cursors := c.source(), 0, 0
		src.Recent = func(ctx context.Context, n int) ([]int, error) {
			if heads++; heads == 1 {
				panic("recent")
			}
			return c.recent(ctx, n)
		}
		src.Cursor = func(n int) string {
			if cursors++; cursors == 1 {
				panic("cursor")
			}
			return cursorOf(n)
		}
		src.Gone = nil
		l := New(src, Options[int]{MinBackoff: time.Second, MaxBackoff: 1, Logger: quiet})
		defer shut(t, l)
		early := join(t, l, 1)
		time.Sleep(time.Minute)
		expectUnplaced(t, early)
		r := join(t, l, 1)
		c.grow(2)
		time.Sleep(time.Minute)
		expect(t, r, 2, 3)
		if got := l.Stats().Restarts; got != 2 {
			t.Errorf("%d restarts, want 2", got)
		}
	})
}

func TestContextOfFollowEndsBeforeTheNextFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before context.Context
		src := newChain(0).source()
		src.Follow = func(ctx context.Context, _ string) iter.Seq2[int, error] {
			if before != nil && before.Err() == nil {
				t.Error("the context of the Follow before is not done")
			}
			before = ctx
			return gives(errDown)
		}
		l := New(src, Options[int]{Logger: quiet})
		l.Start()
		time.Sleep(time.Minute)
		shut(t, l)
	})
}
