package chaingql

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"runtime"
	"time"

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

// preparations bounds how many requests are decoded and prepared at once, because preparation can take much memory: a
// decoded body can be seventy times as large as its text, and a document hundreds of times its size while it is
// compiled. Most of that memory is garbage when the preparation ends.
//
// There are three kinds of requests: compiled, small and large. At most one request of each kind per processor is
// prepared at once, and fast requests do not wait for slow ones. Requests whose documents are already compiled take
// microseconds, so over HTTP they need no slot. A document of 1.5 kB can take milliseconds to compile, and a body of
// 16 KiB a millisecond to decode. A document that a client names by its hash can take as long if its @skip and @include
// have new values. Large requests take ten times as long as small ones.
//
// Except for large ones, messages on sockets have slots of their own, because there may be far more of them.
type preparations struct {
	small, large *xsync.Lane
	messages     struct{ compiled, small *xsync.Lane }
}

// preparationPatience is how long a request waits for a slot: all clients may reconnect at once.
const preparationPatience = 5 * time.Second

// The shares of Limits.Requests for requests that take long, in sixteenths. An eighth of the limit is left to queries
// whose documents are compiled and that need no Backend call: otherwise the others could have all of them refused. Most
// is for the Backend, because it is slower than preparation, and one socket may send 32 queries: of the 48 Requests
// of a small process, 33 may call it or wait.
const (
	smallShare   = 2 // small requests that are prepared
	largeShare   = 1 // large ones
	backendShare = 8 // queries that wait for the Backend
	placeShare   = 3 // queries that wait for a place in backendShare
)

// shareOf returns a share of Limits.Requests, which is at least one request. 0 means no limit.
func shareOf(requests, sixteenths int) int { return min(requests, max(requests*sixteenths/16, 1)) }

// newPreparations returns the preparations of a Handler with the given Limits.Requests.
func newPreparations(requests int) (p preparations) {
	newLane := func(callers int) *xsync.Lane {
		return xsync.NewLane(runtime.GOMAXPROCS(0), callers, preparationPatience)
	}
	p.small, p.large = newLane(shareOf(requests, smallShare)), newLane(shareOf(requests, largeShare))
	p.messages.compiled, p.messages.small = newLane(0), newLane(0)
	return p
}

// A prepared request has an operation that is ready to run, or errors. It has neither if the caller wanted only a
// compiled document and there is none.
type prepared struct {
	op    *plan.Bound
	errs  plan.Errors
	trace Trace
}

// run calls prepare for a request of n bytes, in a slot. For a small request, it first calls prepare with compiled set,
// so that prepare only looks for a compiled document. If the lane of the request is full or has no free slot in time,
// run refuses the request. It does nothing for a client that has left meanwhile, so that ctx is done.
func (p *preparations) run(
	ctx context.Context, n int, socket bool, prepare func(compiled bool) (prepared, *httpError),
) (prepared, *httpError) {
	if n > freeBytes {
		return inSlot(ctx, p.large, false, prepare)
	}
	var compiled *xsync.Lane // nil means that no slot is needed
	small := p.small
	if socket {
		compiled, small = p.messages.compiled, p.messages.small
	}
	if n <= reservedBytes || !socket { // decoding a longer message would delay the others
		found, refused := inSlot(ctx, compiled, true, prepare)
		if refused != nil || found.op != nil || found.errs != nil {
			return found, refused
		}
	}
	return inSlot(ctx, small, false, prepare)
}

func inSlot(
	ctx context.Context, l *xsync.Lane, compiled bool, prepare func(compiled bool) (prepared, *httpError),
) (prepared, *httpError) {
	switch {
	case l == nil: // the usual case: this is faster than a deferred call that does nothing
		return prepare(compiled)
	case l.Enter(ctx):
		defer l.Leave()
		return prepare(compiled)
	case ctx.Err() != nil:
		return prepared{}, clientLeft()
	}
	return prepared{}, unavailable(false, "Requests", "requests")
}

// prepareHTTP prepares a request of n bytes that was received. It does not decode a body of the usual form whose
// document is compiled. If compiled is set, it decodes only quick requests.
func (h *Handler) prepareHTTP(
	ctx context.Context, r *http.Request, x *requestState, n int, compiled bool,
) (prepared, *httpError) {
	depth := h.opts.Limits.Depth
	var asked *request
	var refused *httpError
	switch body := gqlhttp.HasBody(r); {
	case body && h.trusted == nil && x.scan.read(x.body, depth):
		if h.plans.Find(&x.bound, x.scan.query, x.scan.operation, x.scan.given) {
			return prepared{op: &x.bound}, nil
		}
		x.scan.release() // otherwise the values would be in memory twice
		if compiled && !x.bound.Subscribes() {
			return prepared{}, nil
		}
		asked, refused = decodeRequest(x.body, depth)
	case compiled && n > quickBytes:
		return prepared{}, nil
	case body:
		asked, refused = decodeRequest(x.body, depth)
	default:
		asked, refused = decodeURL(r.URL.RawQuery, depth)
	}
	if refused != nil {
		return prepared{}, refused
	}
	return h.prepare(ctx, asked, compiled), nil
}

// prepare finds the document of a request, by its text or by its hash (Apollo's persisted queries), and binds its
// variables. If compiled is set, prepare only looks for a compiled document. If there is none, it returns neither an
// operation nor errors.
func (h *Handler) prepare(ctx context.Context, asked *request, compiled bool) prepared {
	text, trace := asked.Query, asked.trace
	if !h.events.traces() {
		trace = Trace{}
	}
	refuse := func(message, code string) prepared {
		return prepared{errs: plan.Errors{{Message: message, Code: code}}, trace: trace}
	}
	if text == "" {
		var found bool
		if h.trusted != nil {
			text, found = h.trusted[asked.hash]
		} else {
			text, found = h.plans.Recall(asked.hash)
		}
		if !found {
			// The message is part of the protocol: clients look for it.
			return refuse("PersistedQueryNotFound", codePersistedNotFound)
		}
	} else if asked.hash != "" && asked.hash != plan.Hash(text) {
		return refuse("provided sha does not match query", codeBadRequest)
	}
	if h.trusted != nil && h.trusted[plan.Hash(text)] == "" {
		return refuse("Only documents that the service knows are served.", codeBadRequest)
	}
	p := prepared{trace: trace}
	if compiled {
		p.op, p.errs = h.plans.PrepareCached(text, asked.OperationName, asked.Variables)
	} else {
		p.op, p.errs = h.plans.Prepare(text, asked.OperationName, asked.Variables)
	}
	for _, err := range p.errs {
		h.events.limit(ctx, err.Limit)
	}
	if p.op != nil && asked.hash != "" && asked.Query != "" && !h.plans.Remember(asked.hash, text, !compiled) {
		return prepared{} // the document is cached only by its fingerprint and must be compiled first
	}
	return p
}

// run executes a query and appends its response to dst.
func (h *Handler) run(ctx context.Context, c *call, dst []byte, out *responseShare) []byte {
	ctx, observed := h.events.begin(ctx, c.op, &c.by)
	c.op.Reservation = out
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
	case (x.call.busy() || x.call.unavailable || out.refused) && codec == nil: // a retry can succeed
		status = statusUnavailable
		w.Header().Set("Retry-After", "1")
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
