package chaingql

import (
	"context"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// The shares of InFlight for slow kinds of calls, in eighths: for pages, for single blocks, and for more than
// fewAccounts balances. In many Backends they take a hundred times as long as a call for one balance. They wait here,
// before the time of the call begins, because a Backend with limits of its own would have to refuse some of them.
const (
	pageEighths   = 3
	lookupEighths = 2
	batchEighths  = 2
)

// fewAccounts is the maximum number of balances of a call that does not count as one for many.
const fewAccounts = 4

// inFlight holds the slots of Limits.InFlight. A call needs one of all, and one of its kind if that is slow. All are
// nil if there is no limit.
type inFlight struct{ all, pages, lookups, batches *xsync.Semaphore }

func newInFlight(limit int) inFlight {
	if limit <= 0 {
		return inFlight{}
	}
	share := func(eighths int) *xsync.Semaphore {
		return xsync.NewSemaphore(limit - limit/8*(8-eighths)) // all, if the limit is less than 8
	}
	return inFlight{xsync.NewSemaphore(limit), share(pageEighths), share(lookupEighths), share(batchEighths)}
}

// acquire takes a slot for one Backend call of a query, and one of kind unless that is nil; release frees them. acquire
// waits for at most half of BackendTimeout, and then returns errBusy. Callers receive slots in the order in which they
// began to wait, so that a query with many calls does not overtake a query with few. A Backend call that ignores its
// context keeps its slots until it returns. The block log makes few calls, and needs no slots for them.
func (r *resolvers) acquire(ctx context.Context, kind *xsync.Semaphore) error {
	most := patience(r.timeout)
	if kind == nil {
		return r.takeSlot(ctx, r.slots.all, most)
	}
	began := xsync.Clock(0)
	if err := r.takeSlot(ctx, kind, most); err != nil {
		return err
	}
	err := r.takeSlot(ctx, r.slots.all, max(1, most-(xsync.Clock(0)-began)))
	if err != nil {
		kind.Release()
	}
	return err
}

func (r *resolvers) takeSlot(ctx context.Context, slots *xsync.Semaphore, patience time.Duration) error {
	switch {
	case slots == nil || slots.Acquire(ctx, patience):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	r.limit(ctx, errBusy.Limit)
	return errBusy
}

func (r *resolvers) release(kind *xsync.Semaphore) {
	if r.slots.all != nil {
		r.slots.all.Release()
	}
	if kind != nil {
		kind.Release()
	}
}
