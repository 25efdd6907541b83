package chaingql

import (
	"context"
	"net/netip"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// The shares of InFlight for slow kinds of calls, in eighths: for pages, for single blocks, and for several balances.
// In many Backends they take up to a hundred times as long as a call for one balance. They wait here, before the time
// of the call begins, because a Backend with limits of its own would have to refuse some of them.
const (
	pageEighths   = 3
	lookupEighths = 2
	batchEighths  = 2
)

// callSlots are slots for Backend calls. Clients that wait receive them in turns: otherwise each call of one client
// would wait for hundreds of those of another one.
type callSlots = xsync.FairSemaphore[callTurn]

// A callTurn is that of a peer. Its calls with a slot of their kind have turns of their own for one of all: otherwise
// they would keep that slot while they wait for many other calls of the peer.
type callTurn struct {
	peer   netip.AddrPort
	isSlow bool
}

// inFlight holds the slots of Limits.InFlight. A call of the Backend needs one of all, and one of its kind if that is
// slow. A field of the host needs one of own: if it is slow, calls of the Backend need not wait for it. All are nil if
// there is no limit.
type inFlight struct{ all, pages, lookups, batches, own *callSlots }

// newInFlight returns slots for limit calls of the Backend and own fields of the host.
func newInFlight(limit, own int) inFlight {
	if limit <= 0 {
		return inFlight{}
	}
	share := func(eighths int) *callSlots {
		if limit < 8 {
			eighths = 8
		}
		return xsync.NewFairSemaphore[callTurn](limit/8*eighths + limit%8*eighths/8)
	}
	return inFlight{share(8), share(pageEighths), share(lookupEighths), share(batchEighths),
		xsync.NewFairSemaphore[callTurn](own)}
}

// A callSlot is the slot of one call.
type callSlot struct {
	r         *resolvers
	remote    string // the network address of the client
	all, kind *callSlots
}

// slot returns the slot for a Backend call of a query. It is also one of kind, unless that is nil.
func (r *resolvers) slot(c *call, kind *callSlots) callSlot {
	return callSlot{r, c.remoteAddr(), r.slots.all, kind}
}

// TryAcquire takes the slot if one is free, and reports whether it did.
func (s callSlot) TryAcquire() bool {
	if !s.kind.TryAcquire() {
		return false
	}
	if s.all.TryAcquire() {
		return true
	}
	s.kind.Release()
	return false
}

// Acquire takes the slot. It waits for at most half of BackendTimeout, and then returns errBusy. The calls of a client
// receive slots in the order in which they began to wait, so that a query with many calls does not overtake a query
// with few. A Backend call that ignores its context keeps its slots until it returns. The block log makes few calls,
// and needs no slots for them.
func (s callSlot) Acquire(ctx context.Context) error {
	most := patience(s.r.timeout)
	if s.kind == nil {
		return s.take(ctx, s.all, most)
	}
	began := xsync.Clock(0)
	if err := s.take(ctx, s.kind, most); err != nil {
		return err
	}
	err := s.take(ctx, s.all, max(1, most-(xsync.Clock(0)-began)))
	if err != nil {
		s.kind.Release()
	}
	return err
}

func (s callSlot) take(ctx context.Context, slots *callSlots, patience time.Duration) error {
	switch {
	case slots.TryAcquire(), slots.Acquire(ctx, callTurn{peerAt(s.remote), s.kind != nil}, patience):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	s.r.limit(ctx, errBusy.Limit)
	return errBusy
}

// Release frees the slot.
func (s callSlot) Release() {
	s.all.Release()
	s.kind.Release()
}
