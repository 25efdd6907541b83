package tonlite

import "context"

// A use is the purpose of a query. Lower values are more urgent.
type use int

const (
	forFollow use = iota // and Open
	forBalance
	forPage
	forSearch // a page whose filter skips many blocks
	uses
)

type useKey struct{}

func withUse(ctx context.Context, u use) context.Context { return context.WithValue(ctx, useKey{}, u) }

func useOf(ctx context.Context) use {
	u, _ := ctx.Value(useKey{}).(use)
	return u
}

// A gate limits concurrent work. A use may take fewer slots than the more urgent ones, so
// slots remain for balances if pages wait, and for Follow if both wait.
type gate [uses]chan struct{}

func newGate(sizes [uses]int) (g gate) {
	for u, size := range sizes {
		g[u] = make(chan struct{}, size)
	}
	return g
}

// acquire waits for a slot. Call leave to release it, unless acquire returns an error.
func (g gate) acquire(ctx context.Context) (leave func(), err error) {
	u := useOf(ctx)
	for i := u; i >= 0; i-- {
		select {
		case g[i] <- struct{}{}:
		case <-ctx.Done():
			g.release(i+1, u)
			return nil, ctx.Err()
		}
	}
	return func() { g.release(0, u) }, nil
}

func (g gate) release(from, to use) {
	for i := from; i <= to; i++ {
		<-g[i]
	}
}
