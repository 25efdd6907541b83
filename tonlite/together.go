package tonlite

import (
	"context"
	"sync"
)

// abreast is how many parts of one task are done at a time.
const abreast = 8

// together does n parts of a task, some at a time, and waits for them. It
// returns the first error, which ends the others.
func together(ctx context.Context, n int, part func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	next := make(chan int)
	for range min(n, abreast) {
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
	return context.Cause(ctx)
}
