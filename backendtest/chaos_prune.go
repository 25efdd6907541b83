package backendtest

import (
	"context"

	"github.com/chaingql/chaingql"
)

// Prune behaves from now on as if all blocks below a cursor were gone, but for the
// newest of the chain. Pruning is no mischief: it stays when [ChaosBackend.Calm]
// ends that. An error is that of the Backend underneath, which is asked for the
// newest block and for the newest of those that go.
func (c *ChaosBackend) Prune(ctx context.Context, before chaingql.Cursor) error {
	newest, err := c.Backend.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
	if err != nil || len(newest) == 0 || before == "" {
		return err
	}
	gone, err := c.Backend.Blocks(ctx, chaingql.BlocksQuery{Last: 1, Before: min(before, newest[0].Cursor)})
	if err != nil || len(gone) == 0 {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = max(c.floor, gone[0].Cursor)
	return nil
}

// pruned is the newest block that is gone.
func (c *ChaosBackend) pruned() chaingql.Cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.floor
}

// kept has a query ask for nothing that is gone, or tells that it does.
func (c *ChaosBackend) kept(q *chaingql.BlocksQuery) error {
	floor := c.pruned()
	switch {
	case q.After == "":
		q.After = floor
	case q.After < floor:
		return chaingql.ErrCursorTooOld
	}
	return nil
}
