package chaingql

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	// bodyBytes is the minimum number of bytes that are counted for an arriving body.
	bodyBytes = 4 << 10

	// freeBytes is the memory that a request may use before it is counted in a budget. It is also the most memory that
	// a blocked write can still keep after the budget has evicted its response.
	freeBytes = 16 << 10

	// stalledAfter is how far a client must be behind before a new HTTP response may evict the client's response.
	stalledAfter = time.Second

	// smallLagDivisor divides stalledAfter if the new response is small: at most [xsync.SmallBytes], of which a page of
	// 50 blocks with all fields takes half. No machine produces responses that fill a whole budget in the resulting
	// time.
	smallLagDivisor = 10
)

// past is a deadline in the past, which ends reads and writes in progress.
var past = time.Unix(1, 0)

// A bodyShare counts the bytes of an arriving body in the budget of bodies.
type bodyShare struct {
	xsync.Reservation
	w http.ResponseWriter
}

// Evict implements [xsync.Evictee]. If the host's ResponseWriter does not support deadlines, Evict has no effect, and
// the host must bound the time for the body.
func (i *bodyShare) Evict() { _ = http.NewResponseController(i.w).SetReadDeadline(past) }

// A responseShare counts the bytes of one response in the budget of responses, from the start of its production until
// the client has received it.
type responseShare struct {
	xsync.Reservation
	budget   *xsync.Budget
	w        http.ResponseWriter // nil if the response is not written by send
	minLag   time.Duration       // how far other clients must be behind to be cut for this response
	reserved bool                // the request is in a reserve, which counts a small response
	base     int                 // bytes that are counted in addition to the response
	refused  bool                // there was no room for the response
	deadline xsync.WriteDeadline
	requests *xsync.ShardedGate // if it is closed, the deadline is not extended

	mu   sync.Mutex
	text []byte // nil after Evict
	sent int
}

// A responseState holds the buffer of one response. It is reused for later responses. It is not a part of requestState,
// because a request with a slowly arriving body must not keep a buffer that has grown for the response to another one.
type responseState struct {
	buffer []byte
	responseShare
}

// maxPooled is the maximum capacity in bytes of the buffer in a responseState that is reused. A page of 50 blocks with
// all fields needs half of it. A small response must not hold a much larger buffer while its query waits for the
// Backend.
const maxPooled = 32 << 10

// Resize implements [plan.Reservation].
func (o *responseShare) Resize(n int) *plan.Error {
	more := o.base + n - o.Bytes()
	if !o.refused && (more == 0 || o.add(more, n)) { // more is 0 if a reused buffer is large enough
		return nil
	}
	o.refused = true
	return noRoom().Error
}

// add counts n more bytes of a response, whose size is then size. A response that grows beyond SmallBytes may not use
// the last eighth of the budget, even if it grows in small steps.
func (o *responseShare) add(n, size int) bool {
	o.Large = size > xsync.SmallBytes
	return o.budget.Add(&o.Reservation, n, o.minLagFor(size))
}

// Evict implements [xsync.Evictee]. It drops the response and ends a write in progress. If the client of an HTTP/2
// connection reads nothing, the write remains blocked for as long as the host's server allows, but it keeps only one
// piece of the response.
func (o *responseShare) Evict() {
	o.mu.Lock()
	o.text = nil
	o.mu.Unlock()
	_ = http.NewResponseController(o.w).SetWriteDeadline(past)
}

// begin sets the response to text, which the client receives from now on. It reports whether the budget has room. A
// response of at most reservedBytes is sent in any case, because a refusal would need as much memory.
func (o *responseShare) begin(w http.ResponseWriter, text []byte, now time.Duration) bool {
	o.w, o.text, o.sent, o.Large, o.UpTo = w, text, 0, cap(text) > xsync.SmallBytes, now
	if o.reserved = o.reserved && cap(text) <= reservedBytes && o.Bytes() == 0; o.reserved {
		return true
	}
	if o.budget.AddEvictable(&o.Reservation, cap(text)-o.Bytes(), o.minLagFor(cap(text))) {
		return true
	}
	if o.reserved = len(text) <= reservedBytes; o.reserved {
		o.budget.Free(&o.Reservation)
		o.text = bytes.Clone(text) // its buffer may be larger
	}
	return o.reserved
}

