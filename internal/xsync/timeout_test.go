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

// A Timeout must behave like context.WithTimeout. This must hold if nothing waits for
// its end, if something waits, and if a child context waits.
func TestTimeoutBehavesLikeContextWithTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout, parent time.Duration // 0 means none
		cancel, stop    time.Duration // when the parent is canceled and when Stop is called; 0 means never
	}{
		"the timeout passes":                    {timeout: time.Second},
		"the parent's earlier deadline passes":  {timeout: time.Minute, parent: time.Second},
		"the parent has a later deadline":       {timeout: time.Second, parent: time.Minute},
		"the parent is canceled":                {timeout: time.Minute, cancel: time.Second},
		"Stop is called":                        {timeout: time.Minute, stop: time.Second},
		"no timeout, the parent is canceled":    {cancel: time.Second},
		"no timeout, Stop is called":            {stop: time.Second},
		"no timeout, the parent has a deadline": {parent: time.Second},
	} {
		for _, waits := range []string{"nothing", "something", "a child context"} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				cancelParent := cancel
				defer cancelParent()
				if tc.parent > 0 {
					parent, cancel = context.WithTimeout(parent, tc.parent)
					defer cancel()
				}
				timeout := WithTimeout(parent, tc.timeout)
				model, stopModel := context.WithCancel(parent)
				if tc.timeout > 0 {
					model, stopModel = context.WithTimeout(parent, tc.timeout)
				}
				defer stopModel()
				defer timeout.Stop()
				var ctx context.Context = timeout
				switch waits {
				case "something":
					ctx.Done()
				case "a child context":
					ctx, cancel = context.WithCancel(ctx)
					defer cancel()
				}
				compare := func(when string) {
					t.Helper()
					synctest.Wait()
					if got, want := ctx.Err(), model.Err(); !errors.Is(got, want) || (got == nil) != (want == nil) {
						t.Errorf("%s, %s waits, %s: Err of the context is %v, want %v", name, waits, when, got, want)
					}
					if got, want := timeout.Err(), model.Err(); got != want {
						t.Errorf("%s, %s waits, %s: Err of the Timeout is %v, want %v", name, waits, when, got, want)
					}
					if got, want := context.Cause(ctx), context.Cause(model); got != want {
						t.Errorf("%s, %s waits, %s: the cause is %v, want %v", name, waits, when, got, want)
					}
					got, ok := ctx.Deadline()
					if want, wantOK := model.Deadline(); ok != wantOK || !got.Equal(want) {
						t.Errorf("%s, %s waits, %s: the deadline is %v, want %v", name, waits, when, got, want)
					}
					if ctx.Value(key{}) != "value" {
						t.Errorf("%s, %s waits, %s: the context has lost its value", name, waits, when)
					}
				}
				compare("at first")
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancelParent)
				}
				if tc.stop > 0 {
					time.AfterFunc(tc.stop, func() { timeout.Stop(); stopModel() })
				}
				time.Sleep(time.Second / 2)
				compare("before its end")
				time.Sleep(time.Second)
				compare("after its end")
				select {
				case <-timeout.Done():
				default:
					t.Errorf("%s, %s waits: the Timeout is not done after its end", name, waits)
				}
				if !errors.Is(timeout.Err(), model.Err()) {
					t.Errorf("%s, %s waits: Err is %v when done, want %v", name, waits, timeout.Err(), model.Err())
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
			t.Errorf("Err before the deadline is %v, want nil", err)
		}
		time.Sleep(time.Nanosecond)
		if err := timeout.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Err at the deadline is %v, want DeadlineExceeded", err)
		}
	})
}

// Goroutines that start the timer while Stop runs must all see the same deadline.
func TestTimeoutWakesAllWaitingGoroutines(t *testing.T) {
	for range 300 {
		timeout := WithTimeout(t.Context(), time.Hour)
		deadlines := make([]time.Time, 4)
		var wg sync.WaitGroup
		for i := range deadlines {
			wg.Go(func() {
				deadlines[i], _ = timeout.Deadline()
				<-timeout.Done()
				if err := timeout.Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("Err after Stop is %v, want Canceled", err)
				}
			})
		}
		timeout.Stop()
		wg.Wait()
		for _, d := range deadlines {
			if !d.Equal(deadlines[0]) {
				t.Fatalf("Deadline returned %v on one goroutine and %v on another", deadlines[0], d)
			}
		}
		timeout.Stop() // a second call has no effect
	}
}

// The longest durations must not overflow to a deadline in the past.
func TestLongTimeoutsDoNotOverflow(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		timeout := WithTimeout(t.Context(), d)
		if err := timeout.Err(); err != nil {
			t.Errorf("Err of a timeout of %v is %v at once, want nil", d, err)
		}
		if until, _ := timeout.Deadline(); time.Until(until) < 100*365*24*time.Hour {
			t.Errorf("a timeout of %v has the deadline %v, want one in a century or later", d, until)
		}
		if timeout.Err() != nil || time.Until(Time(Clock(d))) < 100*365*24*time.Hour {
			t.Errorf("a deadline after %v has passed already", d)
		}
		timeout.Stop()
	}
}

// BenchmarkDeadline compares Deadline with a read of the current time.
func BenchmarkDeadline(b *testing.B) {
	var until time.Time
	b.Run("Deadline", func(b *testing.B) {
		for b.Loop() {
			until = Time(Clock(time.Second))
		}
	})
	b.Run("Now", func(b *testing.B) {
		for b.Loop() {
			until = time.Now().Add(time.Second)
		}
	})
	_ = until
}

// BenchmarkTimeout compares a Timeout that starts no timer with context.WithTimeout.
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
