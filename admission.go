package chaingql

import (
	"context"
	"sync"
)

// An admission counts what is under way, refuses what is too much, and lets a
// shutdown wait for the rest.
type admission struct {
	mu     sync.Mutex // guards what follows
	most   int        // under way at once; zero is any number
	inside int
	closed bool
	empty  chan struct{} // closed once closed and empty
}

func newAdmission(most int) *admission {
	return &admission{most: most, empty: make(chan struct{})}
}

// enter admits one more, who must leave, or says whether the door is shut for
// good.
func (a *admission) enter() (ok, closed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.most > 0 && a.inside >= a.most {
		return false, a.closed
	}
	a.inside++
	return true, false
}

func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
	if a.closed && a.inside == 0 {
		close(a.empty)
	}
}

// close shuts the door and waits until everybody has left, or ctx is done.
func (a *admission) close(ctx context.Context) error {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		if a.inside == 0 {
			close(a.empty)
		}
	}
	a.mu.Unlock()
	select {
	case <-a.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
