package chaingql

import (
	"context"
	"sync"
	"time"
)

// A term is a context with a deadline, for one call of the Backend. It takes a
// timer only where somebody waits for its end: a Backend that answers from
// memory looks at Err at most, and context.WithTimeout would be a third of what
// the whole request costs.
type term struct {
	context.Context           // the caller's
	deadline        time.Time // the caller's is not before it; zero is none

	mu     sync.Mutex      // guards what follows
	timed  context.Context // does all of it, once somebody waits
	cancel context.CancelFunc
	ended  bool
}

// newTerm returns a context that is done after a time, if that is positive, or
// when ctx is. The call's caller must end it.
func newTerm(ctx context.Context, d time.Duration) *term {
	t := &term{Context: ctx}
	if d > 0 {
		t.deadline = time.Now().Add(d)
		if sooner, ok := ctx.Deadline(); ok && sooner.Before(t.deadline) {
			t.deadline = sooner
		}
	}
	return t
}

// end lets go of what the term takes: the call is over.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.cancel != nil {
		t.cancel()
	}
}

// Deadline implements context.Context.
func (t *term) Deadline() (time.Time, bool) {
	if t.deadline.IsZero() {
		return t.Context.Deadline()
	}
	return t.deadline, true
}

// Done implements context.Context.
func (t *term) Done() <-chan struct{} { return t.wait().Done() }

func (t *term) wait() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timed != nil {
		return t.timed
	}
	if t.deadline.IsZero() {
		t.timed, t.cancel = context.WithCancel(t.Context)
	} else {
		t.timed, t.cancel = context.WithDeadline(t.Context, t.deadline)
	}
	if t.ended {
		t.cancel()
	}
	return t.timed
}

// Err implements context.Context.
func (t *term) Err() error {
	t.mu.Lock()
	timed, ended := t.timed, t.ended
	t.mu.Unlock()
	switch {
	case timed != nil:
		return timed.Err()
	case t.Context.Err() != nil, ended, !t.deadline.IsZero() && time.Until(t.deadline) <= 0:
		return t.wait().Err() // and stays so
	}
	return nil
}

// Value implements context.Context.
func (t *term) Value(key any) any {
	t.mu.Lock()
	timed := t.timed
	t.mu.Unlock()
	if timed != nil {
		return timed.Value(key) // which contexts made of this one ask for
	}
	return t.Context.Value(key)
}
