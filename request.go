package chaingql

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/graphql-go/handler"

	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/strictjson"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A request is a decoded GraphQL request. Query may be empty if hash names a persisted document.
type request struct {
	handler.RequestOptions
	hash  string // SHA-256 that the client sent, in lower-case hex; "none" for a documentId in another form
	trace Trace  // from the extensions of the request
}

// accept authorizes the client, receives the request, takes work and prepares the operation. If it returns no
// operation, it has sent the errors. It is separate from serveOperation so that the stack stays small while the query
// runs: if a request needs more than 8 KiB, the runtime copies the stack to a larger one, and the next garbage
// collection copies it back.
func (h *Handler) accept(
	w http.ResponseWriter, r *http.Request, began time.Duration, media string, x *requestState, work *slot,
) (context.Context, *plan.Bound) {
	ctx, project, refused := h.authorize(r, work)
	if refused != nil {
		h.states.Put(x)
		h.writeErrorUnread(w, r, refused)
		return nil, nil
	}
	if refused := h.receive(w, r, began, x, work); refused != nil {
		h.writeError(w, r, refused)
		return nil, nil
	}
	size := len(r.URL.RawQuery)
	if gqlhttp.HasBody(r) { // otherwise x has the body of an earlier request
		size = max(size, len(x.body))
	}
	prepare := func(compiled bool) (prepared, *httpError) { return h.prepareHTTP(ctx, r, x, size, compiled) }
	p, refused := h.preparing.run(r.Context(), size, false, prepare)
	if refused != nil {
		work.leave() // the client may read the response slowly
		h.writeError(w, r, refused)
		return nil, nil
	}
	x.forgetBody() // the body may contain variables that the operation does not use
	if p.errs != nil {
		h.writeDocumentErrors(w, r, media, p.errs, work)
		return nil, nil
	}
	x.call.by = caller{cmp.Or(transportOf[media], TransportHTTP), project, p.trace, r.Header}
	return ctx, p.op
}

// receive reads the body of a POST or QUERY into x, and then takes work, a slot of Limits.Requests. If it returns an
// error, no slot is taken.
func (h *Handler) receive(
	w http.ResponseWriter, r *http.Request, began time.Duration, x *requestState, work *slot,
) *httpError {
	if gqlhttp.HasBody(r) {
		if refused := h.readBody(w, r, began, x, work.reserved); refused != nil {
			gqlhttp.CloseUnread(w, r)
			return refused
		}
	} else if max := h.opts.Limits.BodyBytes; max > 0 && len(r.URL.RawQuery) > max {
		return tooLarge(statusURLTooLarge, "URL's query", max)
	}
	// The slot is taken before the preparation, because a request that waits for it keeps its body in memory.
	return work.take()
}

// A small body has at most maxSmallBody bytes. If the budget of bodies is full, it counts as if it had begun to arrive
// later by smallBodyLead than a large one.
const (
	maxSmallBody  = 16 << 10
	smallBodyLead = time.Second
)

