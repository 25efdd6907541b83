package tonlite

import "context"

// A use says what a query is for, the most urgent first.
type use int

const (
	forFollow use = iota // and for Open
	forBalance
	forPage
	forSearch // a page whose filter passes over many blocks
	uses
)

type useKey struct{}

func with(ctx context.Context, u use) context.Context { return context.WithValue(ctx, useKey{}, u) }

func useOf(ctx context.Context) use {
	u, _ := ctx.Value(useKey{}).(use)
	return u
}

// A gate bounds what is done at a time. Each use may take up less of it than the
// more urgent ones, so pages that wait for one another leave room for balances,
// and both leave room for Follow.
type gate [uses]chan struct{}

func newGate(sizes [uses]int) (g gate) {
	for u, size := range sizes {
		g[u] = make(chan struct{}, size)
	}
	return g
}

// enter waits for a place. Call leave afterwards, unless there is an error.
func (g gate) enter(ctx context.Context) (leave func(), err error) {
	u := useOf(ctx)
	for i := u; i >= 0; i-- {
		select {
		case g[i] <- struct{}{}:
		case <-ctx.Done():
			g.leave(i+1, u)
			return nil, ctx.Err()
		}
	}
	return func() { g.leave(0, u) }, nil
}

func (g gate) leave(from, to use) {
	for i := from; i <= to; i++ {
		<-g[i]
	}
}
