package chaingql

import (
	"context"
	"net/netip"

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

// A callTurn is that of a peer. In turns for one of all slots, hasKind distinguishes its calls with a slot of their
// kind: otherwise they would keep that slot while they wait for many other calls of the peer.
type callTurn struct {
	peer    netip.AddrPort
	hasKind bool
}

// inFlight holds the slots of Limits.InFlight. A call of the Backend needs one of all, and one of its kind if that is
// slow. A field of the host needs one of own: if it is slow, calls of the Backend need not wait for it. A peer may have
// only as many slots of a kind, or for fields, as are free, because its calls may take until their deadline. All are
// nil if there is no limit.
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
		return xsync.NewSharedSemaphore[callTurn](limit/8*eighths + limit%8*eighths/8)
	}
	return inFlight{xsync.NewFairSemaphore[callTurn](limit), share(pageEighths), share(lookupEighths),
		share(batchEighths), xsync.NewSharedSemaphore[callTurn](own)}
}

// A callSlot is the slot of one call of a peer. It consists of one of all and one of its kind; each may be nil.
type callSlot struct {
	r         *resolvers
	remote    string         // the network address of the peer
	peer      netip.AddrPort // set by the first call of turn
	all, kind *callSlots
}

// slot returns the slot for a Backend call of a query, which makes one at a time. It is also one of kind, unless that
// is nil.
func (r *resolvers) slot(c *call, kind *callSlots) *callSlot {
	c.slot = callSlot{r: r, remote: c.remoteAddr(), all: r.slots.all, kind: kind}
	return &c.slot
}

// ownSlot returns the slot for a field of the host.
func (r *resolvers) ownSlot(c *call) *callSlot {
	return &callSlot{r: r, remote: c.remoteAddr(), kind: r.slots.own}
}

// TryAcquire takes the slot if one is free, and reports whether it did.
func (s *callSlot) TryAcquire() bool {
	if s.kind != nil && !s.kind.TryAcquire(s.turn(false)) {
		return false
	}
	if s.all.TryAcquire(callTurn{}) {
		return true
	}
	s.releaseKind()
	return false
}

// Acquire takes the slot. It waits for at most half of BackendTimeout, and then returns errBusy. The calls of a client
// receive slots in the order in which they began to wait, so that a query with many calls does not overtake a query
// with few. A Backend call that ignores its context keeps its slots until it returns. The block log makes few calls,
// and needs no slots for them.
func (s *callSlot) Acquire(ctx context.Context) error {
	if s.TryAcquire() {
		return nil
	}
	began, most := xsync.Clock(0), patience(s.r.timeout)
	if s.kind != nil && !s.kind.Acquire(ctx, s.turn(false), most) {
		return s.busy(ctx)
	}
	if !s.all.Acquire(ctx, s.turn(s.kind != nil), max(1, most-(xsync.Clock(0)-began))) {
		s.releaseKind()
		return s.busy(ctx)
	}
	return nil
}

// busy returns the error of a call that received no slot.
func (s *callSlot) busy(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.r.limit(ctx, errBusy.Limit)
	return errBusy
}

// Release frees the slot.
func (s *callSlot) Release() {
	s.all.Release(callTurn{})
	s.releaseKind()
}

func (s *callSlot) releaseKind() {
	if s.kind != nil {
		s.kind.Release(s.turn(false))
	}
}

func (s *callSlot) turn(hasKind bool) callTurn {
	if !s.peer.IsValid() {
		s.peer = peerAt(s.remote)
	}
	return callTurn{s.peer, hasKind}
}
