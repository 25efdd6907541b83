package chaingql

import (
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// past is a deadline that ends reads and writes at once.
var past = time.Unix(1, 0)

// bodyBytes is the least that a body in progress counts for.
const bodyBytes = 4 << 10

// A slot is one of Limits.Requests. It is taken while the Authorizer runs and
// while an answer is produced, not while a body arrives or an answer is taken
// by its client.
type slot struct {
	h     *Handler
	taken bool
}

func (s *slot) take() *refusal {
	if ok, _ := s.h.slots.Enter(); !ok {
		return unavailable(false, "Requests", "requests")
	}
	s.taken = true
	return nil
}

// leave does nothing if the slot is not taken.
func (s *slot) leave() {
	if s.taken {
		s.taken = false
		s.h.slots.Leave()
	}
}

// An incoming is the share of a body that arrives in the budget of bodies.
type incoming struct {
	hold
	w http.ResponseWriter
}

// end implements ender. A ResponseWriter that knows no deadlines leaves them to
// the host.
func (i *incoming) end() { _ = http.NewResponseController(i.w).SetReadDeadline(past) }

// An outgoing is the share of one answer in the budget of answers, from the
// beginning of its production until its client has taken it.
type outgoing struct {
	hold
	budget   *budget
	w        http.ResponseWriter // nil if the answer is not written by send
	patience time.Duration       // with answers whose clients fall behind
	base     int                 // bytes that are counted in addition to the answer
	refused  bool                // there was no room

	mu   sync.Mutex
	text []byte // nil after end
	sent int
}

// errNoRoom refuses an answer for which there is no memory.
func errNoRoom() *plan.Error {
	return &plan.Error{Message: "Too many answers at once.", Code: codeUnavailable, Limit: "PendingAnswerBytes"}
}

// Grow implements [plan.Room].
func (o *outgoing) Grow(n int) *plan.Error {
	if !o.refused && o.budget.add(&o.hold, o.base+n-o.bytes, o.patienceFor(o.base+n)) {
		return nil
	}
	o.refused = true
	return errNoRoom()
}

// end implements ender. A write that is under way may stay so: an HTTP/2
// connection that takes nothing holds it up for as long as the host's server
// lets it. So it keeps no more than a piece of the answer.
func (o *outgoing) end() {
	o.mu.Lock()
	o.text = nil
	o.mu.Unlock()
	_ = http.NewResponseController(o.w).SetWriteDeadline(past)
}

// begin makes text the answer. It reports whether there is room for it.
func (o *outgoing) begin(w http.ResponseWriter, text []byte) bool {
	o.w, o.text, o.sent = w, text, 0
	return !o.refused && o.budget.list(&o.hold, cap(text)-o.bytes, o.patienceFor(cap(text)))
}

// patienceFor returns how far other answers must be behind to be ended for one of n
// bytes. Small ones need less: clients that ask for a whole budget of answers in each
// second, and take nothing, could keep it full otherwise.
func (o *outgoing) patienceFor(n int) time.Duration {
	if n <= smallBytes {
		return o.patience / smallPatience
	}
	return o.patience
}

// pieces are buffers for parts of large answers.
var pieces = sync.Pool{New: func() any { return new([freeBytes]byte) }}

// send writes the answer to the client.
func (o *outgoing) send() error {
	o.mu.Lock()
	text := o.text
	o.mu.Unlock()
	if len(text) <= freeBytes {
		_, err := o.w.Write(text)
		return err
	}
	text = nil // a piece at a time, of which end leaves nothing but the piece
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

// take copies the next part of the answer.
func (o *outgoing) take(piece []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text == nil {
		return 0
	}
	n := copy(piece, o.text[o.sent:])
	o.sent += n
	return n
}

// finish frees what is counted, and returns the answer's memory for use by
// another. cut reports that the budget ended the answer.
func (o *outgoing) finish() (room []byte, cut bool) {
	cut = !o.budget.free(&o.hold)
	room = o.text
	*o = outgoing{}
	return room[:0], cut
}

// A stayer is the share of a socket or an event stream in the budget of answers.
type stayer struct {
	hold
	budget *budget
	cut    func() // ends the connection
}

func newStayer(b *budget, cut func()) *stayer {
	s := &stayer{budget: b, cut: cut}
	s.owner = s
	return s
}

// end implements ender.
func (s *stayer) end() { s.cut() }

// add counts n more bytes, which may be negative. It reports false if it has been
// ended, or must end because there is no room even without the others.
func (s *stayer) add(n int) bool {
	if n <= 0 {
		return s.budget.add(&s.hold, n, 0)
	}
	return s.budget.list(&s.hold, n, 0)
}

// A socketAccount is a stayer as gqlws takes it.
type socketAccount struct{ *stayer }

func (a socketAccount) Add(n int) {
	if !a.add(n) && n > 0 {
		a.cut()
	}
}
func (a socketAccount) Progress(n int) { a.budget.progress(&a.hold, n) }
func (a socketAccount) Close()         { a.budget.free(&a.hold) }

// account opens the account of a socket.
func (h *Handler) account(peer gqlws.Session, cut func()) gqlws.Account {
	return socketAccount{newStayer(h.answers, func() {
		cut()
		peer.Limit("PendingAnswerBytes")
	})}
}

// sizeOf estimates an answer from its price: a block with all of its fields takes
// about half a kilobyte.
func sizeOf(c plan.Cost) int { return (c.Blocks + c.Calls) << 9 }
