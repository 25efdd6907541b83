package xsync

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A Timeout is a context with a deadline for one call. It starts a timer only if
// something waits for its end. A call that is served from memory only checks Err. For
// such a call, context.WithTimeout would take a third of the time of a whole request:
// see BenchmarkTimeout.
//
// The methods of a Timeout are safe for concurrent use.
type Timeout struct {
	parent context.Context
	ends   time.Duration // deadline as a Clock time, not after the parent's; never if there is none
	// timer is set when something first waits or calls Deadline. From then on it
	// implements the context.
	timer    atomic.Pointer[timer]
	reported atomic.Bool // FirstReport has been called
}

type timer struct {
	context.Context
	cancel context.CancelFunc
}

// stopped is the value of Timeout.timer if nothing waited before Stop.
var stopped = new(timer)

// WithTimeout returns a context that is done when parent is done or, if d is positive,
// after d. The caller must call Stop.
func WithTimeout(parent context.Context, d time.Duration) *Timeout {
	t := &Timeout{parent: parent, ends: never}
	if d > 0 {
		if deadline, ok := parent.Deadline(); ok {
			d = min(d, time.Until(deadline))
		}
		t.ends = Clock(d)
	}
	return t
}

// Stop cancels the context and releases its resources. Further calls have no effect.
func (t *Timeout) Stop() {
	if t.timer.CompareAndSwap(nil, stopped) {
		return
	}
	if timer := t.timer.Load(); timer != stopped {
		timer.cancel()
	}
}

// Parent returns the parent of the context t.
func (t *Timeout) Parent() context.Context { return t.parent }

// Expired reports whether the deadline of t has passed and its parent is not done.
func (t *Timeout) Expired() bool {
	return t.parent.Err() == nil && errors.Is(t.Err(), context.DeadlineExceeded)
}

// FirstReport returns true when it is called for the first time, and false after that.
// Callers use it to report an expired Timeout only once.
func (t *Timeout) FirstReport() bool { return !t.reported.Swap(true) }

// Deadline implements [context.Context].
func (t *Timeout) Deadline() (time.Time, bool) {
	if t.ends == never {
		return t.parent.Deadline()
	}
	return t.start().Deadline()
}

// Done implements [context.Context].
func (t *Timeout) Done() <-chan struct{} { return t.start().Done() }

// start returns the timer, after starting it if necessary.
func (t *Timeout) start() *timer {
	for {
		known := t.timer.Load()
		if known != nil && known != stopped {
			return known
		}
		next := new(timer)
		if t.ends == never {
			next.Context, next.cancel = context.WithCancel(t.parent)
		} else {
			next.Context, next.cancel = context.WithTimeout(t.parent, t.ends-time.Since(start))
		}
		if known == stopped {
			next.cancel()
		}
		if t.timer.CompareAndSwap(known, next) {
			return next
		}
		next.cancel() // another goroutine has set a timer first
	}
}

// Err implements [context.Context].
func (t *Timeout) Err() error {
	timer := t.timer.Load()
	switch {
	case timer != nil && timer != stopped:
		return timer.Err()
	case timer == stopped, t.parent.Err() != nil, t.ends != never && time.Since(start) >= t.ends:
		return t.start().Err() // the timer makes sure that the error stays the same
	}
	return nil
}

// Value implements [context.Context].
func (t *Timeout) Value(key any) any {
	if timer := t.timer.Load(); timer != nil && timer != stopped {
		return timer.Value(key) // child contexts find the timer's context with a private key
	}
	return t.parent.Value(key)
}
