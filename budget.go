package chaingql

import (
	"sync"
	"time"
)

const (
	// freeBytes is the memory that a request in work may use before it is counted,
	// and the most that a write to a client that does not read can keep alive.
	freeBytes = 16 << 10

	// stalledAfter is how long an answer must have made no progress before a new
	// HTTP request may end it.
	stalledAfter = time.Second
)

// A budget bounds the bytes that are kept for clients. If it is full, it ends
// the holds that have gone longest without progress. All operations take
// constant time.
type budget struct {
	limit int // bytes; 0 means no limit

	mu     sync.Mutex
	used   int
	idlest *hold // the holds that may be ended form a list, in the order of their last progress
	latest *hold
	ended  sync.Cond // a call of end has returned
}

// A hold is the share of one body, answer or socket in a budget. The zero value
// holds nothing. Its fields are guarded by the budget's mu, except for owner.
type hold struct {
	owner ender // set before the hold is listed

	bytes      int
	progressed time.Duration // since began
	prev, next *hold
	listed     bool
	ending     bool // owner.end is running
	over       bool // it was ended and counts no bytes any more
}

// An ender gives up what a hold stands for. The budget calls end at most once,
// not after free has returned, and without holding a lock. It must not block.
type ender interface{ end() }

func newBudget(limit int) *budget {
	b := &budget{limit: limit}
	b.ended.L = &b.mu
	return b
}

// add counts n more bytes, which may be negative, for o. If there is no room, it
// ends other holds, or o itself if o has gone longest without progress, but none
// that made progress within patience. It reports false, and counts nothing, if
// that was not enough or if o has been ended.
//
// Answers that are not small leave the last eighth of the budget to small ones.
func (b *budget) add(o *hold, n int, patience time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addLocked(o, n, patience)
}

func (b *budget) addLocked(o *hold, n int, patience time.Duration) bool {
	limit := b.limit
	if n > freeBytes {
		limit -= limit / 8
	}
	for !o.over && n > 0 && b.limit > 0 && b.used+n > limit {
		idle := b.idlest
		if idle == nil || n > limit || patience > 0 && after(0)-idle.progressed < patience {
			return false
		}
		b.end(idle)
	}
	if o.over {
		return false
	}
	o.bytes += n
	b.used += n
	if o.listed && o.bytes == 0 {
		b.remove(o) // to end it would bring nothing
	}
	return true
}

// list counts n more bytes for o, as add does, and lets the budget end o from
// now on.
func (b *budget) list(o *hold, n int, patience time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.addLocked(o, n, patience) {
		return false
	}
	if !o.listed {
		o.progressed = after(0)
		b.append(o)
	}
	return true
}

// progress notes that the client has taken or sent a part.
func (b *budget) progress(o *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.listed {
		b.remove(o)
		o.progressed = after(0)
		b.append(o)
	}
}

// free releases all bytes of o and reports whether it was not ended. When it
// has returned, o is a zero hold again.
func (b *budget) free(o *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o.ending {
		b.ended.Wait()
	}
	over := o.over
	if o.listed {
		b.remove(o)
	}
	b.used -= o.bytes
	o.bytes, o.over = 0, false
	return !over
}

// end ends a hold. Called with mu held, which it releases meanwhile.
func (b *budget) end(o *hold) {
	b.remove(o)
	b.used -= o.bytes
	o.bytes, o.over, o.ending = 0, true, true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		o.ending = false
		b.ended.Broadcast()
	}()
	o.owner.end()
}

// append and remove are called with mu held.
func (b *budget) append(o *hold) {
	o.listed, o.prev = true, b.latest
	if b.latest == nil {
		b.idlest = o
	} else {
		b.latest.next = o
	}
	b.latest = o
}

func (b *budget) remove(o *hold) {
	if o.prev == nil {
		b.idlest = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		b.latest = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.prev, o.next, o.listed = nil, nil, false
}
