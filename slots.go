package chaingql

import (
	"context"
	"net/netip"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// The shares of InFlight for slow kinds of calls, in eighths: for pages, for single blocks, and for more than
// fewAccounts balances. In many Backends they take a hundred times as long as a call for one balance. They wait here,
// before the time of the call begins, because a Backend with limits of its own would have to refuse some of them.
const (
	pageEighths   = 3
	lookupEighths = 2
	batchEighths  = 1
)

// fewAccounts is the maximum number of balances of a call that does not count as one for many.
const fewAccounts = 4

// callSlots are slots for Backend calls. Clients that wait receive them in turns: otherwise each call of one client
// would wait for hundreds of those of another one.
type callSlots = xsync.FairSemaphore[netip.AddrPort]

// inFlight holds the slots of Limits.InFlight. A call needs one of all, and one of its kind if that is slow. All are
// nil if there is no limit.
type inFlight struct{ all, pages, lookups, batches *callSlots }

func newInFlight(limit int) inFlight {
	if limit <= 0 {
		return inFlight{}
	}
	share := func(eighths int) *callSlots {
		if limit < 8 {
			eighths = 8
		}
		return xsync.NewFairSemaphore[netip.AddrPort](limit/8*eighths + limit%8*eighths/8)
	}
	return inFlight{share(8), share(pageEighths), share(lookupEighths), share(batchEighths)}
}

// acquire takes a slot for one Backend call of a query, and one of kind unless that is nil; release frees them. remote
// is the network address of the client. acquire waits for at most half of BackendTimeout, and then returns errBusy. The
// calls of a client receive slots in the order in which they began to wait, so that a query with many calls does not
// overtake a query with few. A Backend call that ignores its context keeps its slots until it returns. The block log
// makes few calls, and needs no slots for them.
func (r *resolvers) acquire(ctx context.Context, remote string, kind *callSlots) error {
	most := patience(r.timeout)
	if kind == nil {
		return r.takeSlot(ctx, remote, r.slots.all, most)
	}
	began := xsync.Clock(0)
	if err := r.takeSlot(ctx, remote, kind, most); err != nil {
		return err
	}
	err := r.takeSlot(ctx, remote, r.slots.all, max(1, most-(xsync.Clock(0)-began)))
	if err != nil {
		kind.Release()
	}
	return err
}

func (r *resolvers) takeSlot(ctx context.Context, remote string, slots *callSlots, patience time.Duration) error {
	switch {
	case slots == nil, slots.TryAcquire(), slots.Acquire(ctx, peerAt(remote), patience):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	r.limit(ctx, errBusy.Limit)
	return errBusy
}

func (r *resolvers) release(kind *callSlots) {
	if r.slots.all != nil {
		r.slots.all.Release()
	}
	if kind != nil {
		kind.Release()
	}
}