// readBody reads a body within BodyBytes and BodyTimeout. If the budget of bodies is full, the requests whose bodies
// began to arrive first are refused, but small ones a second later than large ones: otherwise a hundred large bodies
// per second would have all others refused that take longer than some tenths of a second. Before all others, clients
// with many bodies have theirs refused. If reserved is set, the reserve of the request counts a small body.
func (h *Handler) readBody(
	w http.ResponseWriter, r *http.Request, began time.Duration, x *requestState, reserved bool,
) *httpError {
	json, plain := gqlhttp.IsJSON(r.Header)
	if !json {
		return newHTTPError(statusContentType, codeUnsupportedMedia,
			"The body must be application/json in UTF-8.")
	}
	if !plain {
		return newHTTPError(statusContentType, codeUnsupportedMedia, "The body must not be compressed.")
	}
	limit := h.opts.Limits.BodyBytes
	if limit > 0 && r.ContentLength > int64(limit) {
		return tooLarge(statusBodyTooLarge, "body", limit)
	}
	size := 512
	if reserved = reserved && 0 <= r.ContentLength && r.ContentLength < reservedBytes; reserved {
		size = max(size, int(r.ContentLength)+1) // one more, so that reading does not enlarge it
	}
	x.body = slices.Grow(x.body[:0], size)
	if reserved = reserved && cap(x.body) <= reservedBytes; !reserved {
		x.incoming.Owner, x.incoming.w, x.incoming.UpTo = &x.incoming, w, began
		if 0 <= r.ContentLength && r.ContentLength <= maxSmallBody {
			x.incoming.UpTo += smallBodyLead
		}
		if h.bodies.Used() > h.opts.Limits.PendingBodyBytes/8 { // otherwise few will be refused
			client := h.peers.enter(r.RemoteAddr)
			defer h.peers.leave(client)
			x.incoming.Client = &client.bodies
		}
		if !h.bodies.AddEvictable(&x.incoming.Reservation, max(bodyBytes, cap(x.body)), 0) {
			h.bodies.Free(&x.incoming.Reservation)
			return tooManyBodies()
		}
	}
	ended, err := h.readCounted(r, x, reserved)
	switch {
	case ended:
		return tooManyBodies()
	case errors.Is(err, gqlhttp.ErrBodyTooLarge):
		return tooLarge(statusBodyTooLarge, "body", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		no := newHTTPError(statusBodyTimeout, codeTimeout, "The request body did not arrive in time.")
		no.Limit = "BodyTimeout"
		return no
	case err != nil:
		return unreadable("The body could not be read.")
	}
	return nil
}

// readCounted reads a body and then frees its bytes in the budget, even if a reader of the host panics. ended reports
// whether the budget has evicted the body. A reserved body is counted only if it exceeds its Content-Length.
func (h *Handler) readCounted(r *http.Request, x *requestState, reserved bool) (ended bool, err error) {
	defer func() {
		if !reserved || x.incoming.Bytes() > 0 {
			ended = !h.bodies.Free(&x.incoming.Reservation)
		}
	}()
	grow := func(more int) bool { return h.bodies.Add(&x.incoming.Reservation, more, 0) }
	x.body, err = gqlhttp.ReadBody(x.body, r.Body, h.opts.Limits.BodyBytes, grow)
	return ended, err
}

// boundBody sets the deadline for reading the body of a request that began at a time on the xsync.Clock. It also ends
// the connection after a request that has a body but neither the method POST nor QUERY, because such a body is not
// read.
func (h *Handler) boundBody(w http.ResponseWriter, r *http.Request, began time.Duration) {
	// In HTTP/2, a request with a Content-Length of 0 may still send a body, or never end.
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 && r.ProtoMajor == 1 {
		return
	}
	if !gqlhttp.HasBody(r) {
		gqlhttp.CloseUnread(w, r)
	}
	if d := h.opts.Limits.BodyTimeout; d > 0 {
		// If the ResponseWriter does not support deadlines, the host must bound the time for the body.
		_ = http.NewResponseController(w).SetReadDeadline(xsync.Time(xsync.After(began, d)))
	}
}

// decodeRequest parses the JSON object in the body of a request, or in the payload of a socket's start message.
func decodeRequest(body []byte, depth int) (*request, *httpError) {
	v, err := strictjson.Read(body, depth)
	if err != nil {
		return nil, notJSON("The body", err, depth)
	}
	fields, ok := v.(map[string]any)
	if !ok {
		if _, batch := v.([]any); batch {
			return nil, badRequest("Batches are not served: send one operation at a time.")
		}
		return nil, badRequest("The body must be a JSON object.")
	}
	return requestOf(fields)
}

func requestOf(fields map[string]any) (*request, *httpError) {
	var opts request
	var ok bool
	if opts.Query, ok = fields["query"].(string); !ok && fields["query"] != nil {
		return nil, badRequest(`"query" must be a string.`)
	}
	if opts.OperationName, ok = fields["operationName"].(string); !ok && fields["operationName"] != nil {
		return nil, badRequest(`"operationName" must be a string.`)
	}
	if opts.Variables, ok = fields["variables"].(map[string]any); !ok && fields["variables"] != nil {
		return nil, badRequest(`"variables" must be an object.`)
	}
	extensions, ok := fields["extensions"].(map[string]any)
	if !ok && fields["extensions"] != nil {
		return nil, badRequest(`"extensions" must be an object.`)
	}
	var refused *httpError
	if opts.hash, refused = persistedHash(extensions); refused != nil {
		return nil, refused
	}
	if opts.Query == "" {
		if refused = opts.identify(fields["documentId"]); refused != nil {
			return nil, refused
		}
	}
	opts.trace = traceOfFields(extensions)
	if opts.Query == "" && opts.hash == "" {
		return nil, badRequest("Must provide query string.")
	}
	return &opts, nil
}

// identify sets the hash of a request without a query to the one in its documentId, if it has one (GraphQL over HTTP,
// appendix on persisted documents). An identifier of another form than sha256:<hex> names no document.
func (r *request) identify(documentID any) *httpError {
	id, ok := documentID.(string)
	hash, _ := strings.CutPrefix(id, "sha256:")
	switch {
	case !ok && documentID != nil:
		return badRequest(`"documentId" must be a string.`)
	case id == "":
		return nil
	case hash == id, hash == "":
		hash = "none"
	}
	if r.hash != "" && r.hash != hash {
		return badRequest(`"documentId" and "extensions.persistedQuery" name different documents.`)
	}
	r.hash = hash
	return nil
}

// persistedHash returns the hash in extensions.persistedQuery, if there is one.
func persistedHash(extensions map[string]any) (string, *httpError) {
	if extensions["persistedQuery"] == nil {
		return "", nil
	}
	p, ok := extensions["persistedQuery"].(map[string]any)
	if !ok {
		return "", badRequest(`"extensions.persistedQuery" must be an object.`)
	}
	if v := p["version"]; v != json.Number("1") && v != "1" {
		return "", badRequest("Unsupported persisted query version.")
	}
	hash, _ := p["sha256Hash"].(string)
	hash = strings.ToLower(hash)
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "", badRequest(`"extensions.persistedQuery.sha256Hash" must be 64 hex digits.`)
	}
	return hash, nil
}

