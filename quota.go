package chaingql

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// The memory of a subscription in addition to its plan, its variables and its filter, in bytes. A test compares the
// counted bytes with the growth of the heap.
const (
	subscriptionBytes = 1536    // with its share of a socket
	hostStreamBytes   = 8 << 10 // for the stack of the goroutine of a host's field
)

// keptShare is the part of SubscriptionBytes, 1/keptShare, that is left to responses about blocks which subscribers
// have not taken. The block log observes it by itself: if a response is gone, it evaluates the block again.
const keptShare = 8

// A subscriptionQuota counts the memory of open subscriptions: there may be far more of them than sockets, each with
// a document and variables of its own.
type subscriptionQuota struct {
	most Limits

	mu    sync.Mutex // guards the fields below
	count int
	bytes int
	plans map[uint64]int // by how many subscriptions each is kept
}

// acquire admits a subscription until forget is called. extra is its memory in bytes in addition to that of op.
func (k *subscriptionQuota) acquire(op *plan.Bound, extra int) (forget func(), err *plan.Error) {
	held := op.MemoryUse()
	if most := k.most.VariableBytes; most > 0 && held.VariablesJSON > most {
		return nil, full("VariableBytes", "The subscription exceeds the limit of %d bytes of variables.", most)
	}
	own := subscriptionBytes + extra + held.Variables + held.Text
	k.mu.Lock()
	defer k.mu.Unlock()
	more := own
	if k.plans[held.Plan] == 0 {
		more += held.Shared
	}
	if most := k.most.Subscriptions; most > 0 && k.count >= most {
		return nil, full("Subscriptions", "There are %d subscriptions already, which is the limit.", most)
	}
	if err := k.add(more); err != nil {
		return nil, err
	}
	k.count++
	k.plans[held.Plan]++
	return func() { k.forget(held, own) }, nil
}

// add counts bytes if there is room for them. Called with k.mu held.
func (k *subscriptionQuota) add(bytes int) *plan.Error {
	if most := k.most.SubscriptionBytes; most > 0 && k.bytes+bytes > most-most/keptShare {
		return full("SubscriptionBytes", "All subscriptions together would exceed the limit of %d bytes.", most)
	}
	k.bytes += bytes
	return nil
}

// reserve counts bytes until they are released.
func (k *subscriptionQuota) reserve(bytes int) *plan.Error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.add(bytes)
}

func (k *subscriptionQuota) release(bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes -= bytes
}

func (k *subscriptionQuota) forget(held plan.MemoryUse, own int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count--
	k.bytes -= own
	if k.plans[held.Plan]--; k.plans[held.Plan] == 0 {
		delete(k.plans, held.Plan)
		k.bytes -= held.Shared
	}
}

func full(limit, format string, most int) *plan.Error {
	return &plan.Error{Message: fmt.Sprintf(format, most), Code: plan.CodeLimit, Limit: limit}
}

// past is a deadline that ends reads and writes in progress.
var past = time.Unix(1, 0)

// bodyBytes is the minimum that an arriving body counts.
const bodyBytes = 4 << 10

// A slot is one of Limits.Requests. It is taken while the Authorizer runs and while a response is produced, but not
// while a body arrives or the client takes the response.
type slot struct {
	h     *Handler
	taken bool
}

func (s *slot) take() *httpError {
	if ok, _ := s.h.slots.Enter(); !ok {
		return unavailable(false, "Requests", "requests")
	}
	s.taken = true
	return nil
}

// leave frees the slot, if it is taken.
func (s *slot) leave() {
	if s.taken {
		s.taken = false
		s.h.slots.Leave()
	}
}

// A bodyShare is the share of an arriving body in the budget of bodies.
type bodyShare struct {
	hold
	w http.ResponseWriter
}

// end implements ender. If the host's ResponseWriter has no deadlines, the body is left to the host.
func (i *bodyShare) end() { _ = http.NewResponseController(i.w).SetReadDeadline(past) }

// A responseShare is the share of one response in the budget of responses, from the start of its production until the
// client has taken it.
type responseShare struct {
	hold
	budget   *budget
	w        http.ResponseWriter // nil if the response is not written by send
	patience time.Duration       // other responses are ended for this one if they are this far behind
	base     int                 // bytes that are counted in addition to the response
	refused  bool                // there was no room

	mu   sync.Mutex
	text []byte // nil after end
	sent int
}

