package xsync

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Gate counts what is in progress, refuses what exceeds its limit, and can be
// closed and drained. Its methods are safe for concurrent use.
//
// It is our own because golang.org/x/sync/semaphore can be neither closed nor drained,
// and because a request then costs two atomic additions (BenchmarkGate in the root).
type Gate struct {
	limit   int64         // in progress at once; 0 means any number
	inside  atomic.Int64  // in progress; plus closed if the gate is closed
	drained chan struct{} // closed when the gate is closed and nothing is in progress

	mu   sync.Mutex
	long map[*long]struct{} // members that leave only when they are asked to
}

// closed is the count of a closed gate that nothing is inside of.
const closed = math.MinInt64

// A long is a member that was announced with Stay.
type long struct {
	drain, cut func()

	mu   sync.Mutex // guards gone, and is held while one of the functions runs
	gone bool
}

func (l *long) call(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		f()
	}
}

// NewGate returns a Gate for at most limit members at once; 0 means any number.
func NewGate(limit int) *Gate {
	return &Gate{limit: int64(limit), drained: make(chan struct{}), long: make(map[*long]struct{})}
}

// Enter adds a member, which must call Leave. If it returns false, isClosed reports
// whether the gate is closed; otherwise the limit is reached.
func (g *Gate) Enter() (ok, isClosed bool) {
	for {
		n := g.inside.Load()
		if n < 0 || g.limit > 0 && n >= g.limit {
			return false, n < 0
		}
		if g.inside.CompareAndSwap(n, n+1) {
			return true, false
		}
	}
}

// Leave removes a member.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == closed {
		close(g.drained)
	}
}

// Stay announces that a member stays until it is asked to leave. When the gate is
// closed, drain is called, and cut if the member is still inside at Close's deadline.
// Both must not block and may be called more than once, but not after stop has
// returned.
func (g *Gate) Stay(drain, cut func()) (stop func()) {
	l := &long{drain: drain, cut: cut}
	g.mu.Lock()
	g.long[l] = struct{}{}
	g.mu.Unlock()
	if g.inside.Load() < 0 {
		l.call(drain)
	}
	return func() {
		l.mu.Lock()
		l.gone = true
		l.mu.Unlock()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.long, l)
	}
}

// Close lets no further member in, asks those that stay to leave, one after the
// other within Spread, and waits until all have left. If ctx ends before, it cuts the
// rest and returns ctx's error without waiting for them. It may be called again.
func (g *Gate) Close(ctx context.Context) error {
	for {
		n := g.inside.Load()
		if n < 0 {
			break // it is closed already
		}
		if g.inside.CompareAndSwap(n, n+closed) {
			if n == 0 {
				close(g.drained)
			}
			break
		}
	}
	staying := g.members()
	pause := Spread(ctx, len(staying)) / time.Duration(max(1, len(staying)-1))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, l := range staying {
		select {
		case <-timer.C:
			timer.Reset(pause)
		case <-ctx.Done(): // ask the others at once
		}
		l.call(l.drain)
	}
	select {
	case <-g.drained:
		return nil
	default:
	}
	select {
	case <-g.drained:
		return nil
	case <-ctx.Done():
	}
	for _, l := range g.members() {
		l.call(l.cut)
	}
	return ctx.Err()
}

// Staying returns the number of members that were announced with Stay.
func (g *Gate) Staying() int { return len(g.members()) }

func (g *Gate) members() []*long {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.long))
}

const (
	// spreadEach is what each member adds to Spread.
	spreadEach = 10 * time.Millisecond
	// maxSpread is the maximum of Spread without a deadline.
	maxSpread = 10 * time.Second
)

// Spread returns the time within which n clients are asked to leave, so that they do
// not all reconnect at once: 10 ms between two, but no more than half of the time
// until ctx's deadline, or 10 s if it has none.
func Spread(ctx context.Context, n int) time.Duration {
	most := maxSpread
	if deadline, ok := ctx.Deadline(); ok {
		most = max(0, time.Until(deadline)/2)
	}
	return min(time.Duration(max(0, n-1))*spreadEach, most)
}
