package chaingql

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An admission counts what is under way, refuses what is too much, and lets a
// shutdown wait for the rest.
type admission struct {
	most   int64         // under way at once; zero is any number
	inside atomic.Int64  // how many; from shut on where the door is shut
	empty  chan struct{} // closed once the door is shut and nobody inside

	mu sync.Mutex // guards what follows
	// guests are those who would stay for ever, and are told to go.
	guests map[*guest]struct{}
}

// shut is what nobody inside is behind a shut door.
const shut = math.MinInt64

// A guest is told to go by a call, and cut off by another one if it has not
// gone in time. They may be called more than once, and must not block. None is
// called when the guest has gone.
type guest struct {
	goodbye, cut func()

	mu   sync.Mutex // guards gone, and keeps the guest while it is called
	gone bool
}

func (g *guest) call(what func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		what()
	}
}

func newAdmission(most int) *admission {
	return &admission{most: int64(most), empty: make(chan struct{}), guests: make(map[*guest]struct{})}
}

// enter admits one more, who must leave, or says whether the door is shut for
// good.
func (a *admission) enter() (ok, closed bool) {
	for {
		n := a.inside.Load()
		if n < 0 || a.most > 0 && n >= a.most {
			return false, n < 0
		}
		if a.inside.CompareAndSwap(n, n+1) {
			return true, false
		}
	}
}

func (a *admission) leave() {
	if a.inside.Add(-1) == shut {
		close(a.empty)
	}
}

// stay lets one who is inside be told to go, until the returned function is
// called.
func (a *admission) stay(g *guest) (stop func()) {
	a.mu.Lock()
	a.guests[g] = struct{}{}
	a.mu.Unlock()
	if a.inside.Load() < 0 {
		g.call(g.goodbye)
	}
	return func() {
		g.mu.Lock()
		g.gone = true
		g.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.guests, g)
	}
}

// close shuts the door, tells the guests to go, one after the other so that
// their clients do not all come back at once, and waits until everybody has
// left, or ctx is done.
func (a *admission) close(ctx context.Context) error {
	for {
		n := a.inside.Load()
		if n < 0 {
			break // again
		}
		if a.inside.CompareAndSwap(n, n+shut) {
			if n == 0 {
				close(a.empty)
			}
			break
		}
	}
	guests := a.here()

	pause := pauseOf(ctx, len(guests))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, g := range guests {
		select {
		case <-timer.C:
			timer.Reset(pause)
		case <-ctx.Done(): // the others, too, are told
		}
		g.call(g.goodbye)
	}
	select {
	case <-a.empty:
		return nil
	default:
	}
	select {
	case <-a.empty:
		return nil
	case <-ctx.Done():
	}
	for _, g := range a.here() {
		g.call(g.cut)
	}
	return ctx.Err()
}

// here are the guests, in no order.
func (a *admission) here() []*guest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.guests))
}

// pauseOf is the pause between two guests who are told to go: all are told
// within half of the time until a deadline.
func pauseOf(ctx context.Context, guests int) time.Duration {
	const (
		enough = 10 * time.Millisecond
		most   = 10 * time.Second // for all, where there is no deadline
	)
	spread := time.Duration(most)
	if deadline, ok := ctx.Deadline(); ok {
		spread = max(0, time.Until(deadline)/2)
	}
	return min(enough, spread/time.Duration(max(1, guests)))
}
