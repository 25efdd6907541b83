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

	"github.com/chaingql/chaingql/internal/xsync"
)

// scripted returns a source whose Follow plays one step per call. After the last step, Follow waits for the end of its
// context. scripted also returns pointers to the cursors and the times of the calls.
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

// yields returns a step for scripted that yields the blocks and then err, if err is not nil.
func yields(err error, blocks ...int) func(func(int, error) bool) {
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

func TestFailedFollowIsCalledAgainWithTheLastCursor(t *testing.T) {
	for name, end := range map[string]func(yield func(int, error) bool){
		"error":               yields(errDown),
		"no error":            yields(nil),
		"panic":               func(func(int, error) bool) { panic("boom") },
		"panic with an error": func(func(int, error) bool) { panic(errDown) },
		"yield after error":   func(yield func(int, error) bool) { yield(0, errDown); yield(9, nil) },
		"gone after a block":  yields(errGone),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, follows, _ := scripted(
					func(yield func(int, error) bool) { yields(nil, 1, 2)(yield); end(yield) },
					yields(nil, 3),
				)
				logger, text := logged()
				l := New(src, Options[int]{Logger: logger, Silence: -1})
				defer shut(t, l)
				r := join(t, l, 1)
				time.Sleep(time.Minute)
				synctest.Wait()
				expect(t, r, 1, 2, 3)
				if want := []string{"", cursorOf(2), cursorOf(3)}; !slices.Equal(*follows, want) {
					t.Errorf("Follow was called with cursors %q, want %q", *follows, want)
				}
				if got := l.Stats().Restarts; got != 2 {
					t.Errorf("Stats counts %d restarts, want 2", got)
				}
				if got := strings.Count(text.String(), "level=WARN"); got != 2 {
					t.Errorf("%d failures are in the log, want 2:\n%s", got, text)
				}
				if strings.Contains(text.String(), "error=<nil>") {
					t.Errorf("a failure was logged without its error:\n%s", text)
				}
				panics := strings.Contains(name, "panic") || name == "yield after error"
				if stack := strings.Contains(text.String(), "stack="); stack != panics {
					t.Errorf("the log contains a stack trace: %v, want %v\n%s", stack, panics, text)
				}
			})
		})
	}
}

func TestBackoffGrowsWithFailuresAndResetsAfterANewBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []func(func(int, error) bool)
		for i := range 24 {
			blocks := []int{1} // a duplicate from the second step on, which does not count as progress
			if i >= 12 {
				blocks = []int{2}
			}
			steps = append(steps, yields(errDown, blocks...))
		}
		src, _, times := scripted(steps...)
		logger, text := logged()
		l := New(src, Options[int]{MinBackoff: time.Second, MaxBackoff: 10 * time.Second, Logger: logger})
		defer shut(t, l)
		l.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(*times) != 25 {
			t.Fatalf("Follow was called %d times, want 25", len(*times))
		}
		for i := range 24 {
			attempt := i%12 + 1
			wait := (*times)[i+1].Sub((*times)[i])
			most := min(time.Second<<attempt, 10*time.Second)
			if least := max(most/2, time.Second); wait < least || wait > most {
				t.Errorf("the wait after attempt %d is %v, want %v to %v", attempt, wait, least, most)
			}
		}
		if !strings.Contains(text.String(), "attempt=12") || strings.Contains(text.String(), "attempt=13") {
			t.Errorf("want attempts up to 12 in the log:\n%s", text)
		}
		if got, want := l.Stats(), (Stats{Blocks: 2, Duplicates: 22, Restarts: 24}); got != want {
			t.Errorf("got stats %+v, want %+v", got, want)
		}
	})
}

func TestRetryEndsOneWaitButNotTwoInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []func(func(int, error) bool)
		for range 20 {
			steps = append(steps, yields(errDown))
		}
		src, _, times := scripted(steps...)
		l := New(src, Options[int]{MinBackoff: 10 * time.Second, MaxBackoff: 10 * time.Second, Logger: quiet})
		defer shut(t, l)
		l.Start()
		for range 1000 { // queries that succeed all the time
			time.Sleep(100 * time.Millisecond)
			l.Retry()
		}
		early := 0
		for i := range len(*times) - 1 {
			if (*times)[i+1].Sub((*times)[i]) < time.Second {
				early++
			}
		}
		if n := len(*times); early < 8 || early > 12 || n < 18 {
			t.Errorf("Follow was called %d times, %d of them early, in 100 s; want about 20 and half of them", n, early)
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
				t.Fatalf("backoff returned %v, want %v to %v", d, tt.wantLow, tt.wantHigh)
			}
			seen[d] = true
		}
		if spread := int(tt.wantHigh-tt.wantLow) + 1; len(seen) < spread*9/10 {
			t.Errorf("%v: backoff returned only %d different waits of %d possible ones", tt, len(seen), spread)
		}
	}
}

