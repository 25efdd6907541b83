package backendtest

import (
	"context"

	"github.com/chaingql/chaingql"
)

// Prune makes c behave as if all blocks with a cursor less than before had been pruned,
// except the newest block of the chain, which always remains. [ChaosBackend.Calm] does not
// undo this, but a new chain with another epoch has all its blocks.
//
// Prune does not change the wrapped Backend. It reads cursors with Blocks of the wrapped
// Backend and returns any error of those calls.
func (c *ChaosBackend) Prune(ctx context.Context, before chaingql.Cursor) error {
	newest, err := c.Backend.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
	if err != nil || len(newest) == 0 || before == "" {
		return err
	}
	gone, err := c.Backend.Blocks(ctx, chaingql.BlocksQuery{Last: 1, Before: min(before, newest[0].Cursor)})
	if err != nil || len(gone) == 0 {
		return err
	}
	epoch := c.Epoch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch {
		c.floor, c.epoch = "", epoch
	}
	c.floor = max(c.floor, gone[0].Cursor)
	return nil
}

// pruned returns the cursor of the newest pruned block, or "".
func (c *ChaosBackend) pruned() chaingql.Cursor {
	epoch := c.Epoch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch {
		return ""
	}
	return c.floor
}

// skipPruned restricts q to blocks that are not pruned. It returns ErrCursorTooOld if a
// block after q.After was pruned.
func (c *ChaosBackend) skipPruned(q *chaingql.BlocksQuery) error {
	floor := c.pruned()
	switch {
	case q.After == "":
		q.After = floor
	case q.After < floor:
		return chaingql.ErrCursorTooOld
	}
	return nil
}
