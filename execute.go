package chaingql

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlsse"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A requestState holds the buffers and the state of one request. It is reused for later requests.
type requestState struct {
	number   uint32 // different for each state; selects the reserve, because a processor mostly uses the same states
	body     []byte
	incoming bodyShare // counts body, unless the request is in the reserve
	scan     scan
	bound    plan.Bound
	call     call
}

// The shares of Limits.Requests for requests that take long, in sixteenths. An eighth of the limit is left to queries
// whose documents are compiled and that need no Backend call: otherwise the others could have all of them refused. Most
// is for the Backend, because it is slower than preparation.
const (
	smallShare   = 2  // small requests that are prepared
	largeShare   = 1  // large ones
	backendShare = 11 // queries that wait for the Backend
	manyShare    = 8  // queries for many blocks, until they wait for the Backend
)

// manyBlocks is the number of blocks above which a query counts as one for many. Even if they are in the window, 2,500
// blocks take fifty times as long as a page: a thousand such queries at once would hold all of Limits.Requests.
const manyBlocks = 2 * pageSize

// shareOf returns a share of Limits.Requests, which is at least one request. 0 means no limit.
func shareOf(requests, sixteenths int) int { return min(requests, max(requests*sixteenths/16, 1)) }

// run executes a query and appends its response to dst.
func (h *Handler) run(ctx context.Context, c *call, dst []byte, out *responseShare) []byte {
	ctx, observed := h.events.begin(ctx, c.op, &c.by)
	c.op.Reservation = out
	if c.op.ReturnsMore(manyBlocks) {
		if c.many = h.many; !c.many.enter(&c.inMany, c.remoteAddr(), false) {
			no := unavailable(false, "Requests", "queries for many blocks").Error
			c.refused, c.failed = no, true
			h.events.limit(ctx, no.Limit)
			observed.queryFinished(no)
			return appendErrors(dst, plan.Errors{no})
		}
		defer c.leaveMany()
	}
	dst, err := c.op.Run(ctx, c, dst)
	c.failed = err != nil
	observed.queryFinished(err)
	return dst
}

// runFramed is like run. If codec is not nil, it appends the response in the format of a stream. It is separate from
// execute so that the stack that waits for the client stays small.
func (h *Handler) runFramed(
	ctx context.Context, c *call, dst []byte, out *responseShare, codec *gqlsse.Codec,
) []byte {
	if codec == nil {
		return h.run(ctx, c, dst, out)
	}
	return codec.AppendSuffix(h.run(ctx, c, codec.AppendPrefix(dst), out))
}

