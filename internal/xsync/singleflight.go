package xsync

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// ErrWaited is returned by [Group.Do] to a caller that has waited for the call of another caller for Group.Wait.
var ErrWaited = errors.New("xsync: the shared call did not return in time")

var errGoexit = errors.New("the shared function called runtime.Goexit")

// A Group lets callers that use the same key at the same time share one call.
//
// Unlike a golang.org/x/sync/singleflight Group, it passes a context to the call. This
// context is canceled when all callers have left. Every caller except the first can
// leave before the call returns, and JoinWithin keeps new callers from joining a call
// that takes long. If nobody shares a call, and its function only checks the Err of
// its context, the call needs no channel, timer or further context.
//
// A call may need a slot. While no call has one, each caller waits for its own slot, so
// that nobody waits in the turn of another client. The first that receives a slot makes
// the call for all.
type Group[K comparable, V any] struct {
	// JoinWithin is the time after the start of a call during which other callers may
	// join the call; 0 means that they may join until it returns. A limit protects them
	// from a call that hangs.
	JoinWithin time.Duration

	// Wait is the maximum time that a caller waits for the call of another caller; 0
	// means no limit.
	Wait time.Duration

	mu    sync.Mutex
	one   *call[K, V]       // a call in progress; a map of one call would take a tenth of the time of a small page
	calls map[K]*call[K, V] // the other calls in progress
	next  map[K]*next[K, V] // the calls for which callers wait for a slot
}

// A Slot is what one call needs while it is in progress. Only the caller of Do that passes a Slot calls its methods.
type Slot interface {
	TryAcquire() bool                  // does not block
	Acquire(ctx context.Context) error // waits for a slot
	Release()
}

// A next is a call that has no slot yet.
type next[K comparable, V any] struct {
	callers int
	begun   context.Context // done when the call has a slot
	begin   context.CancelFunc
	call    *call[K, V] // nil before it has a slot
}

// A call is one call in progress, and the context of its function. The context has no
// values. It is done when all callers have left or the function has returned.
type call[K comparable, V any] struct {
	group   *Group[K, V]
	key     K
	first   context.Context // of the first caller
	started time.Duration   // on the Clock

	// waited is set when something first waits for the end of the context, and at the end of the call. It then
	// implements the context. Until then, the context is done only if that of the first caller is.
	waited atomic.Pointer[waited]

	// The group's lock guards these fields.
	callers   int           // callers that have not left
	firstLeft bool          // the first caller's context is done
	done      chan struct{} // made by the first other caller; closed when value and err are set

	value V
	err   error
}

// A waited is a cancelable context for a call.
type waited struct {
	context.Context
	cancel context.CancelFunc
	stop   func() bool // ends the wait for the first caller's context
}

// over is the context of a call that has returned before anything waited for its context.
var over = func() *waited {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return &waited{ctx, cancel, func() bool { return true }}
}()

// Do calls fn on the goroutine of the first caller, which has slot meanwhile; nil means that no
// slot is needed. Another caller with the same key waits for that call if it is in progress. All
// callers receive the same value, which they must not change. If ctx is done first, Do returns
// ctx's error; the first caller receives it only after fn has returned. If fn panics, all callers
// receive the panic as an error. If slot.Acquire fails, its caller receives the error.
func (g *Group[K, V]) Do(
	ctx context.Context, key K, slot Slot, fn func(context.Context) (V, error),
) (value V, err error) {
	g.mu.Lock()
	c := g.joinable(key)
	switch {
	case c != nil:
		c.join(1)
	case slot != nil && !slot.TryAcquire():
		if c, err = g.await(ctx, key, slot); err != nil {
			g.mu.Unlock()
			return value, err
		}
	}
	if c == nil {
		c = &call[K, V]{group: g, key: key, first: ctx, started: Clock(0), callers: 1}
		c.remember()
		if n := g.next[key]; n != nil {
			c.join(n.callers)
			n.call = c
			n.begin()
			delete(g.next, key)
		}
		g.mu.Unlock()
		c.run(slot, fn)
		if err := ctx.Err(); err != nil {
			return value, err
		}
		return c.value, c.err
	}
	done := c.done
	g.mu.Unlock()
	own := WithTimeout(ctx, g.Wait)
	defer own.Stop()
	select {
	case <-done:
		return c.value, c.err
	case <-own.Done():
		c.leave(false)
		if own.Expired() {
			return value, ErrWaited
		}
		return value, own.Err()
	}
}

