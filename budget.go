package chaingql

import (
	"container/heap"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	// freeBytes is the memory that a request may use before it is counted against the budget. It is also the most
	// memory that a blocked write can still hold after the budget has ended its response.
	freeBytes = 16 << 10

	// smallBytes is the maximum size of a small response. Only small responses may use the last eighth of a budget. A
	// page of 50 blocks with all fields takes half of smallBytes.
	smallBytes = 64 << 10

	// leastRate is the number of bytes per second that a client must receive to avoid falling behind.
	leastRate = 256 << 10

	// stalledAfter is how far a client must be behind before a new HTTP response may end the client's response.
	stalledAfter = time.Second

	// smallPatience is the divisor of stalledAfter for new responses that are small. No machine produces responses that
	// fill a whole budget in the resulting time.
	smallPatience = 10
)

// A budget bounds the bytes that are kept for clients. When it is full, it ends the holds that are furthest behind. A
// hold is behind by the time since it began, minus the time that the transferred bytes take at leastRate. So a client
// that takes a few bytes now and then falls behind like a client that takes nothing.
type budget struct {
	limit int // bytes; 0 means no limit

	mu    sync.Mutex
	used  int
	holds holds     // the holds that may be ended
	ended sync.Cond // signals that a call of ender.end has returned
}

// A hold counts the bytes of one body, response or socket in a budget. The zero value counts none. The budget's mu
// guards the fields, except for owner and large.
type hold struct {
	owner ender // set before the hold is listed
	large bool  // the response has more than smallBytes; set before the hold is listed

	bytes  int
	upTo   time.Duration // time on the xsync.Clock up to which the client has kept leastRate
	place  int           // index in holds plus 1; 0 if the hold is not listed
	ending bool          // owner.end is running
	over   bool          // the hold was ended and counts no bytes any more
}

// An ender ends the body, response or connection whose bytes a hold counts. The budget calls end at most once, never
// after free has returned, and without holding a lock. end must not block.
type ender interface{ end() }

func newBudget(limit int) *budget {
	b := &budget{limit: limit}
	b.ended.L = &b.mu
	return b
}

// add counts n more bytes for o; n may be negative. If there is no room, add ends the holds that are furthest behind,
// o included, but no hold that is behind by less than patience. add returns false, and counts nothing, if that was not
// enough or if o has been ended. Responses of more than smallBytes leave the last eighth of the budget to smaller ones.
func (b *budget) add(o *hold, n int, patience time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addLocked(o, n, patience)
}

func (b *budget) addLocked(o *hold, n int, patience time.Duration) bool {
	limit := b.limit
	if n > smallBytes || o.large {
		limit -= limit / 8
	}
	for !o.over && n > 0 && b.limit > 0 && b.used+n > limit {
		if len(b.holds) == 0 || n > limit || patience > 0 && xsync.Clock(0)-b.holds[0].upTo < patience {
			return false
		}
		b.end(b.holds[0])
	}
	if o.over {
		return false
	}
	o.bytes += n
	b.used += n
	if o.place > 0 && o.bytes == 0 {
		b.remove(o) // ending o would free nothing
	}
	return true
}

// addListed is like add. If it returns true, the budget may end o from then on.
func (b *budget) addListed(o *hold, n int, patience time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.addLocked(o, n, patience) {
		return false
	}
	b.list(o)
	return true
}

// list allows the budget to end o. Called with mu held.
func (b *budget) list(o *hold) {
	if o.place == 0 {
		o.upTo = xsync.Clock(0)
		heap.Push(&b.holds, o)
	}
}

// move frees from, which is not listed, counts n bytes for to instead, and allows the budget to end to. move refuses
// nothing, because from counted most of these bytes already. If there is no room, move ends holds that are further
// behind than to.
func (b *budget) move(from, to *hold, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= from.bytes
	from.bytes = 0
	if to.over || n == 0 {
		return
	}
	to.bytes += n
	b.used += n
	b.list(to)
	for b.limit > 0 && b.used > b.limit && len(b.holds) > 0 && b.holds[0] != to {
		b.end(b.holds[0])
	}
}

// progress records that the client of o has received n bytes.
func (b *budget) progress(o *hold, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.place > 0 {
		o.upTo = min(xsync.Clock(0), o.upTo+time.Duration(n)*time.Second/leastRate)
		heap.Fix(&b.holds, o.place-1)
	}
}

// free releases all bytes of o and resets it. It returns false if the budget has ended o.
func (b *budget) free(o *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o.ending {
		b.ended.Wait()
	}
	over := o.over
	if o.place > 0 {
		b.remove(o)
	}
	b.used -= o.bytes
	o.bytes, o.over, o.large = 0, false, false
	return !over
}

// end ends o. Called with mu held; end releases mu while it calls the owner.
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

// remove removes o from the list. Called with mu held.
func (b *budget) remove(o *hold) { heap.Remove(&b.holds, o.place-1) }

// holds implements [heap.Interface]. The first hold is the one that is furthest behind.
type holds []*hold

func (s holds) Len() int           { return len(s) }
func (s holds) Less(i, j int) bool { return s[i].upTo < s[j].upTo }
func (s holds) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i+1, j+1
}

func (s *holds) Push(x any) {
	o := x.(*hold)
	*s = append(*s, o)
	o.place = len(*s)
}

func (s *holds) Pop() any {
	last := len(*s) - 1
	o := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	o.place = 0
	return o
}