// errNoRoom returns the error for a response for which there is no memory.
func errNoRoom() *plan.Error {
	return &plan.Error{Message: "Too many answers at once.", Code: codeUnavailable, Limit: "PendingResponseBytes"}
}

// Grow implements [plan.Reservation].
func (o *responseShare) Grow(n int) *plan.Error {
	more := o.base + n - o.bytes
	if !o.refused && (more <= 0 || o.add(more, o.base+n)) { // else the buffer of another response is large enough
		return nil
	}
	o.refused = true
	return errNoRoom()
}

// add counts n more bytes of a response of size bytes. A response that grows beyond smallBytes leaves the last eighth
// of the budget to others, even if it grows in small steps.
func (o *responseShare) add(n, size int) bool {
	o.large = size > smallBytes
	return o.budget.add(&o.hold, n, o.patienceFor(size))
}

// end implements ender. A write in progress may not return: an HTTP/2 connection that takes nothing stops it for as
// long as the host's server allows. It keeps only one piece of the response.
func (o *responseShare) end() {
	o.mu.Lock()
	o.text = nil
	o.mu.Unlock()
	_ = http.NewResponseController(o.w).SetWriteDeadline(past)
}

// begin makes text the response, and reports whether there is room for it.
func (o *responseShare) begin(w http.ResponseWriter, text []byte) bool {
	o.w, o.text, o.sent, o.large = w, text, 0, cap(text) > smallBytes
	return !o.refused && o.budget.addListed(&o.hold, cap(text)-o.bytes, o.patienceFor(cap(text)))
}

// patienceFor returns how far other responses must be behind to be ended for one of n bytes. It is less for a small
// one: otherwise clients that request a whole budget of responses each second, and take nothing, could keep the
// budget full.
func (o *responseShare) patienceFor(n int) time.Duration {
	if n <= smallBytes {
		return o.patience / smallPatience
	}
	return o.patience
}

// pieces are buffers for parts of large responses.
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
	text = nil // send pieces: after end, nothing but the current piece is kept
	piece := pieces.Get().(*[freeBytes]byte)
	defer pieces.Put(piece)
	for {
		n := o.take(piece[:])
		if n == 0 {
			return nil
		}
		if _, err := o.w.Write(piece[:n]); err != nil {
			return err
		}
		o.budget.progress(&o.hold, n)
	}
}

// take copies the next part of the response.
func (o *responseShare) take(piece []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text == nil {
		return 0
	}
	n := copy(piece, o.text[o.sent:])
	o.sent += n
	return n
}

// finish frees the counted bytes, and returns the memory of the response for reuse. cut reports that the budget ended
// the response.
func (o *responseShare) finish() (room []byte, cut bool) {
	cut = !o.budget.free(&o.hold)
	room = o.text
	*o = responseShare{}
	return room[:0], cut
}

// A connectionShare is the share of a socket or an event stream in the budget of responses.
type connectionShare struct {
	hold
	budget *budget
	cut    func() // ends the connection
}

func newConnectionShare(b *budget, cut func()) *connectionShare {
	s := &connectionShare{budget: b, cut: cut}
	s.owner = s
	return s
}

// end implements ender.
func (s *connectionShare) end() { s.cut() }

// add counts n more bytes, which may be negative. It returns false if the share was ended, or must end because there
// is no room even without the others.
func (s *connectionShare) add(n int) bool {
	if n <= 0 {
		return s.budget.add(&s.hold, n, 0)
	}
	return s.budget.addListed(&s.hold, n, 0)
}

// A socketAccount adapts a connectionShare to gqlws.
type socketAccount struct{ *connectionShare }

func (a socketAccount) Add(n int) {
	if !a.add(n) && n > 0 {
		a.cut()
	}
}

func (a socketAccount) Progress(n int) { a.budget.progress(&a.hold, n) }

func (a socketAccount) Close() { a.budget.free(&a.hold) }

// account opens the account of a socket.
func (h *Handler) account(peer gqlws.Session, cut func()) gqlws.Account {
	share := newConnectionShare(h.responses, func() {
		cut()
		peer.Limit("PendingResponseBytes")
	})
	if s, ok := peer.(*session); ok {
		s.share = share
	}
	return socketAccount{share}
}

// sizeOf estimates the size of a response from its cost: a block with all fields takes about half a kilobyte.
func sizeOf(c plan.Cost) int { return (c.Blocks + c.Calls) << 9 }
