package plan

import (
	"math"
	"runtime"
	"slices"
)

// maxBytes returns the maximum length of a response's data.
func (b *Bound) maxBytes() int {
	if n := b.cache.limits.Answer; n > 0 {
		return n
	}
	return math.MaxInt / 4 // so that it can be doubled
}

// A Reservation is the memory that is reserved for a response. It grows with it.
type Reservation interface {
	// Grow reserves memory for a response of n bytes. Its error ends the run: the
	// response then consists of this error, without data.
	Grow(n int) *Error
}

const (
	// unreservedBytes is the length up to which responses need no reservation.
	unreservedBytes = 8 << 10

	// A run yields the processor each time it has appended yieldBytes, which takes a
	// tenth of a millisecond.
	yieldBytes = 16 << 10

	// It also yields after yieldFields: empty objects and null fields take few bytes.
	yieldFields = 512
)

// step counts appended fields and yields the processor after yieldFields.
func (r *run) step(fields int) {
	if r.steps += fields; r.steps > yieldFields {
		r.steps = 0
		runtime.Gosched()
	}
}

// full reports whether the response exceeds what it may take.
func (r *run) full() bool { return len(r.dst) > r.threshold && r.overflow(len(r.dst)) }

// overflow reserves memory for a response of n bytes, within the limit. If there is
// none, it reports true and the response consists of that error alone: partial data
// would look complete.
//
// It also yields the processor. Go preempts a goroutine only after 10 ms, and large
// responses take less. If hundreds of them are produced at once, a small query would
// wait for all of them each time it needs the processor.
func (r *run) overflow(n int) bool {
	if r.overflowed {
		return true
	}
	var err *Error
	switch limit := r.dataStart + r.maxBytes(); {
	case n > limit:
		err = limitError("ResponseBytes", nil, "The answer exceeds the limit of %d bytes.", r.cache.limits.Answer)
	case n <= r.reserved:
		runtime.Gosched()
		r.threshold = min(n+yieldBytes, r.reserved)
		return false
	default:
		if err = r.Reservation.Grow(2 * n); err == nil {
			r.reserved = min(2*n, limit)
			r.dst = slices.Grow(r.dst, r.reserved-n)
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
