package chaingql

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
)

// turns bound the calls of the Backend that are under way for queries: each has
// one, and a call that ignores its context keeps it for as long as it takes. The
// block log's own few calls need none.
type turns struct {
	admission *admission
	waiting   atomic.Int64
	freed     chan struct{} // has room for all there are, so that no wake is lost
}

func newTurns(most int) *turns {
	return &turns{admission: newAdmission(most), freed: make(chan struct{}, max(most, 1))}
}

func (t *turns) take() bool {
	ok, _ := t.admission.enter()
	return ok
}

// errBusy refuses a field for which no turn came up in time.
var errBusy = &plan.Error{Message: "Too many calls of the backend at once.", Code: codeUnavailable, Limit: "InFlight"}

// turn waits for a turn, for at most half of what a call may take. Whoever got
// one ends it with done.
func (r *resolvers) turn(ctx context.Context) error {
	if r.turns.take() {
		return nil
	}
	patience := r.timeout
	if patience == 0 {
		patience = DefaultBackendTimeout
	}
	enough := time.NewTimer(patience / 2)
	defer enough.Stop()
	r.turns.waiting.Add(1)
	defer r.turns.waiting.Add(-1)
	for !r.turns.take() {
		select {
		case <-r.turns.freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-enough.C:
			r.limit(ctx, errBusy.Limit)
			return errBusy
		}
	}
	return nil
}

func (r *resolvers) done() {
	r.turns.admission.leave()
	if r.turns.waiting.Load() > 0 {
		select {
		case r.turns.freed <- struct{}{}:
		default: // as many are on their way already
		}
	}
}

// note notes that a call was refused, and returns its error.
func (c *call) note(err error) error {
	if c != nil && errors.Is(err, errBusy) {
		c.busy = true
	}
	return err
}
