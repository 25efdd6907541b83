package plan

import (
	"math"
	"runtime"

	"github.com/chaingql/chaingql/internal/xsync"
)

// maxBytes returns the maximum length of a response's data in bytes.
func (b *Bound) maxBytes() int {
	if n := b.cache.limits.Answer; n > 0 {
		return n
	}
	return math.MaxInt / 4 // so that it can be doubled
}

// A Reservation is the memory that is reserved for a response. It grows with the response, and shrinks after a field of
// the host.
type Reservation interface {
	// Resize reserves n bytes in total. If n is more than before and Resize returns an error, the run ends, and the
	// response has only this error and no data.
	Resize(n int) *Error
}

const (
	// unreservedBytes is the maximum length of a response that needs no reservation.
	unreservedBytes = 8 << 10

	// yieldBytes is the number of bytes after which a run yields the processor. Appending
	// them takes a tenth of a millisecond.
	yieldBytes = 16 << 10

	// yieldFields is the number of fields after which a run yields the processor. It is
	// needed because empty objects and null fields take few bytes.
	yieldFields = 512
)

// step counts appended fields. After more than yieldFields of them, it yields the processor.
func (r *run) step(fields int) {
	if r.steps += fields; r.steps > yieldFields {
		r.steps = 0
		runtime.Gosched()
	}
}

// full reports whether the response exceeds its limit or its reservation, after it has tried to enlarge the
// reservation.
func (r *run) full() bool { return len(r.dst) > r.threshold && r.overflow(len(r.dst)) }

// overflow reserves memory for a response of n bytes, within the limit. If it cannot, it reports true, and the
// response has only the error and no data, because partial data would look complete.
//
// overflow also yields the processor. Go preempts a goroutine only after 10 ms, but most large responses take less.
// If hundreds of them were produced at once, a small query would wait for all of them each time it needs the
// processor.
func (r *run) overflow(n int) bool {
	if r.overflowed {
		return true
	}
	var err *Error
	switch limit := r.dataStart + r.maxBytes(); {
	case n > limit:
		err = limitError("ResponseBytes", nil, "The response exceeds the limit of %d bytes.", r.cache.limits.Answer)
	case n <= r.reserved:
		runtime.Gosched()
		r.threshold = min(n+yieldBytes, r.reserved)
		return false
	default:
		size := n + n/4 // more would keep room from others while the query waits for the Backend
		if small := xsync.SmallBytes - r.treeBytes; n < small {
			size = min(2*n, small) // a larger reservation is refused earlier, and the response may remain small
		}
		size = max(min(size, limit), cap(r.dst)) // a reused buffer may be larger
		if err = r.Reservation.Resize(size + r.treeBytes); err == nil {
			r.reserved, r.treeReserved = min(size, limit), r.treeBytes > 0
			// slices.Grow may take a quarter more. A tree takes far more memory than its JSON, whose length is unknown.
			if r.treeBytes == 0 && r.reserved > cap(r.dst) {
				r.dst = append(make([]byte, 0, r.reserved), r.dst...)
			}
			r.threshold = min(n+yieldBytes, r.reserved)
			return false
		}
	}
	r.overflowed = true
	r.errs, r.first = err.AppendJSON(nil), err
	if r.cache.limitHit != nil {
		r.cache.limitHit(r.ctx, err.Limit)
	}
	return true
}

// freeTree is called when the tree of a host's field is garbage. It reduces the reservation to the response, because
// the query may wait for the Backend from now on.
func (r *run) freeTree() {
	if r.treeReserved {
		r.treeReserved, r.reserved = false, min(r.reserved, cap(r.dst))
		r.threshold = min(r.threshold, r.reserved)
		_ = r.Reservation.Resize(r.reserved)
	}
	r.treeBytes = 0
}
