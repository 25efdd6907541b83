package chaingql

import (
	"context"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// The shares of InFlight, in eighths: of calls for pages, for single blocks, for more than fewAccounts balances, and of
// queries that have made more than fewCalls. In many Backends, calls of the first three kinds take a hundred times as
// long as one for a balance. They wait here, before the time of the call begins, because a Backend with limits of its
// own would have to refuse some of them.
const (
	pageEighths   = 3
	lookupEighths = 2
	batchEighths  = 2
	laterEighths  = 2
)

// fewAccounts is the maximum number of balances of a call that does not count as one for many.
const fewAccounts = 4

// inFlight holds the slots of Limits.InFlight. A call needs one of all, and one of its kind. All are nil if there is no
// limit.
type inFlight struct{ all, pages, lookups, batches, later *xsync.Semaphore }

func newInFlight(limit int) inFlight {
	if limit <= 0 {
		return inFlight{}
	}
	share := func(eighths int) *xsync.Semaphore {
		return xsync.NewSemaphore(limit - limit/8*(8-eighths)) // all, if the limit is less than 8
	}
	return inFlight{xsync.NewSemaphore(limit), share(pageEighths), share(lookupEighths), share(batchEighths),
		share(laterEighths)}
}

// slots contains the semaphores of which a call needs a slot each, in this order. It may contain nil.
type slots [3]*xsync.Semaphore

// of returns the slots for the next call of a query, given those of its kind, or nil.
func (f *inFlight) of(c *call, kind *xsync.Semaphore) slots {
	if c.calls > fewCalls {
		return slots{f.later, kind, f.all}
	}
	return slots{kind, f.all}
}

// acquire takes slots for one Backend call of a query; release frees them. acquire waits for at most half of
// BackendTimeout, and then returns errBusy. Callers receive slots in the order in which they began to wait, so that a
// query with many calls does not overtake a query with few. A Backend call that ignores its context keeps its slots
// until it returns. The block log makes few calls, and needs no slots for them.
func (r *resolvers) acquire(ctx context.Context, needed slots) error {
	var began time.Duration
	left := patience(r.timeout)
	for i, s := range needed {
		if s == nil || s.TryAcquire() {
			continue
		}
		if began == 0 {
			began = xsync.Clock(0)
		}
		if s.Acquire(ctx, max(1, left-(xsync.Clock(0)-began))) {
			continue
		}
		needed.releaseFirst(i)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.limit(ctx, errBusy.Limit)
		return errBusy
	}
	return nil
}

func (s *slots) release() { s.releaseFirst(len(s)) }

func (s *slots) releaseFirst(n int) {
	for _, held := range s[:n] {
		if held != nil {
			held.Release()
		}
	}
}