// execute runs a query and sends its response. Then it releases x for another request. If execute returns early or
// panics, x is left to the garbage collector, because a write may still use x.
func (h *Handler) execute(
	ctx context.Context, w http.ResponseWriter, r *http.Request,
	op *plan.Bound, media string, x *requestState, work *slot,
) {
	var f *freshness // nil if the response may not be cached
	codec := codecOf(media)
	if r.Method != http.MethodPost && codec == nil {
		f = h.fresh(op, media, x.call.by.project)
		x.call.chain = f.chain
		if final, known := f.known(r.Header); known {
			work.leave()
			h.notModified(w, r, f, final)
			x.forget()
			h.states.Put(x)
			return
		}
	}
	y := h.responseStates.Get().(*responseState)
	out := &y.responseShare
	out.Owner, out.budget, out.minLag, out.reserved = out, h.responses, stalledAfter, work.reserved
	released := false // if true, x and y may belong to another request
	defer func() {    // also if host code panics
		if !released && out.budget != nil {
			h.responses.Free(&out.Reservation)
		}
	}()
	y.buffer = y.buffer[:0]
	if n := cap(x.body) + cap(y.buffer); n > freeBytes {
		out.base = cap(x.body)
		if !h.responses.Add(&out.Reservation, n, out.minLagFor(n)) {
			y.buffer = nil // use a new buffer: this one grew for another response, and the new response may be small
		}
	}
	x.call.request, x.call.op, x.call.final = r, op, f != nil && f.finalTag != ""
	y.buffer = h.runFramed(ctx, &x.call, y.buffer, out, codec)
	work.leave()
	status := statusData
	switch {
	case (x.call.retryable() || out.refused) && codec == nil: // a retry can succeed
		status = statusUnavailable
		gqlhttp.SetRetryAfter(w.Header(), 1)
	case x.call.failed:
		status = statusPartial
	}
	switch {
	case x.call.failed:
		w.Header()["Cache-Control"] = gqlhttp.NoStore
	case f != nil:
		h.recheck(f, op, media, x.call.by.project)
		f.keep(w.Header(), x.call.final, x.call.stored)
	}
	// The client may be slow: keep only the response.
	x.forget()
	text := y.buffer
	y.buffer = nil
	if out.refused {
		text = bytes.Clone(text) // a small error
		out.finish()             // frees the large buffer before the client reads the error
		h.write(w, r, h.statusCode(status, media), media, text)
		return
	}
	var ended bool
	if y.buffer, ended = h.writeCounted(w, r, h.statusCode(status, media), media, text, out); !ended {
		return
	}
	released = true
	h.states.Put(x)
	if cap(y.buffer) <= maxPooled {
		h.responseStates.Put(y)
	}
}

// write sends a response that no budget has counted until now. A small one is never counted.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, media string, body []byte) {
	out := &responseShare{budget: h.responses, minLag: stalledAfter, reserved: true}
	out.Owner = out
	defer func() { // also if the ResponseWriter panics
		if out.budget != nil {
			h.responses.Free(&out.Reservation)
		}
	}()
	h.writeCounted(w, r, status, media, body, out)
}

// writeCounted sends a response, whose bytes count in out until the client has received it or the budget has ended it.
// It returns the memory of the response, and whether nothing uses it any longer.
func (h *Handler) writeCounted(
	w http.ResponseWriter, r *http.Request, status int, media string, body []byte, out *responseShare,
) (room []byte, ended bool) {
	now, n := xsync.Clock(0), len(body)
	if !out.begin(w, body, now) {
		out.finish()
		h.writeError(w, r, noRoom())
		return nil, false
	}
	body = nil // out drops it if the budget ends the response
	out.deadline, out.requests = xsync.WriteDeadlineFrom(now, h.opts.Limits.WriteTimeout, n), h.requests
	h.events.responseCut(r, h.respond(w, r, status, media, n, &out.deadline, out.send))
	room, cut := out.finish()
	if cut {
		h.events.limit(r.Context(), "PendingResponseBytes")
	}
	return room, !cut
}

// respond sends the response to a request, which has n bytes, within the deadline. It returns an error if the
// client did not receive the whole response.
func (h *Handler) respond(
	w http.ResponseWriter, r *http.Request, status int, media string, n int,
	deadline *xsync.WriteDeadline, send func() error,
) error {
	gqlhttp.SetContent(w.Header(), media, n)
	if codec := codecOf(media); codec != nil {
		codec.SetHeader(w.Header())
	}
	err := gqlhttp.Send(w, r, status, deadline, send)
	h.noteTimeout(r, err)
	return err
}

// writeHeader sends a response without a body.
func (h *Handler) writeHeader(w http.ResponseWriter, r *http.Request, status int) {
	deadline := xsync.NewWriteDeadline(h.opts.Limits.WriteTimeout, 0)
	h.noteTimeout(r, gqlhttp.Send(w, r, status, &deadline, func() error { return nil }))
}

// noteTimeout reports that WriteTimeout was hit, if that is why a response was not sent. Any other error means that the
// client has left.
func (h *Handler) noteTimeout(r *http.Request, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		h.events.limit(r.Context(), "WriteTimeout")
	}
}
