package tonlite

import (
	"context"
	"sync"
)

// concurrency is the maximum number of parts of one task that run at the same time.
const concurrency = 8

// parallel runs the n parts of a task by calling part with each i below n, and waits for all
// calls. At most concurrency calls run at the same time. The first error cancels the context of
// the other calls, and parallel returns that error. If the deadline of ctx has passed, it returns
// an outage.
func parallel(ctx context.Context, n int, part func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	next := make(chan int)
	for range min(n, concurrency) {
		running.Go(func() {
			for i := range next {
				if err := part(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	running.Wait()
	if ctx.Err() == nil {
		return nil
	}
	return timedOut(context.Cause(ctx))
}
