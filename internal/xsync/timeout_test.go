package xsync

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

// A Timeout must behave like context.WithTimeout, whether or not something waits for
// its end, directly or through a child context.
func TestTimeoutBehavesLikeContextWithTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout, parent time.Duration // 0 means none
		leave, end      time.Duration // when the parent is cancelled, when Stop is called; 0 means never
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
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				leave := cancel
				defer leave()
				if tc.parent > 0 {
					parent, cancel = context.WithTimeout(parent, tc.parent)
					defer cancel()
				}
				timeout := WithTimeout(parent, tc.timeout)
				model, over := context.WithCancel(parent)
				if tc.timeout > 0 {
					model, over = context.WithTimeout(parent, tc.timeout)
				}
				defer over()
				defer timeout.Stop()
				var ctx context.Context = timeout
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
					if got, want := timeout.Err(), model.Err(); got != want {
						t.Errorf("%s, %s waits, %s: %v, want %v", name, waits, when, got, want)
					}
					if context.Cause(ctx) != context.Cause(model) {
						t.Errorf("%s, %s waits, %s: because of %v, want %v", name, waits, when, context.Cause(ctx), context.Cause(model))
					}
					until, known := ctx.Deadline()
					if also, too := model.Deadline(); known != too || !until.Equal(also) {
						t.Errorf("%s, %s waits, %s: until %v, want %v", name, waits, when, until, also)
					}
					if ctx.Value(key{}) != "value" {
						t.Errorf("%s, %s waits, %s: the values are gone", name, waits, when)
					}
				}
				alike("at first")
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, leave)
				}
				if tc.end > 0 {
					time.AfterFunc(tc.end, func() { timeout.Stop(); over() })
				}
				time.Sleep(time.Second / 2)
				alike("before its end")
				time.Sleep(time.Second)
				alike("after its end")
				select {
				case <-timeout.Done():
				default:
					t.Errorf("%s, %s waits: not done", name, waits)
				}
				if !errors.Is(timeout.Err(), model.Err()) {
					t.Errorf("%s, %s waits: %v when done, want %v", name, waits, timeout.Err(), model.Err())
				}
			})
		}
	}
}

// A Backend may only check Err and never use Done.
func TestErrReportsExpiryWithoutTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeout := WithTimeout(t.Context(), time.Second)
		defer timeout.Stop()
		time.Sleep(time.Second - 1)
		if err := timeout.Err(); err != nil {
			t.Errorf("before its end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := timeout.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at its end: %v", err)
		}
	})
}

// Goroutines that start the timer while Stop runs must all see the same deadline.
func TestTimeoutEndsForAllWaitingGoroutines(t *testing.T) {
	for range 300 {
		timeout := WithTimeout(t.Context(), time.Hour)
		deadlines := make([]time.Time, 4)
		var wg sync.WaitGroup
		for i := range deadlines {
			wg.Go(func() {
				deadlines[i], _ = timeout.Deadline()
				<-timeout.Done()
				if err := timeout.Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			})
		}
		timeout.Stop()
		wg.Wait()
		for _, d := range deadlines {
			if !d.Equal(deadlines[0]) {
				t.Fatalf("one Deadline returned %v, another %v", deadlines[0], d)
			}
		}
		timeout.Stop() // a second call is harmless
	}
}

// The longest durations must not overflow to a deadline in the past.
func TestLongTimeoutsDoNotOverflow(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		timeout := WithTimeout(t.Context(), d)
		if err := timeout.Err(); err != nil {
			t.Errorf("a timeout of %v: %v", d, err)
		}
		if until, _ := timeout.Deadline(); time.Until(until) < 100*365*24*time.Hour {
			t.Errorf("a timeout of %v ends at %v", d, until)
		}
		if timeout.Err() != nil || time.Until(Deadline(d)) < 100*365*24*time.Hour {
			t.Errorf("%v is over", d)
		}
		timeout.Stop()
	}
}

// BenchmarkDeadline compares Deadline with a read of the current time.
func BenchmarkDeadline(b *testing.B) {
	var until time.Time
	b.Run("from a moment", func(b *testing.B) {
		for b.Loop() {
			until = Deadline(time.Second)
		}
	})
	b.Run("from now", func(b *testing.B) {
		for b.Loop() {
			until = time.Now().Add(time.Second)
		}
	})
	_ = until
}

// BenchmarkTimeout shows the time saved if no timer is started.
func BenchmarkTimeout(b *testing.B) {
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Run("Timeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := WithTimeout(parent, time.Second)
			_ = t.Err()
			t.Stop()
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
