package chaingql

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type termKey struct{}

// A term must be what context.WithTimeout gives, whether or not somebody waits
// for its end, by itself or by a context made of it.
func TestATermEndsAsAContextWithTimeoutDoes(t *testing.T) {
	for name, what := range map[string]struct {
		timeout, parent time.Duration // zero is none
		leave, end      time.Duration // when the parent is cancelled, and the call over
	}{
		"its time runs out":          {timeout: time.Second},
		"its parent's time does":     {timeout: time.Minute, parent: time.Second},
		"its parent's time is later": {timeout: time.Second, parent: time.Minute},
		"its parent is cancelled":    {timeout: time.Minute, leave: time.Second},
		"the call is over":           {timeout: time.Minute, end: time.Second},
		"without a timeout":          {leave: time.Second},
		"over without a timeout":     {end: time.Second},
		"only its parent's":          {parent: time.Second},
	} {
		for _, waits := range []string{"nobody", "somebody", "a child"} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), termKey{}, "value"))
				leave := cancel
				defer leave()
				if what.parent > 0 {
					parent, cancel = context.WithTimeout(parent, what.parent)
					defer cancel()
				}
				term := newTerm(parent, what.timeout)
				model, over := context.WithCancel(parent)
				if what.timeout > 0 {
					model, over = context.WithTimeout(parent, what.timeout)
				}
				defer over()
				defer term.end()
				var ctx context.Context = term
				switch waits {
				case "somebody":
					ctx.Done()
				case "a child":
					ctx, cancel = context.WithCancel(ctx)
					defer cancel()
				}
				alike := func(when string) {
					t.Helper()
					synctest.Wait()
					if got, want := ctx.Err(), model.Err(); !errors.Is(got, want) || (got == nil) != (want == nil) {
						t.Errorf("%s, %s waits, %s: %v, want %v", name, waits, when, got, want)
					}
					if got, want := term.Err(), model.Err(); got != want {
						t.Errorf("%s, %s waits, %s: %v, want %v", name, waits, when, got, want)
					}
					if context.Cause(ctx) != context.Cause(model) {
						t.Errorf("%s, %s waits, %s: because of %v, want %v", name, waits, when, context.Cause(ctx), context.Cause(model))
					}
					until, known := ctx.Deadline()
					if also, too := model.Deadline(); known != too || !until.Equal(also) {
						t.Errorf("%s, %s waits, %s: until %v, want %v", name, waits, when, until, also)
					}
					if ctx.Value(termKey{}) != "value" {
						t.Errorf("%s, %s waits, %s: the values are gone", name, waits, when)
					}
				}
				alike("at first")
				if what.leave > 0 {
					time.AfterFunc(what.leave, leave)
				}
				if what.end > 0 {
					time.AfterFunc(what.end, func() { term.end(); over() })
				}
				time.Sleep(time.Second / 2)
				alike("before its end")
				time.Sleep(time.Second)
				alike("behind its end")
				select {
				case <-term.Done():
				default:
					t.Errorf("%s, %s waits: not done", name, waits)
				}
				if !errors.Is(term.Err(), model.Err()) {
					t.Errorf("%s, %s waits: %v when done, want %v", name, waits, term.Err(), model.Err())
				}
			})
		}
	}
}

// However many wait while the call ends, all see the same end.
func TestATermEndsForAllWhoBeginToWaitMeanwhile(t *testing.T) {
	for range 300 {
		term := newTerm(t.Context(), time.Hour)
		deadlines := make([]time.Time, 4)
		var wg sync.WaitGroup
		for i := range deadlines {
			wg.Go(func() {
				deadlines[i], _ = term.Deadline()
				<-term.Done()
				if err := term.Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			})
		}
		term.end()
		wg.Wait()
		for _, d := range deadlines {
			if !d.Equal(deadlines[0]) {
				t.Fatalf("one is told %v, another %v", deadlines[0], d)
			}
		}
		term.end() // again does no harm
	}
}

// No timeout is so long that it is over at once.
func TestTheLongestTimeoutsAreLong(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		term := newTerm(t.Context(), d)
		if err := term.Err(); err != nil {
			t.Errorf("a term of %v: %v", d, err)
		}
		if until, _ := term.Deadline(); time.Until(until) < 100*365*24*time.Hour {
			t.Errorf("a term of %v ends at %v", d, until)
		}
		if term.Err() != nil || time.Until(in(d)) < 100*365*24*time.Hour {
			t.Errorf("%v is over", d)
		}
		term.end()
	}
}

// BenchmarkDeadline shows what it brings to count from a fixed moment.
func BenchmarkDeadline(b *testing.B) {
	var until time.Time
	b.Run("from a moment", func(b *testing.B) {
		for b.Loop() {
			until = in(time.Second)
		}
	})
	b.Run("from now", func(b *testing.B) {
		for b.Loop() {
			until = time.Now().Add(time.Second)
		}
	})
	_ = until
}

// BenchmarkTerm shows what it brings to take no timer where nobody waits.
func BenchmarkTerm(b *testing.B) {
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Run("term", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := newTerm(parent, time.Second)
			_ = t.Err()
			t.end()
		}
	})
	b.Run("WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(parent, time.Second)
			_ = ctx.Err()
			cancel()
		}
	})
}
