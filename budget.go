package chaingql

import (
	"container/heap"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	// freeBytes is the memory that a request may use before it is counted, and the most that a write to a client
	// which does not read can keep.
	freeBytes = 16 << 10

	// smallBytes is the maximum size of responses that may use the last eighth of a budget. A page of 50 blocks with
	// all fields takes half of it.
	smallBytes = 64 << 10

	// leastRate is the number of bytes per second that a client must take or send to avoid falling behind.
	leastRate = 256 << 10

	// stalledAfter is how far a response must be behind before a new HTTP request may end it.
	stalledAfter = time.Second

	// smallPatience divides stalledAfter for small responses. No machine produces a whole budget of responses in that
	// time.
	smallPatience = 10
)

// A budget bounds the bytes that are kept for clients. When it is full, it ends the holds that are furthest behind. A
// hold is behind by the time since it began, less the time that its bytes would have taken at leastRate. So a client
// that takes a little now and then falls behind like one that takes nothing.
type budget struct {
	limit int // bytes; 0 means no limit

	mu    sync.Mutex
	used  int
	holds holds     // those that may be ended
	ended sync.Cond // a call of end has returned
}

// A hold is the share of one body, response or socket in a budget. The zero value holds nothing. The budget's mu
// guards its fields, except for owner and large.
type hold struct {
	owner ender // set before the hold is listed
	large bool  // it belongs to a response of more than smallBytes; set before the hold is listed

	bytes  int
	upTo   time.Duration // on the xsync.Clock; until then its client has kept leastRate
	place  int           // index in holds plus 1; 0 if it is not listed
	ending bool          // owner.end is running
	over   bool          // it was ended and counts no bytes any more
}

// An ender releases the resource of a hold. The budget calls end at most once, never after free has returned, and
// without holding a lock. It must not block.
type ender interface{ end() }

func newBudget(limit int) *budget {
	b := &budget{limit: limit}
	b.ended.L = &b.mu
	return b
}

// add counts n more bytes for o; n may be negative. If there is no room, add ends the holds that are furthest behind,
// o included, but none that is behind by less than patience. It returns false, and counts nothing, if that was not
// enough or if o has been ended. Responses of more than smallBytes leave the last eighth of the budget to others.
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
		b.remove(o) // ending it would free nothing
	}
	return true
}

// addListed is add, and allows the budget to end o from now on.
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

// move frees a hold that is not listed, counts n bytes for another, and allows the budget to end that. The first hold
// counted most of these bytes, so they are not refused: if there is no room, holds that are further behind are ended.
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

// progress records that the client has taken n bytes.
func (b *budget) progress(o *hold, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.place > 0 {
		o.upTo = min(xsync.Clock(0), o.upTo+time.Duration(n)*time.Second/leastRate)
		heap.Fix(&b.holds, o.place-1)
	}
}

// free releases all bytes of o, and reports whether o was not ended. Afterwards o is a zero hold again.
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

// remove removes o from the list. Called with mu held.
func (b *budget) remove(o *hold) { heap.Remove(&b.holds, o.place-1) }

// holds implements [heap.Interface]. Its first hold is the one furthest behind.
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
