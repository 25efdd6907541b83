package plan

import (
	"math"
	"runtime"
	"slices"
)

// limit is the most bytes that an answer's data may have.
func (b *Bound) limit() int {
	if n := b.cache.limits.Answer; n > 0 {
		return n
	}
	return math.MaxInt / 4 // so that it can be doubled
}

// A Room is asked for memory while an answer grows.
type Room interface {
	// Grow makes room for an answer of n bytes. Its error ends the run: the
	// answer then has no data, and that error alone.
	Grow(n int) *Error
}

const (
	// firstRoom is the size in bytes of answers for which no Room is asked.
	firstRoom = 8 << 10

	// stretch is the size in bytes of the parts after which a run lets others use
	// the processor. To produce that much takes a tenth of a millisecond.
	stretch = 16 << 10
)

// full reports whether the answer has no room left.
func (r *run) full() bool { return len(r.dst) > r.most && r.overflow(len(r.dst)) }

// overflow asks for room for an answer of n bytes, up to the limit. If there is
// none, it reports so, once in the answer's errors. Then there is no data: half of
// it would look like all of it.
//
// Go interrupts a goroutine only after 10 ms, and large answers take less. If
// hundreds of them are produced at once, each turn of a small query would come
// after all of them.
func (r *run) overflow(n int) bool {
	if r.over {
		return true
	}
	var err *Error
	switch limit := r.start + r.limit(); {
	case n > limit:
		err = limitError("AnswerBytes", nil, "The answer exceeds the limit of %d bytes.", r.cache.limits.Answer)
	case n <= r.room:
		runtime.Gosched()
		r.most = min(n+stretch, r.room)
		return false
	default:
		if err = r.Room.Grow(2 * n); err == nil {
			r.room = min(2*n, limit)
			r.dst = slices.Grow(r.dst, r.room-n)
			r.most = min(n+stretch, r.room)
			return false
		}
	}
	r.over = true
	r.errs = err.AppendJSON(nil)
	if r.cache.over != nil {
		r.cache.over(r.ctx, err.Limit)
	}
	return true
}