// maxPath is the maximum number of bytes of the path and the host of a request. A socket has them in memory up to four
// times, for example for the project, and a response repeats them for each alias of info.endpoints.
const maxPath = 512

// endpoint returns host and path of a request, as in info.endpoints.
func endpoint(r *http.Request) string { return r.Host + gqlhttp.Path(r) }

// maxParameters is the maximum number of parameters in the query string of a GET. Five have a meaning, and parsing the
// others takes memory for each of them.
const maxParameters = 64

// decodeURL parses the query string of a GET.
func decodeURL(query string, depth int) (*request, *httpError) {
	if strings.Count(query, "&") >= maxParameters {
		return nil, badRequest(fmt.Sprintf("The URL's query has more than %d parameters.", maxParameters))
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, unreadable("The URL's query is malformed.")
	}
	fields := map[string]any{}
	for _, name := range []string{"query", "documentId", "operationName", "variables", "extensions"} {
		given := values[name]
		if len(given) > 1 {
			return nil, badRequest("Duplicate parameter " + name + ".")
		}
		if len(given) == 0 {
			continue
		}
		fields[name] = given[0]
		if name == "variables" || name == "extensions" {
			fields[name] = nil
			if given[0] == "" {
				continue
			}
			if fields[name], err = strictjson.Read([]byte(given[0]), depth); err != nil {
				return nil, notJSON("Parameter "+name, err, depth)
			}
		}
	}
	return requestOf(fields)
}

// forget drops everything in x except buffers of moderate size.
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
