package chaingql

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"runtime"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlsse"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A requestState is the memory for serving one request. It is reused for others.
type requestState struct {
	body     []byte
	incoming bodyShare // of body
	scan     scan
	bound    plan.Bound
	call     call
	response []byte
	outgoing responseShare // of response
}

// maxPooled is the largest total of body and response in bytes that is reused, so that large ones are freed.
const maxPooled = 256 << 10

// preparations bound how many requests are decoded and prepared at once: of each kind, as many as there are
// processors. A decoded body can be seventy times as large as its text, and a document is compiled to hundreds of
// times its size, but most of that is garbage when the preparation ends.
//
// Requests whose documents are compiled already take microseconds and wait for no others. A document of 1.5 kB can take
// milliseconds to compile, and so can one that a client names by its hash if its @skip and @include have new values.
// Large requests take ten times as long as those.
type preparations struct {
	compiled     chan struct{} // semaphore
	small, large lane
}

// A lane prepares requests that must be compiled.
type lane struct {
	slots chan struct{} // semaphore
	queue *xsync.Gate   // of HTTP requests that have a slot or wait for one
}

// minLane is the number of requests that a lane admits, if Limits.Requests is not below it.
const minLane = 16

// newPreparations returns the lanes of a Handler with a limit of requests. Requests that must be compiled leave a
// quarter of the limit to others: otherwise a few kilobytes from clients would have everybody refused.
func newPreparations(requests int) preparations {
	semaphore := func() chan struct{} { return make(chan struct{}, runtime.GOMAXPROCS(0)) }
	share := min(requests, max(requests/8*3, minLane))
	return preparations{semaphore(), lane{semaphore(), xsync.NewGate(share)}, lane{semaphore(), xsync.NewGate(share)}}
}

// A prepared request has an operation that is ready to run, or errors.
type prepared struct {
	op    *plan.Bound
	errs  plan.Errors
	trace Trace
}

// run calls prepare for a request of n bytes when there is a slot for it. First it lets prepare only look for a
// compiled document. If limited, it refuses a request that must be compiled while too many of those wait.
func (p *preparations) run(
	n int, limited bool, prepare func(compiled bool) (prepared, *httpError),
) (prepared, *httpError) {
	to := &p.large
	if n <= freeBytes {
		found, refused := inSlot(p.compiled, func() (prepared, *httpError) { return prepare(true) })
		if refused != nil || found.op != nil || found.errs != nil {
			return found, refused
		}
		to = &p.small
	}
	if limited {
		if ok, _ := to.queue.Enter(); !ok {
			return prepared{}, unavailable(false, "Requests", "requests")
		}
		defer to.queue.Leave()
	}
	return inSlot(to.slots, func() (prepared, *httpError) { return prepare(false) })
}

// inSlot calls prepare when semaphore has a slot. Preparations wait for nothing.
func inSlot(semaphore chan struct{}, prepare func() (prepared, *httpError)) (prepared, *httpError) {
	semaphore <- struct{}{}
	defer func() { <-semaphore }()
	return prepare()
}

// prepareHTTP prepares a request that was received. A usual body whose document is compiled is not decoded.
func (h *Handler) prepareHTTP(
	ctx context.Context, r *http.Request, x *requestState, compiled bool,
) (prepared, *httpError) {
	depth := h.opts.Limits.Depth
	var asked *request
	var refused *httpError
	switch {
	case r.Method != http.MethodPost:
		asked, refused = decodeURL(r.URL.RawQuery, depth)
	case h.trusted == nil && x.scan.read(x.body, depth):
		if h.plans.Find(&x.bound, x.scan.query, x.scan.operation, x.scan.given) {
			return prepared{op: &x.bound}, nil
		}
		x.scan.release() // its values would be there twice
		if compiled && !x.bound.Subscribes() {
			return prepared{}, nil
		}
		fallthrough
	default:
		asked, refused = decodeRequest(x.body, depth)
	}
	if refused != nil {
		return prepared{}, refused
	}
	return h.prepare(ctx, asked, compiled), nil
}

// prepare finds the document of a request, by its text or by its hash (Apollo's persisted queries), and binds its
// variables. If compiled, it only looks for a compiled document, and returns neither an operation nor errors if there
// is none.
func (h *Handler) prepare(ctx context.Context, asked *request, compiled bool) prepared {
	text, trace := asked.Query, asked.trace
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
		p.op = h.plans.PrepareCached(text, asked.OperationName, asked.Variables)
	} else {
		p.op, p.errs = h.plans.Prepare(text, asked.OperationName, asked.Variables)
	}
	for _, err := range p.errs {
		h.events.limit(ctx, err.Limit)
	}
	if p.op != nil && asked.hash != "" && asked.Query != "" && !h.plans.Remember(asked.hash, text, !compiled) {
		return prepared{} // only its shape is known
	}
	return p
}

