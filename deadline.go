package chaingql

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// began is what deadlines are counted from: to read how long ago something was
// takes half as long as to read what time it is.
var began = time.Now()

// never is when a term without a deadline ends.
const never = time.Duration(math.MaxInt64)

// after is how long after began it is in a time; a time of centuries is no more
// than of one.
func after(d time.Duration) time.Duration { return time.Since(began) + min(d, never/2) }

// in is a deadline for those who wait for it. It is not for showing: its wall
// clock is the one that began, which may have been set since.
func in(d time.Duration) time.Time { return began.Add(after(d)) }

// A term is a context with a deadline, for one call of the Backend. It takes a
// timer only where somebody waits for its end: a Backend that answers from
// memory looks at Err at most, and context.WithTimeout would be a third of what
// the whole request costs.
type term struct {
	context.Context               // the caller's
	ends            time.Duration // after began, and not after the caller's deadline
	// waited does all of it, once somebody waits or asks for the deadline.
	waited atomic.Pointer[timed]
	missed atomic.Bool // its end was, and that was told
}

type timed struct {
	context.Context
	cancel context.CancelFunc
}

// over is in the place of a timed of a call that ended before somebody waited.
var over = new(timed)

// newTerm returns a context that is done after a time, if that is positive, or
// when ctx is. The call's caller must end it.
func newTerm(ctx context.Context, d time.Duration) *term {
	t := &term{Context: ctx, ends: never}
	if d > 0 {
		if sooner, ok := ctx.Deadline(); ok {
			d = min(d, time.Until(sooner))
		}
		t.ends = after(d)
	}
	return t
}

// end lets go of what the term takes: the call is over.
func (t *term) end() {
	if t.waited.CompareAndSwap(nil, over) {
		return
	}
	if w := t.waited.Load(); w != over {
		w.cancel()
	}
}

// Deadline implements context.Context.
func (t *term) Deadline() (time.Time, bool) {
	if t.ends == never {
		return t.Context.Deadline()
	}
	return t.wait().Deadline()
}

// Done implements context.Context.
func (t *term) Done() <-chan struct{} { return t.wait().Done() }

func (t *term) wait() *timed {
	for {
		known := t.waited.Load()
		if known != nil && known != over {
			return known
		}
		w := new(timed)
		if t.ends == never {
			w.Context, w.cancel = context.WithCancel(t.Context)
		} else {
			w.Context, w.cancel = context.WithTimeout(t.Context, t.ends-time.Since(began))
		}
		if known == over {
			w.cancel()
		}
		if t.waited.CompareAndSwap(known, w) {
			return w
		}
		w.cancel() // somebody else was faster
	}
}

// Err implements context.Context.
func (t *term) Err() error {
	w := t.waited.Load()
	switch {
	case w != nil && w != over:
		return w.Err()
	case w == over, t.Context.Err() != nil, t.ends != never && time.Since(began) >= t.ends:
		return t.wait().Err() // and stays so
	}
	return nil
}

// Value implements context.Context.
func (t *term) Value(key any) any {
	if w := t.waited.Load(); w != nil && w != over {
		return w.Value(key) // which contexts made of this one ask for
	}
	return t.Context.Value(key)
}
