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

// A Gate limits the number of members that are inside at once, such as requests in
// progress. Close admits no further member and waits until all have left. Its methods
// are safe for concurrent use.
//
// Unlike golang.org/x/sync/semaphore, a Gate can be closed and drained, and a request
// that passes it costs only two atomic operations (BenchmarkGate in the root package).
type Gate struct {
	limit   int64         // maximum number of members; 0 means no limit
	inside  atomic.Int64  // number of members, plus the constant closed after Close
	drained chan struct{} // closed when the gate is closed and has no member

	mu      sync.Mutex
	staying map[*stayingMember]struct{} // members that leave only when they are asked to
}

// closed is the value of Gate.inside if the gate is closed and has no member.
const closed = math.MinInt64

// A stayingMember is a member for which Stay was called.
type stayingMember struct {
	drain, cut func()

	mu   sync.Mutex // guards gone, and is held while one of the functions runs
	gone bool
}

func (m *stayingMember) call(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.gone {
		f()
	}
}

// NewGate returns a Gate for at most limit members at once; 0 means no limit.
func NewGate(limit int) *Gate {
	g := new(Gate)
	g.init(limit)
	return g
}

func (g *Gate) init(limit int) {
	g.limit, g.drained, g.staying = int64(limit), make(chan struct{}), make(map[*stayingMember]struct{})
}

// Enter adds a member and returns true; the member must call Leave. If Enter returns
// false, isClosed reports whether the gate is closed. If it is not closed, the limit is
// reached.
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

// Closed reports whether Shut or Close was called.
func (g *Gate) Closed() bool { return g.inside.Load() < 0 }

// Leave removes a member.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == closed {
		close(g.drained)
	}
}

// Stay announces that a member leaves only when it is asked to. Close calls drain to
// ask it, and calls cut if the member is still inside when Close's context is done. If
// the gate is closed already, Stay calls drain itself. Both functions must not block.
// They may be called more than once, but not after stop has returned.
func (g *Gate) Stay(drain, cut func()) (stop func()) {
	m := &stayingMember{drain: drain, cut: cut}
	g.mu.Lock()
	g.staying[m] = struct{}{}
	g.mu.Unlock()
	if g.inside.Load() < 0 {
		m.call(drain)
	}
	return func() {
		m.mu.Lock()
		m.gone = true
		m.mu.Unlock()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.staying, m)
	}
}

// Close admits no further member. It asks the members that called Stay to leave, one
// after another within the time that Spread returns, and waits until all members have
// left. If ctx is done first, Close calls cut for the remaining ones that called Stay,
// and returns ctx's error without waiting for them. Close may be called again.
func (g *Gate) Close(ctx context.Context) error {
	g.Shut()
	staying := g.members()
	SpreadOut(ctx, len(staying), func(i int) { staying[i].call(staying[i].drain) })
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
	for _, m := range g.members() {
		m.call(m.cut)
	}
	return ctx.Err()
}

// Shut admits no further member. It does not wait for those that are inside, and asks none of them to leave.
func (g *Gate) Shut() {
	for {
		n := g.inside.Load()
		if n < 0 {
			return // the gate is closed already
		}
		if g.inside.CompareAndSwap(n, n+closed) {
			if n == 0 {
				close(g.drained)
			}
			return
		}
	}
}

// Members returns the number of members that are inside.
func (g *Gate) Members() int { return int(g.inside.Load() &^ closed) }

func (g *Gate) members() []*stayingMember {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.staying))
}

const (
	// spreadEach is the time that each client adds to the result of Spread.
	spreadEach = 10 * time.Millisecond
	// maxSpread is the maximum result of Spread for a context without a deadline.
	maxSpread = 10 * time.Second
)

// Spread returns the time over which requests to n clients to leave are spread, so that
// the clients do not all reconnect at once. It is 10 ms between two clients, but at
// most half of the time until ctx's deadline, or 10 s if ctx has no deadline.
func Spread(ctx context.Context, n int) time.Duration {
	most := maxSpread
	if deadline, ok := ctx.Deadline(); ok {
		most = max(0, time.Until(deadline)/2)
	}
	return min(time.Duration(max(0, n-1))*spreadEach, most)
}

// SpreadOut calls f with each number from 0 to n-1, one after another within the time that
// Spread returns. When ctx is done, it makes the remaining calls without a pause.
func SpreadOut(ctx context.Context, n int, f func(i int)) {
	pause, begun := Spread(ctx, n)/time.Duration(max(1, n-1)), Clock(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		if early := begun + time.Duration(i)*pause - Clock(0); early > 0 {
			timer.Reset(early)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		f(i)
	}
}