// joinable returns the call in progress that a further caller may join, or nil if there is none. The caller must hold
// the group's lock.
func (g *Group[K, V]) joinable(key K) *call[K, V] {
	c := g.one
	if c == nil || c.key != key {
		c = g.calls[key]
	}
	if c == nil || g.JoinWithin > 0 && Clock(0)-c.started >= g.JoinWithin {
		return nil
	}
	return c
}

// join adds callers. The caller must hold the group's lock.
func (c *call[K, V]) join(callers int) {
	c.callers += callers
	if c.done == nil {
		c.done = make(chan struct{})
	}
}

// await waits until the caller has a slot, and then returns nil, or until another caller with the same key has one, and
// then returns the call of that one. The caller must hold the group's lock, which await unlocks meanwhile.
func (g *Group[K, V]) await(ctx context.Context, key K, slot Slot) (*call[K, V], error) {
	n := g.next[key]
	if n == nil {
		n = new(next[K, V])
		n.begun, n.begin = context.WithCancel(context.Background())
		if g.next == nil {
			g.next = make(map[K]*next[K, V])
		}
		g.next[key] = n
	}
	n.callers++
	g.mu.Unlock()
	own, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.begun, cancel)
	err := slot.Acquire(own)
	stop()
	cancel()
	g.mu.Lock()
	if n.call != nil { // it counts this caller
		if err == nil {
			slot.Release()
		}
		return n.call, nil
	}
	if n.callers--; n.callers == 0 {
		n.begin() // frees its context
		delete(g.next, key)
	}
	return nil, err
}

// run calls fn, releases slot and ends the call.
func (c *call[K, V]) run(slot Slot, fn func(context.Context) (V, error)) {
	defer func() {
		if slot != nil {
			slot.Release()
		}
		c.group.mu.Lock()
		c.forget()
		done := c.done
		c.group.mu.Unlock()
		if done != nil {
			close(done)
		}
		if !c.waited.CompareAndSwap(nil, over) {
			w := c.waited.Load()
			w.stop()
			w.cancel()
		}
	}()
	defer guard.Recover(&c.err)
	c.err = errGoexit
	c.value, c.err = fn(c)
}

// leave removes a caller. If no caller is left, it cancels the context, and later callers
// start a new call.
func (c *call[K, V]) leave(first bool) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if first && c.firstLeft {
		return
	}
	c.firstLeft = c.firstLeft || first
	c.callers--
	c.cancelAbandoned()
}

// cancelAbandoned cancels the context if no caller is left. The caller must hold the group's lock.
func (c *call[K, V]) cancelAbandoned() {
	if c.callers > 0 {
		return
	}
	c.forget()
	if w := c.waited.Load(); w != nil {
		w.cancel()
	}
}

// remember lets later callers join the call. The caller must hold the group's lock.
func (c *call[K, V]) remember() {
	g := c.group
	switch {
	case g.one == nil || g.one.key == c.key:
		g.one = c
	case g.calls == nil:
		g.calls = map[K]*call[K, V]{c.key: c}
	default:
		g.calls[c.key] = c
	}
}

// forget lets later callers start a new call. The caller must hold the group's lock.
func (c *call[K, V]) forget() {
	g := c.group
	if g.one == c {
		g.one = nil
	} else if g.calls[c.key] == c {
		delete(g.calls, c.key)
	}
}

// wait returns a context that can be waited for.
func (c *call[K, V]) wait() *waited {
	if w := c.waited.Load(); w != nil {
		return w
	}
	w := new(waited)
	w.Context, w.cancel = context.WithCancel(context.Background())
	w.stop = context.AfterFunc(c.first, func() { c.leave(true) })
	if !c.waited.CompareAndSwap(nil, w) {
		w.stop()
		w.cancel()
		return c.waited.Load()
	}
	if c.first.Err() != nil {
		c.leave(true)
	}
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	c.cancelAbandoned() // the last caller may have left before waited was set
	return w
}

// Deadline implements [context.Context].
func (c *call[K, V]) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// Done implements [context.Context].
func (c *call[K, V]) Done() <-chan struct{} { return c.wait().Done() }

// Err implements [context.Context].
func (c *call[K, V]) Err() error {
	if w := c.waited.Load(); w != nil {
		return w.Err()
	}
	if c.first.Err() == nil {
		return nil
	}
	return c.wait().Err()
}

// Value implements [context.Context].
func (c *call[K, V]) Value(key any) any {
	if w := c.waited.Load(); w != nil {
		return w.Value(key) // child contexts find the cancelable context with a private key
	}
	return nil
}
