package chaingql

import (
	"container/heap"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	// freeBytes is the memory that a request may use before it is counted in a budget. It is also the most memory that
	// a blocked write can still keep after the budget has evicted its response.
	freeBytes = 16 << 10

	// smallBytes is the maximum size of a small response. Only small responses may use the last eighth of a budget. A
	// page of 50 blocks with all fields takes half of smallBytes.
	smallBytes = 64 << 10

	// minRate is the number of bytes per second that a client must receive to avoid falling behind.
	minRate = 256 << 10

	// stalledAfter is how far a client must be behind before a new HTTP response may evict the client's response.
	stalledAfter = time.Second

	// smallLagDivisor divides stalledAfter if the new response is small. No machine produces responses that fill a
	// whole budget in the resulting time.
	smallLagDivisor = 10
)

// A budget bounds the bytes that are kept for clients. When it is full, it evicts the reservations whose clients are
// furthest behind, and ends their bodies, responses or connections. The lag of a client is the time since its
// reservation began, minus the time in which a client at minRate would have received the same bytes. So a client that
// receives a few bytes now and then falls behind like a client that receives nothing.
type budget struct {
	limit int // bytes; 0 means no limit

	mu          sync.Mutex
	used        int
	evictable   reservations // the reservations that the budget may evict
	endReturned sync.Cond    // signals that a call of evictee.end has returned
}

// A reservation counts the bytes of one body, response or socket in a budget. The zero value counts none. The budget's
// mu guards the fields, except for owner and large.
type reservation struct {
	owner evictee // set before the reservation becomes evictable
	large bool    // the response has more than smallBytes; set before the reservation becomes evictable

	bytes   int
	upTo    time.Duration // time on the xsync.Clock up to which the client has kept minRate; 0 if not evictable
	index   int           // index in evictable plus 1; 0 if the reservation is not evictable
	ending  bool          // owner.end is running
	evicted bool          // the budget has evicted the reservation, which counts no bytes any more
}

// An evictee is the body, response or connection whose bytes a reservation counts. end ends it when the budget evicts
// the reservation. The budget calls end at most once, never after free has returned, and without holding a lock. end
// must not block.
type evictee interface{ end() }

func newBudget(limit int) *budget {
	b := &budget{limit: limit}
	b.endReturned.L = &b.mu
	return b
}

// add counts n more bytes for o; n may be negative. If there is no room, add evicts reservations, possibly o itself. It
// begins with the client that is furthest behind, and spares clients with a lag below minLag. If that is not enough, or
// o has been evicted, add returns false and counts nothing. Responses of more than smallBytes may not use the last
// eighth of the budget.
func (b *budget) add(o *reservation, n int, minLag time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addLocked(o, n, minLag)
}

func (b *budget) addLocked(o *reservation, n int, minLag time.Duration) bool {
	limit := b.limit
	if n > smallBytes || o.large {
		limit -= limit / 8
	}
	for !o.evicted && n > 0 && b.limit > 0 && b.used+n > limit {
		if len(b.evictable) == 0 || n > limit || minLag > 0 && xsync.Clock(0)-b.evictable[0].upTo < minLag {
			return false
		}
		b.evict(b.evictable[0])
	}
	if o.evicted {
		return false
	}
	o.bytes += n
	b.used += n
	if o.index > 0 && o.bytes == 0 {
		b.remove(o) // ending o would free nothing
	}
	return true
}

// addEvictable is like add. If it returns true, the budget may evict o from then on.
func (b *budget) addEvictable(o *reservation, n int, minLag time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.addLocked(o, n, minLag) {
		return false
	}
	b.makeEvictable(o)
	return true
}

// makeEvictable allows the budget to evict o. Called with mu held.
func (b *budget) makeEvictable(o *reservation) {
	if o.index == 0 {
		if o.upTo == 0 { // otherwise the owner has read the clock
			o.upTo = xsync.Clock(0)
		}
		heap.Push(&b.evictable, o)
	}
}

// move frees from, which is not evictable, counts n bytes for to instead, and allows the budget to evict to. It always
// succeeds, because from already counted most of these bytes. If there is no room, move evicts reservations whose
// clients are further behind than that of to.
func (b *budget) move(from, to *reservation, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= from.bytes
	from.bytes = 0
	if to.evicted || n == 0 {
		return
	}
	to.bytes += n
	b.used += n
	b.makeEvictable(to)
	for b.limit > 0 && b.used > b.limit && len(b.evictable) > 0 && b.evictable[0] != to {
		b.evict(b.evictable[0])
	}
}

// progress records that the client of o has received n bytes.
func (b *budget) progress(o *reservation, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.index > 0 {
		o.upTo = min(xsync.Clock(0), o.upTo+time.Duration(n)*time.Second/minRate)
		heap.Fix(&b.evictable, o.index-1)
	}
}

// free releases all bytes of o and resets it. It returns false if the budget has evicted o.
func (b *budget) free(o *reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o.ending {
		b.endReturned.Wait()
	}
	evicted := o.evicted
	if o.index > 0 {
		b.remove(o)
	}
	b.used -= o.bytes
	o.bytes, o.evicted, o.large = 0, false, false
	return !evicted
}

// evict frees the bytes of o and ends its owner. Called with mu held; evict releases mu while it calls the owner.
func (b *budget) evict(o *reservation) {
	b.remove(o)
	b.used -= o.bytes
	o.bytes, o.evicted, o.ending = 0, true, true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		o.ending = false
		b.endReturned.Broadcast()
	}()
	o.owner.end()
}

// remove makes o no longer evictable. Called with mu held.
func (b *budget) remove(o *reservation) {
	heap.Remove(&b.evictable, o.index-1)
	o.upTo = 0
}

// reservations implements [heap.Interface]. The first one is that of the client that is furthest behind.
type reservations []*reservation

func (s reservations) Len() int           { return len(s) }
func (s reservations) Less(i, j int) bool { return s[i].upTo < s[j].upTo }
func (s reservations) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

func (s *reservations) Push(x any) {
	o := x.(*reservation)
	*s = append(*s, o)
	o.index = len(*s)
}

func (s *reservations) Pop() any {
	last := len(*s) - 1
	o := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	o.index = 0
	return o
}
