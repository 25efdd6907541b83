package xsync

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// A Group lets callers that use the same key at the same time share one call.
//
// Unlike a golang.org/x/sync/singleflight Group, it passes a context to the call. This
// context is canceled when all callers have left. Every caller except the first can
// leave before the call returns, and JoinWithin keeps new callers from joining a call
// that takes long.
type Group[K comparable, V any] struct {
	// JoinWithin is the time after the start of a call during which other callers may
	// join the call; 0 means that they may join until it returns. A limit protects them
	// from a call that hangs.
	JoinWithin time.Duration

	mu    sync.Mutex
	calls map[K]*call[V]
}

// A call is one call in progress. Its context is canceled when all callers have left.
type call[V any] struct {
	ctx     context.Context
	cancel  context.CancelFunc
	started time.Time
	callers int           // guarded by Group.mu
	done    chan struct{} // closed when value and err are set
	value   V
	err     error
}

// Do calls fn on the goroutine of the first caller. Another caller with the same key
// waits for that call if it is in progress. All callers receive the same value, which
// they must not change. If ctx is done first, Do returns ctx's error; the first caller
// receives it only after fn has returned. If fn panics, all callers receive the panic
// as an error.
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
	c.err = errors.New("the shared function called runtime.Goexit")
	c.value, c.err = fn(c.ctx)
}

// leave removes a caller from c. If no caller is left, it cancels c, and later callers
// start a new call.
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
