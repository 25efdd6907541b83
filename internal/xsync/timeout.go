package xsync

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A Timeout is a context with a deadline for one call. It starts a timer only if
// something waits for its end. A call that is served from memory only checks Err, and
// for it context.WithTimeout would take a third of the time of a whole request: see
// BenchmarkTimeout.
//
// Its methods are safe for concurrent use.
type Timeout struct {
	parent context.Context
	ends   time.Duration // on the Clock, and not after the parent's deadline
	// timer does everything once something waits or asks for the deadline.
	timer    atomic.Pointer[timer]
	reported atomic.Bool
}

type timer struct {
	context.Context
	cancel context.CancelFunc
}

// stopped takes the place of a timer if nothing waited before Stop.
var stopped = new(timer)

// WithTimeout returns a context that ends after d, if d is positive, or when parent
// ends. The caller must call Stop.
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

// Stop ends the context and releases its resources. Calling it twice is harmless.
func (t *Timeout) Stop() {
	if t.timer.CompareAndSwap(nil, stopped) {
		return
	}
	if timer := t.timer.Load(); timer != stopped {
		timer.cancel()
	}
}

// Parent returns the context that t was made from.
func (t *Timeout) Parent() context.Context { return t.parent }

// Expired reports whether the time of t is over although its parent has not ended.
func (t *Timeout) Expired() bool {
	return t.parent.Err() == nil && errors.Is(t.Err(), context.DeadlineExceeded)
}

// FirstReport reports whether it is called for the first time, for callers that
// report an expired Timeout once.
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

// start returns the running timer.
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
		next.cancel() // another goroutine started one first
	}
}

// Err implements [context.Context].
func (t *Timeout) Err() error {
	timer := t.timer.Load()
	switch {
	case timer != nil && timer != stopped:
		return timer.Err()
	case timer == stopped, t.parent.Err() != nil, t.ends != never && time.Since(start) >= t.ends:
		return t.start().Err() // from now on it stays the same
	}
	return nil
}

// Value implements [context.Context].
func (t *Timeout) Value(key any) any {
	if timer := t.timer.Load(); timer != nil && timer != stopped {
		return timer.Value(key) // contexts made from t look for their parent like this
	}
	return t.parent.Value(key)
}