// minLagFor returns how far other clients must be behind to be cut for a response of n bytes. For a small response it
// is shorter. Otherwise clients that request a whole budget of responses each second, and read nothing, could keep the
// budget full.
func (o *responseShare) minLagFor(n int) time.Duration {
	if n <= xsync.SmallBytes {
		return o.minLag / smallLagDivisor
	}
	return o.minLag
}

// pieces contains buffers for pieces of large responses.
var pieces = sync.Pool{New: func() any { return new([freeBytes]byte) }}

// send writes the response.
func (o *responseShare) send() error {
	o.mu.Lock()
	text := o.text
	o.mu.Unlock()
	if len(text) <= freeBytes {
		_, err := o.w.Write(text)
		return err
	}
	text = nil // after Evict, only the current piece is kept in memory
	piece := pieces.Get().(*[freeBytes]byte)
	defer pieces.Put(piece)
	for {
		n, ended := o.take(piece[:])
		if ended { // possibly before the last SetWriteDeadline
			_ = http.NewResponseController(o.w).SetWriteDeadline(past)
		}
		if n == 0 {
			return nil
		}
		if _, err := o.w.Write(piece[:n]); err != nil {
			return err
		}
		o.budget.Progress(&o.Reservation, n)
		if !o.requests.Closed() { // otherwise a slow client would delay the end of the process
			o.deadline.Extend()
			gqlhttp.SetWriteDeadline(o.w, &o.deadline)
		}
	}
}

// take copies the next piece of the response. It returns 0 at the end of the response, and if the budget has ended it.
func (o *responseShare) take(piece []byte) (n int, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text == nil {
		return 0, true
	}
	n = copy(piece, o.text[o.sent:])
	o.sent += n
	return n, false
}

// finish frees the counted bytes, and returns the memory of the response for reuse. cut reports that the budget ended
// the response.
func (o *responseShare) finish() (room []byte, cut bool) {
	cut = (!o.reserved || o.Bytes() > 0) && !o.budget.Free(&o.Reservation)
	room = o.text
	*o = responseShare{}
	return room[:0], cut
}

// A connectionShare counts the bytes of a socket or an event stream in the budget of responses.
type connectionShare struct {
	xsync.Reservation
	budget *xsync.Budget
	cut    func() // ends the connection
}

func newConnectionShare(b *xsync.Budget, cut func()) *connectionShare {
	s := &connectionShare{budget: b, cut: cut}
	s.Owner = s
	return s
}

// Evict implements [xsync.Evictee].
func (s *connectionShare) Evict() { s.cut() }

// add counts n more bytes; n may be negative. It returns false if the budget has ended the connection, also if n bytes
// do not fit even after it has ended all others.
func (s *connectionShare) add(n int) bool { return s.budget.AddOrEvict(&s.Reservation, n) }

// A socketAccount adapts a connectionShare to gqlws.
type socketAccount struct {
	*connectionShare
	peer gqlws.Session
}

func (a socketAccount) Add(n int) { a.add(n) }

// Hold implements [gqlws.Account]. Waiting queries are counted apart from the socket, because they are refused if the
// budget evicts them. To make room for them, only clients that are far behind are cut.
func (a socketAccount) Hold(n int, refuse func()) (release func()) {
	waiting := newConnectionShare(a.budget, refuse)
	if !a.budget.AddEvictable(&waiting.Reservation, n, stalledAfter) {
		refuse()
	}
	return func() { a.budget.Free(&waiting.Reservation) }
}

func (a socketAccount) Progress(n int) { a.budget.Progress(&a.Reservation, n) }

// Close implements [gqlws.Account]. If the budget has cut the socket, Close reports the limit.
func (a socketAccount) Close() {
	if !a.budget.Free(&a.Reservation) {
		a.peer.Limit("PendingResponseBytes")
	}
}

// account opens the account of a socket.
func (h *Handler) account(peer gqlws.Session, cut func()) gqlws.Account {
	share := newConnectionShare(h.responses, cut)
	if s, ok := peer.(*session); ok {
		s.share = share
	}
	return socketAccount{share, peer}
}

// sizeOf estimates the size of a response from its cost: a block with all fields takes about half a kilobyte.
func sizeOf(c plan.Cost) int { return (c.Blocks + c.Calls) << 9 }
