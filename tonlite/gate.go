package tonlite

import "context"

// A use is the purpose of a query. Lower values are more urgent.
type use int

const (
	forFollow use = iota // also for Open
	forBalance
	forCatchUp // a page for subscriptions of clients that resume
	forPage
	forSearch // a page with a filter that skips many blocks
	uses      // the number of uses
)

type useKey struct{}

func withUse(ctx context.Context, u use) context.Context { return context.WithValue(ctx, useKey{}, u) }

func useOf(ctx context.Context) use {
	u, _ := ctx.Value(useKey{}).(use)
	return u
}

// A gate limits concurrent work. The less urgent a use is, the fewer slots it may take. If pages
// wait for slots, some slots therefore remain for balances, and if pages and balances wait, some
// remain for Follow.
type gate [uses]chan struct{}

func newGate(sizes [uses]int) (g gate) {
	for u, size := range sizes {
		g[u] = make(chan struct{}, size)
	}
	return g
}

// acquire waits for a slot for the use that ctx contains. Unless acquire returns an error, the
// caller must call leave to release the slot.
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
