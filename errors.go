package chaingql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/strictjson"
	"github.com/chaingql/chaingql/internal/xsync"
)

// These are the error codes in addition to those of package plan.
const (
	codeBadRequest        = "BAD_REQUEST"
	codeUnauthenticated   = "UNAUTHENTICATED"
	codeMethod            = "METHOD_NOT_ALLOWED"
	codeNotAcceptable     = "NOT_ACCEPTABLE"
	codeUnsupportedMedia  = "UNSUPPORTED_MEDIA_TYPE"
	codeTimeout           = "TIMEOUT"
	codeCursorTooOld      = "CURSOR_TOO_OLD"
	codeStreamGap         = "STREAM_GAP"
	codeLookup            = "LOOKUP_NOT_SUPPORTED"
	codeEpochChanged      = "EPOCH_CHANGED"
	codeUnavailable       = "SERVICE_UNAVAILABLE"
	codeRateLimited       = "RATE_LIMITED"
	codePersistedNotFound = "PERSISTED_QUERY_NOT_FOUND"
)

// An httpError is the response to a request that is refused before its operation runs: a status and a GraphQL error.
type httpError struct {
	status status
	*plan.Error
	retry int // value of Retry-After in seconds; 0 means no header
}

// newHTTPError is not inlined, because each copy would enlarge the stack of its caller by 150 bytes, also for requests
// without errors: see [Handler.accept].
//
//go:noinline
func newHTTPError(status status, code, message string) *httpError {
	return &httpError{status: status, Error: &plan.Error{Message: message, Code: code}}
}

// busy returns the error for a request that the client should repeat after a second. limit is the name of the limit
// that was reached, or "".
func busy(limit, message string) *httpError {
	no := newHTTPError(statusUnavailable, codeUnavailable, message)
	no.Limit, no.retry = limit, 1
	return no
}

// overLimit returns the error for a request that exceeds a limit.
func overLimit(status status, limit, message string) *httpError {
	no := newHTTPError(status, plan.CodeLimit, message)
	no.Limit = limit
	return no
}

func badRequest(message string) *httpError {
	return newHTTPError(statusMalformed, codeBadRequest, message)
}

// unreadable returns the error for a request that cannot be parsed.
func unreadable(message string) *httpError {
	return newHTTPError(statusNotJSON, codeBadRequest, message)
}

func tooLarge(status status, what string, limit int) *httpError {
	return overLimit(status, "BodyBytes", fmt.Sprintf("The %s exceeds the limit of %d bytes.", what, limit))
}

func tooManyBodies() *httpError { return busy("PendingBodyBytes", "Too many bodies at once.") }

// notJSON returns the error for text that is not valid JSON.
func notJSON(what string, err error, depth int) *httpError {
	if errors.Is(err, strictjson.ErrDepth) {
		return overLimit(statusMalformed, "Depth",
			fmt.Sprintf("%s exceeds the limit of %d nested levels.", what, depth))
	}
	return unreadable(what + " is not JSON: " + err.Error() + ".")
}

func unauthorized() *httpError {
	return newHTTPError(statusUnauthorized, codeUnauthenticated, "Unauthorized access")
}

// clientLeft returns the error for a client that has left. It can receive the error only if it, or a proxy, has closed
// half of the connection. If the session of a socket has expired, package gqlws sends another error.
func clientLeft() *httpError { return busy("", "The client has left.") }

func shuttingDown() *httpError { return busy("", "Service is shutting down") }

// unavailable returns the error for a request that a gate did not admit, because the gate is closed or its limit is
// reached.
func unavailable(closed bool, limit, what string) *httpError {
	if closed {
		return shuttingDown()
	}
	return busy(limit, "Too many "+what+" at once.")
}

// noFiles returns the error for a socket or stream that is refused because the process may not open many more files.
func noFiles() *httpError {
	return busy("Connections", "The server has no file descriptors left for connections.")
}

// noRoom returns the error for a response for which there is no memory.
func noRoom() *httpError { return busy("PendingResponseBytes", "Too many answers at once.") }

