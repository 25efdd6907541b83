package chaingql

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// deadline returns a context for one call of the Backend.
func (r *resolvers) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	t := xsync.WithTimeout(ctx, r.timeout)
	return t, t.Stop
}

// explain returns the error of a timeout if the deadline of ctx has passed and err says nothing more precise, and
// otherwise err.
func (r *resolvers) explain(ctx context.Context, err error) error {
	var known *plan.Error
	expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if expired && !errors.As(err, &known) && !errors.Is(err, ErrUnavailable) {
		r.limit(ctx, "BackendTimeout")
		return late()
	}
	return err
}

// isBusy reports whether the query has already waited for a slot without getting one. If so, it must not wait again.
func (c *call) isBusy() bool { return c != nil && c.busy }

// noteBusy records whether err is errBusy or ErrUnavailable, and returns err.
func (c *call) noteBusy(err error) error {
	if c != nil && errors.Is(err, ErrUnavailable) {
		c.unavailable = true
	}
	if c != nil && errors.Is(err, errBusy) {
		c.busy = true
	}
	return err
}
