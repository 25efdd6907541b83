package xsync

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// A Group lets callers that ask for the same thing at the same time share one call. It
// is our own because golang.org/x/sync/singleflight passes no context: here a call's
// context ends when all its callers have left, each caller can leave before the call
// returns, and a call that takes long is not joined any more.
type Group[K comparable, V any] struct {
	// JoinWithin is how long after its start a call can be joined; 0 means until it
	// returns. A call that takes too long may never return.
	JoinWithin time.Duration

	mu    sync.Mutex
	calls map[K]*call[V]
}

// A call is one call in progress. Its context ends when all callers have left.
type call[V any] struct {
	ctx     context.Context
	cancel  context.CancelFunc
	started time.Time
	callers int           // guarded by Group.mu
	done    chan struct{} // closed when value and err are set
	value   V
	err     error
}

// Do calls fn on the goroutine of the first caller, or waits for the call with the
// same key that is in progress. All callers receive the same value, which they must
// not change. If ctx ends, Do returns its error, the first caller's only after fn
// has returned. A panic of fn is returned as an error to all callers.
func (g *Group[K, V]) Do(ctx context.Context, key K, fn func(context.Context) (V, error)) (value V, err error) {
	g.mu.Lock()
	c := g.calls[key]
	first := c == nil || g.JoinWithin > 0 && time.Since(c.started) >= g.JoinWithin
	if first {
		c = &call[V]{started: time.Now(), done: make(chan struct{})}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		if g.calls == nil {
			g.calls = make(map[K]*call[V])
		}
		g.calls[key] = c
	}
	c.callers++
	g.mu.Unlock()

	if first {
		stop := context.AfterFunc(ctx, func() { g.leave(key, c) })
		g.run(key, c, fn)
		if !stop() {
			return value, ctx.Err()
		}
		g.leave(key, c)
		return c.value, c.err
	}
	defer g.leave(key, c)
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

func (g *Group[K, V]) run(key K, c *call[V], fn func(context.Context) (V, error)) {
	defer func() {
		g.mu.Lock()
		g.forget(key, c)
		g.mu.Unlock()
		close(c.done)
	}()
	defer guard.Recover(&c.err)
	c.err = errors.New("the call called runtime.Goexit")
	c.value, c.err = fn(c.ctx)
}

// leave ends the call if no caller is left. Later callers must not join it.
func (g *Group[K, V]) leave(key K, c *call[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.callers--; c.callers == 0 {
		g.forget(key, c)
		c.cancel()
	}
}

func (g *Group[K, V]) forget(key K, c *call[V]) {
	if g.calls[key] == c {
		delete(g.calls, key)
	}
}
