package chaingql

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// preparations bounds how many requests are decoded and prepared at once, because preparation can take much memory: a
// decoded body can be seventy times as large as its text, and a document hundreds of times its size while it is
// compiled. Most of that memory is garbage when the preparation ends.
//
// There are three kinds of requests: compiled, small and large. At most one request of each kind per processor is
// prepared at once, and fast requests do not wait for slow ones. Requests whose documents are already compiled take
// microseconds, so over HTTP they need no slot. A document of 1.5 kB can take milliseconds to compile, and a body of
// 16 KiB a millisecond to decode. A document that a client names by its hash can take as long if its @skip and @include
// have new values. Large requests take ten times as long as small ones, and some need 9 MiB meanwhile, so no more than
// maxLarge of them are prepared at once.
//
// Except for large ones, messages on sockets have slots of their own, because there may be far more of them.
type preparations struct {
	small, large *xsync.Lane
	messages     struct{ compiled, small *xsync.Lane }
}

// preparationPatience is how long a request waits for a slot: all clients may reconnect at once.
const preparationPatience = 5 * time.Second

const maxLarge = 8

// newPreparations returns the preparations of a Handler with the given Limits.Requests.
func newPreparations(requests int) (p preparations) {
	processors := runtime.GOMAXPROCS(0)
	newLane := func(callers int) *xsync.Lane { return xsync.NewLane(processors, callers, preparationPatience) }
	p.small = newLane(shareOf(requests, smallShare))
	p.large = xsync.NewLane(min(processors, maxLarge), shareOf(requests, largeShare), preparationPatience)
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
