package xsync

import (
	"cmp"
	"container/heap"
	"sync"
	"time"
)

const (
	// SmallBytes is the maximum size of a small reservation. Only small reservations may use the last eighth of a
	// Budget.
	SmallBytes = 64 << 10

	// clientShare is the divisor of the Budget for the share of one client.
	clientShare = 8

	// keepUpRate is the number of bytes per second that a client must receive to avoid falling behind.
	keepUpRate = 256 << 10
)

// A Budget bounds the bytes that are kept for clients. When it is full, it evicts the reservations whose clients are
// furthest behind, and ends their owners. The lag of a client is the time since its reservation became evictable, minus
// the time in which a client at keepUpRate would have received the same bytes. So a client that receives a few bytes
// now and then falls behind like a client that receives nothing. Before all others, it evicts the reservations of
// clients that have several and more than their share (clientShare), if the clients are known. The methods of a Budget
// are safe for concurrent use.
type Budget struct {
	limit int // bytes; 0 means no limit

	mu             sync.Mutex
	used           int
	evictable      reservations // the reservations that the Budget may evict
	evictableBytes int          // the bytes that they count
	clients        bool         // one of them had a Client
	endReturned    sync.Cond    // signals that a call of Evictee.Evict has returned
}

// A Reservation counts bytes in a Budget: those of one request, response or connection. The zero value counts none. Its
// owner may set the exported fields until the Reservation becomes evictable.
type Reservation struct {
	// Owner is ended when the Budget evicts the Reservation.
	Owner Evictee

	// Client is the sum of the bytes of all reservations of one client, which the Budget changes, or nil.
	Client *int

	// Large reports that the Reservation will exceed SmallBytes, even if it grows in small steps.
	Large bool

	// UpTo is the time on the Clock up to which the client has kept up. If it is 0 when the Reservation becomes
	// evictable, the Budget reads the Clock. The Budget changes UpTo afterwards.
	UpTo time.Duration

	// The Budget's mu guards these fields.
	bytes   int
	index   int  // index in evictable plus 1; 0 if the Reservation is not evictable
	ending  bool // Owner.Evict is running
	evicted bool // the Budget has evicted the Reservation, which counts no bytes any more
}

// An Evictee is the owner of a Reservation. The Budget calls Evict at most once for each time that it evicts the
// Reservation, never after Free has returned, and without holding a lock. Evict must not block.
type Evictee interface{ Evict() }

// NewBudget returns a Budget of limit bytes. If limit is 0, it has no limit.
func NewBudget(limit int) *Budget {
	b := &Budget{limit: limit}
	b.endReturned.L = &b.mu
	return b
}

// Bytes returns the number of bytes that r counts. The caller must be the owner of r, and r must not be evictable.
func (r *Reservation) Bytes() int { return r.bytes }

// Used returns the number of bytes that all reservations count.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Add counts n more bytes for r; n may be negative. If there is no room, Add evicts reservations, possibly r itself. It
// begins with the client that is furthest behind, and spares clients with a lag below minLag. If that is not enough, or
// r has been evicted, Add returns false and counts nothing. It evicts none if even all others would not make room. If r
// is large or n is more than SmallBytes, Add leaves the last eighth of the Budget free.
func (b *Budget) Add(r *Reservation, n int, minLag time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addLocked(r, n, minLag)
}

func (b *Budget) addLocked(r *Reservation, n int, minLag time.Duration) bool {
	limit := b.limit
	if n > SmallBytes || r.Large {
		limit -= limit / 8
	}
	for !r.evicted && n > 0 && b.limit > 0 && b.used+n > limit {
		others := b.evictableBytes
		if r.index > 0 {
			others -= r.bytes
		}
		if b.used-others+n > limit || minLag > 0 && Clock(0)-b.evictable[0].UpTo < minLag {
			return false
		}
		b.evict(b.victim())
	}
	if r.evicted {
		return false
	}
	b.count(r, n)
	if r.index > 0 && r.bytes == 0 {
		b.remove(r) // evicting r would free nothing
	}
	return true
}