// mask logs err and returns an error for the client that has only the id of the log line. Timeouts and cancellations
// are not logged; the client receives the code TIMEOUT.
func (h *Handler) mask(ctx context.Context, err error) *plan.Error {
	return plan.Mask(h.maskIn).Once(ctx, err)
}

// maskIn is like mask for one of the errors of a request, which the report logs together. It implements [plan.Mask].
func (h *Handler) maskIn(ctx context.Context, err error, report *plan.Report) *plan.Error {
	own, ok := ctx.(*xsync.Timeout) // of a host's field
	if ok && own.Expired() && !errors.Is(err, ErrUnavailable) {
		if own.FirstReport() { // no field nested in that field has reported the timeout
			h.events.limit(own.Parent(), "BackendTimeout")
		}
		return late()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		// The client has left or its credentials have expired: this is not a failure.
		return &plan.Error{Message: "The operation was cancelled.", Code: codeTimeout}
	}
	r, ok := (*report).(*guard.FailureReport)
	if !ok {
		r = h.failures.NewReport()
		*report = r
	}
	code, message, id := plan.CodeInternal, "Internal server error", ""
	if errors.Is(err, ErrUnavailable) {
		code, message = codeUnavailable, "The chain's data is unavailable."
		id = r.Add(ctx, slog.LevelWarn, "chaingql: backend unavailable; the client should retry", err)
	} else {
		id = r.Add(ctx, slog.LevelError, "chaingql: internal error; the client received only its id", err)
	}
	return &plan.Error{Message: message, Code: code, Details: map[string]string{"id": id}}
}

// late returns the error for a Backend call or a host's field that exceeded BackendTimeout.
func late() *plan.Error {
	return &plan.Error{Message: "The backend did not respond in time.", Code: codeTimeout}
}

// recover responds to a request if handling it panicked, in the host's code or in this package. It must be deferred.
func (h *Handler) recover(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p) // net/http handles it by closing the connection
	}
	e := h.mask(context.WithoutCancel(r.Context()), guard.New(p))
	h.writeErrorUnread(w, r, &httpError{status: statusInternal, Error: e})
}

// writeErrorUnread responds to a request without having read its body.
func (h *Handler) writeErrorUnread(w http.ResponseWriter, r *http.Request, no *httpError) {
	gqlhttp.CloseUnread(w, r)
	h.writeError(w, r, no)
}

// writeError responds to a request that is refused before its operation runs.
func (h *Handler) writeError(w http.ResponseWriter, r *http.Request, no *httpError) {
	h.events.limit(r.Context(), no.Limit)
	if no.retry > 0 {
		gqlhttp.SetRetryAfter(w.Header(), no.retry)
	}
	w.Header()["Cache-Control"] = gqlhttp.NoStore
	delete(w.Header(), "Etag") // of a response for which there is no memory
	switch no.status {
	case statusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="chaingql", charset="UTF-8"`)
	case statusMethod:
		gqlhttp.SetAllowed(w.Header())
	case statusContentType:
		w.Header().Set("Accept-Query", gqlhttp.JSON)
	}
	h.write(w, r, h.statusCode(no.status, gqlhttp.JSON), gqlhttp.JSON, appendErrors(nil, plan.Errors{no.Error}))
}

// writeDocumentErrors responds to a request with an invalid document. The response may be large, because an error has a
// location for each field that causes it.
func (h *Handler) writeDocumentErrors(
	w http.ResponseWriter, r *http.Request, media string, errs plan.Errors, work *slot,
) {
	var text []byte
	if codec := codecOf(media); codec != nil {
		text = codec.AppendSuffix(appendErrors(codec.AppendPrefix(nil), errs))
	} else {
		text = appendErrors(nil, errs)
	}
	status := h.statusCode(statusOf(errs), media)
	work.leave() // the client may read the response slowly
	w.Header()["Cache-Control"] = gqlhttp.NoStore
	h.write(w, r, status, media, text)
}

// appendErrors appends a response that has errors and no data.
func appendErrors(dst []byte, errs plan.Errors) []byte {
	dst = append(dst, `{"errors":`...)
	return append(errs.AppendJSON(dst), '}')
}