func TestDuplicateAndOutOfOrderBlocksAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, _, _ := scripted(yields(nil, 1, 1, 3, 2, 3, 4, 1, 4, 4, 5))
		l := New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		r := join(t, l, 1)
		synctest.Wait()
		expect(t, r, 1, 3, 4, 5)
		if got := l.Stats(); got.Blocks != 4 || got.Duplicates != 4 || got.OutOfOrder != 2 {
			t.Errorf("got stats %+v, want 4 blocks, 4 duplicates and 2 out of order", got)
		}
	})
}

func TestLostHistoryEndsReadersAndLogContinuesAfterNewestBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		l := open(t, c, Options[int]{})
		woken := 0
		idle, _ := l.Join(Interest[int]{Key: "idle", Eval: every(1000), Wake: xsync.WakeFunc(func() { woken++ })})
		slow := join(t, l, 1)
		synctest.Wait()
		c.grow(100) // more than a group keeps
		synctest.Wait()
		if item, err := slow.Next(); err != nil || item.Cursor != cursorOf(11) {
			t.Fatalf("Next returned %+v and error %v, want block 11", item, err)
		}
		c.set(func() { c.down = errDown })
		synctest.Wait()
		c.set(func() { c.down, c.newest, c.oldest = nil, 500, 400 })
		for len(c.asked()) < 2 {
			time.Sleep(10 * time.Millisecond)
		}
		if _, ok := l.Arrived(); ok {
			t.Error("the log reports the arrival of a block after its history was lost")
		}
		if woken != 1 {
			t.Errorf("the idle reader was woken %d times, want once", woken)
		}
		between := join(t, l, 1) // joins while the log has no position
		if between.Cursor() != "" {
			t.Errorf("Cursor is %q while the log has no position, want an empty cursor", between.Cursor())
		}
		time.Sleep(DefaultMaxBackoff)

		for r, cursor := range map[*Reader[int]]string{idle: cursorOf(110), slow: cursorOf(11)} {
			expect(t, r) // requests a page
			synctest.Wait()
			for range 2 {
				got, err := read(t, r)
				var lost *Lost
				if !errors.As(err, &lost) || lost.Cursor != cursor || !errors.Is(err, errGone) || got != nil {
					t.Errorf("read blocks %v and error %v, want no blocks and Lost at %q", got, err, cursor)
					continue
				}
				want := `blocklog: stream lost after cursor "` + cursor + `": page: the history is gone`
				if err.Error() != want {
					t.Errorf("got error %q, want %q", err, want)
				}
			}
			if r.Cursor() != cursor {
				t.Errorf("Cursor is %q, want %q", r.Cursor(), cursor)
			}
			r.Close()
		}
		expectNoPosition(t, between)
		between.Close()
		between = join(t, l, 1)
		later := join(t, l, 1)
		c.grow(2)
		synctest.Wait()
		expect(t, between, 501, 502)
		expect(t, later, 501, 502)
		if s := l.Stats(); s.Readers != 2 || s.Groups != 1 || s.CatchingUp != 0 {
			t.Errorf("stats are %+v after the history was lost, want 2 live readers in 1 group", s)
		}
		if _, ok := l.Arrived(); !ok {
			t.Error("the log reports no arrival after a new block")
		}
	})
}

func TestFollowIsRetriedWithBackoffIfItsPositionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		c.oldest = 20
		l := open(t, c, Options[int]{})
		r := join(t, l, 1)
		time.Sleep(time.Minute)
		if n := len(c.asked()); n < 25 || n > 70 {
			t.Errorf("Follow was called %d times in a minute, want 25 to 70", n)
		}
		expect(t, r)
		synctest.Wait()
		if _, err := r.Next(); !errors.Is(err, errGone) {
			t.Errorf("Next returned %v, want errGone", err)
		}
	})
}

func TestPanicInRecentOrCursorCountsAsSourceFailure(t *testing.T) {
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
		expectNoPosition(t, early)
		r := join(t, l, 1)
		c.grow(2)
		time.Sleep(time.Minute)
		expect(t, r, 2, 3)
		if got := l.Stats().Restarts; got != 2 {
			t.Errorf("Stats counts %d restarts, want 2", got)
		}
	})
}

func TestFollowContextIsCanceledBeforeTheNextFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var previous context.Context
		src := newChain(0).source()
		src.Follow = func(ctx context.Context, _ string) iter.Seq2[int, error] {
			if previous != nil && previous.Err() == nil {
				t.Error("the context of the previous Follow is not done")
			}
			previous = ctx
			return yields(errDown)
		}
		l := New(src, Options[int]{Logger: quiet})
		l.Start()
		time.Sleep(time.Minute)
		shut(t, l)
	})
}