// run executes a query and appends its response to dst.
func (h *Handler) run(ctx context.Context, c *call, by caller, dst []byte, out *responseShare) []byte {
	ctx, observed := h.events.begin(ctx, c.op, by)
	c.op.Reservation = out
	dst, err := c.op.Run(ctx, c, dst)
	c.failed = err != nil
	observed.queryFinished(err)
	return dst
}

// execute runs a query and sends its response. Then x is free for another request. If execute ends otherwise, x is
// left to the garbage collector, because a write may still use it.
func (h *Handler) execute(
	ctx context.Context, w http.ResponseWriter, r *http.Request,
	op *plan.Bound, by caller, media string, x *requestState, work *slot,
) {
	var f freshness
	cacheable := r.Method != http.MethodPost && media != gqlhttp.EventStream
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
	out.owner, out.budget, out.patience = out, h.responses, stalledAfter
	released := false // then x belongs to another request
	defer func() {    // also if host code panics
		if !released && out.budget != nil {
			h.responses.free(&out.hold)
		}
	}()
	x.response = x.response[:0]
	if n := cap(x.body) + cap(x.response); n > freeBytes {
		out.base = cap(x.body)
		if !h.responses.add(&out.hold, n, out.patienceFor(n)) {
			x.response = nil // it has grown for another response, and this one may be small
		}
	}
	x.call.host, x.call.path, x.call.op, x.call.lasting = r.Host, gqlhttp.Path(r), op, cacheable
	if media == gqlhttp.EventStream {
		x.response = append(x.response, gqlsse.Prefix...)
	}
	x.response = h.run(ctx, &x.call, by, x.response, out)
	if media == gqlhttp.EventStream {
		x.response = append(x.response, gqlsse.Suffix...)
	}
	work.leave()
	status := http.StatusOK
	if (x.call.busy || out.refused) && media != gqlhttp.EventStream { // a retry can succeed
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	switch {
	case x.call.failed:
		w.Header()["Cache-Control"] = gqlhttp.NoStore
	case cacheable:
		h.recheck(&f, op, media, by.project)
		f.keep(w.Header(), x.call.lasting, x.call.stored)
	}
	// The client may be slow: keep only the response.
	x.forget()
	text := x.response
	x.response = nil
	if out.refused {
		text = bytes.Clone(text) // only an error
		out.finish()             // frees the memory that had grown before the client takes the error
		h.write(w, r, status, media, text)
		return
	}
	if !out.begin(w, text) {
		text = nil
		out.finish()
		h.writeError(w, r, noRoom())
		return
	}
	n := len(text)
	text = nil
	if err := h.respond(w, r, status, media, n, out.send); err != nil && media == gqlhttp.EventStream {
		h.opts.Logger.InfoContext(r.Context(), "chaingql: response cut", slog.Any("error", err))
	}
	var cut bool
	if x.response, cut = out.finish(); cut {
		h.events.limit(r.Context(), "PendingResponseBytes")
		return
	}
	released = true
	h.release(x)
}

// write sends a small response, which no budget counts.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, media string, body []byte) {
	_ = h.respond(w, r, status, media, len(body), func() error {
		_, err := w.Write(body)
		return err
	})
}

// respond sends the only response of a request, of n bytes, within Limits.WriteTimeout. An error means that the
// client did not take all of it.
func (h *Handler) respond(
	w http.ResponseWriter, r *http.Request, status int, media string, n int, send func() error,
) error {
	gqlhttp.SetContent(w.Header(), media, n)
	if media == gqlhttp.EventStream {
		gqlsse.SetHeader(w.Header())
	}
	err := gqlhttp.Send(w, r, status, h.opts.Limits.WriteTimeout, send)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		h.events.limit(r.Context(), "WriteTimeout")
	} // any other error means that the client has left
	return err
}

// forget drops everything but the response and buffers of moderate size.
func (x *requestState) forget() {
	x.call = call{}
	x.bound.Release()
	x.forgetBody()
}

// forgetBody drops the body, except for a buffer of moderate size, and the parts found in it. A prepared operation
// needs neither.
func (x *requestState) forgetBody() {
	x.scan.release()
	if cap(x.body)+x.scan.Buffered() > freeBytes {
		x.body, x.scan = nil, scan{}
	}
}

// release makes x available to another request.
func (h *Handler) release(x *requestState) {
	if cap(x.body)+cap(x.response) > maxPooled {
		return
	}
	x.forget()
	h.states.Put(x)
}
