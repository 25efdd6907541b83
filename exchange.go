package chaingql

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/sse"
)

// An exchange is the room that serving one request takes, to be used again for
// another.
type exchange struct {
	body     []byte
	incoming incoming // of body
	scan     scan
	asked    request
	bound    plan.Bound
	call     call
	answer   []byte
	outgoing outgoing // of answer
}

// maxPooled keeps one large body or answer from being held for ever.
const maxPooled = 256 << 10

// answerTo runs a query and sends its answer. The exchange is over then; one
// that ends otherwise is left to the garbage collector, with those who may still
// look at it.
func (h *Handler) answerTo(ctx context.Context, w http.ResponseWriter, r *http.Request, op *plan.Bound, by asker, media string, x *exchange, work *slot) {
	var f freshness
	cacheable := r.Method != http.MethodPost && media != typeEvents
	if cacheable {
		f = h.fresh(op, media, by.project)
		if final, known := f.known(r.Header); known {
			work.leave()
			notModified(w, f, final)
			h.release(x)
			return
		}
	}
	out := &x.outgoing
	out.owner, out.budget, out.patience = out, h.answers, stalledAfter
	released := false // then x belongs to another request
	defer func() {    // also where foreign code panics
		if !released && out.budget != nil {
			h.answers.free(&out.hold)
		}
	}()
	x.answer = x.answer[:0]
	if n := cap(x.body) + cap(x.answer); n > freeBytes {
		out.base = cap(x.body)
		if !h.answers.add(&out.hold, n, out.patienceFor(n)) {
			x.answer = nil // it has grown for another answer, and this one may be small
		}
	}
	x.call.host, x.call.path, x.call.op, x.call.lasting = r.Host, requestPath(r), op, cacheable
	if media == typeEvents {
		x.answer = append(x.answer, sse.Before...)
	}
	x.answer = h.run(ctx, &x.call, by, x.answer, out)
	if media == typeEvents {
		x.answer = append(x.answer, sse.After...)
	}
	work.leave()
	status := http.StatusOK
	if (x.call.busy || out.refused) && media != typeEvents { // what is missing is worth asking for again
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	switch {
	case x.call.failed:
		w.Header()["Cache-Control"] = noStore
	case cacheable:
		h.recheck(&f, op, media, by.project)
		f.keep(w.Header(), x.call.lasting, x.call.stored)
	}
	// The client may take its time: nothing is kept for it but the answer.
	x.forget()
	text := x.answer
	x.answer = nil
	if out.refused {
		text = bytes.Clone(text) // it has nothing but an error
		out.finish()             // and what has grown is not held until the client has taken that
		h.write(w, r, status, media, text)
		return
	}
	if !out.begin(w, text) {
		text = nil
		out.finish()
		h.refuse(w, r, noRoom())
		return
	}
	n := len(text)
	text = nil
	if err := h.respond(w, r, status, media, n, out.send); err != nil && media == typeEvents {
		h.opts.Logger.InfoContext(r.Context(), "chaingql: answer cut", slog.Any("error", err))
	}
	var cut bool
	if x.answer, cut = out.finish(); cut {
		h.events.limit(r.Context(), "PendingAnswerBytes")
		return
	}
	released = true
	h.release(x)
}

func noRoom() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, Error: errNoRoom(), retry: 1}
}

// forget drops all but the answer, and buffers of moderate size.
func (x *exchange) forget() {
	x.call, x.asked = call{}, request{}
	x.bound.Release()
	x.forgetBody()
}

// forgetBody drops the body, except for a buffer of moderate size, and all that was
// found in it. What is prepared needs neither.
func (x *exchange) forgetBody() {
	x.scan.release()
	if cap(x.body) > freeBytes {
		x.body, x.scan = nil, scan{}
	}
}

// release gives an exchange back.
func (h *Handler) release(x *exchange) {
	if cap(x.body)+cap(x.answer) > maxPooled {
		return
	}
	x.forget()
	h.exchanges.Put(x)
}