// victim returns the reservation to evict next. There must be one. If clients are known, victim examines all
// reservations. Called with mu held.
func (b *Budget) victim() *Reservation {
	first := b.evictable[0]
	if !b.clients {
		return first
	}
	var greedy *Reservation
	for _, r := range b.evictable {
		if r.Client == nil || *r.Client <= max(b.limit/clientShare, r.bytes) { // one reservation alone may be larger
			continue
		}
		if greedy == nil || r.UpTo < greedy.UpTo {
			greedy = r
		}
	}
	return cmp.Or(greedy, first)
}

// count counts n more bytes for r. Called with mu held.
func (b *Budget) count(r *Reservation, n int) {
	if r.Client != nil {
		*r.Client += n
	}
	r.bytes += n
	b.used += n
	if r.index > 0 {
		b.evictableBytes += n
	}
}

// AddEvictable is like Add. If it returns true, the Budget may evict r from then on.
func (b *Budget) AddEvictable(r *Reservation, n int, minLag time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.addLocked(r, n, minLag) {
		return false
	}
	b.makeEvictable(r)
	return true
}

// AddOrEvict is like AddEvictable without a minimum lag, but if it returns false, r is evicted too. Later calls that
// subtract the n bytes then change nothing.
func (b *Budget) AddOrEvict(r *Reservation, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addLocked(r, n, 0) {
		if n > 0 {
			b.makeEvictable(r)
		}
		return true
	}
	if !r.evicted {
		b.evict(r)
	}
	return false
}

// makeEvictable allows the Budget to evict r. Called with mu held.
func (b *Budget) makeEvictable(r *Reservation) {
	if r.index == 0 {
		if r.UpTo == 0 { // otherwise the owner has read the Clock
			r.UpTo = Clock(0)
		}
		b.clients = b.clients || r.Client != nil
		heap.Push(&b.evictable, r)
		b.evictableBytes += r.bytes
	}
}

// Move frees from, which is not evictable, counts n bytes for to instead, and allows the Budget to evict to. It always
// succeeds, because from already counted most of these bytes. If there is no room, Move evicts reservations whose
// clients are further behind than that of to.
func (b *Budget) Move(from, to *Reservation, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(from, -from.bytes)
	if to.evicted || n == 0 {
		return
	}
	b.count(to, n)
	b.makeEvictable(to)
	for b.limit > 0 && b.used > b.limit && len(b.evictable) > 0 && b.evictable[0] != to {
		b.evict(b.evictable[0])
	}
}

// Progress records that the client of r has received n bytes.
func (b *Budget) Progress(r *Reservation, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.index > 0 {
		r.UpTo = min(Clock(0), r.UpTo+time.Duration(n)*time.Second/keepUpRate)
		heap.Fix(&b.evictable, r.index-1)
	}
}

// Free releases all bytes of r and resets it. It returns false if the Budget has evicted r.
func (b *Budget) Free(r *Reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r.ending {
		b.endReturned.Wait()
	}
	evicted := r.evicted
	if r.index > 0 {
		b.remove(r)
	}
	b.count(r, -r.bytes)
	r.evicted, r.Large, r.Client = false, false, nil
	return !evicted
}

// evict frees the bytes of r and ends its owner. Called with mu held; evict releases mu while it calls the owner.
func (b *Budget) evict(r *Reservation) {
	if r.index > 0 {
		b.remove(r)
	}
	b.count(r, -r.bytes)
	r.evicted, r.ending = true, true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		r.ending = false
		b.endReturned.Broadcast()
	}()
	r.Owner.Evict()
}

// remove makes r no longer evictable. Called with mu held.
func (b *Budget) remove(r *Reservation) {
	heap.Remove(&b.evictable, r.index-1)
	b.evictableBytes -= r.bytes
	r.UpTo = 0
}

// reservations implements [heap.Interface]. The first one is that of the client that is furthest behind.
type reservations []*Reservation

func (s reservations) Len() int           { return len(s) }
func (s reservations) Less(i, j int) bool { return s[i].UpTo < s[j].UpTo }
func (s reservations) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

func (s *reservations) Push(x any) {
	r := x.(*Reservation)
	*s = append(*s, r)
	r.index = len(*s)
}

func (s *reservations) Pop() any {
	last := len(*s) - 1
	r := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	r.index = 0
	return r
}
