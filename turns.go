package chaingql

import (
	"context"
	"errors"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
)

// turns bound the calls of the Backend that are under way for queries: each has
// one, and a call that ignores its context keeps it for as long as it takes. Who
// waits gets one in the order of coming, before anybody who comes later: a query
// of many calls must not go ahead of one of few with each of them. nil is no
// bound. The block log's own few calls need none.
type turns chan struct{}

// errBusy refuses a field for which no turn came up in time.
var errBusy = &plan.Error{Message: "Too many calls of the backend at once.", Code: codeUnavailable, Limit: "InFlight"}

// turn waits for a turn, for at most half of what a call may take. Whoever got
// one ends it with done.
func (r *resolvers) turn(ctx context.Context) error {
	if r.turns == nil {
		return nil
	}
	select {
	case r.turns <- struct{}{}:
		return nil
	default:
	}
	patience := r.timeout
	if patience == 0 {
		patience = DefaultBackendTimeout
	}
	enough := time.NewTimer(patience / 2)
	defer enough.Stop()
	select {
	case r.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-enough.C:
		r.limit(ctx, errBusy.Limit)
		return errBusy
	}
}

func (r *resolvers) done() {
	if r.turns != nil {
		<-r.turns
	}
}

// refuses tells whether a request waits for no turn any more: it has waited for
// one in vain.
func (c *call) refuses() bool { return c != nil && c.busy }

// note notes that a call was refused, and returns its error.
func (c *call) note(err error) error {
	if c != nil && errors.Is(err, errBusy) {
		c.busy = true
	}
	return err
}
