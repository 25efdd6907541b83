package chaingql

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/graphql-go/handler"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Codes of errors that are not a document's.
const (
	codeBadRequest        = "BAD_REQUEST"
	codeUnauthenticated   = "UNAUTHENTICATED"
	codeMethod            = "METHOD_NOT_ALLOWED"
	codeNotAcceptable     = "NOT_ACCEPTABLE"
	codeUnsupportedMedia  = "UNSUPPORTED_MEDIA_TYPE"
	codeTimeout           = "TIMEOUT"
	codeCursorTooOld      = "CURSOR_TOO_OLD"
	codeStreamGap         = "STREAM_GAP"
	codeUnavailable       = "SERVICE_UNAVAILABLE"
	codeRateLimited       = "RATE_LIMITED"
	codePersistedNotFound = "PERSISTED_QUERY_NOT_FOUND"
)

// A refusal is a request that is not run: its HTTP status and its error.
type refusal struct {
	status int
	*plan.Error
	retry int // seconds until it is worth asking again; zero is not told
}

func refuse(status int, code, message string) *refusal {
	return &refusal{status: status, Error: &plan.Error{Message: message, Code: code}}
}

// overLimit refuses what exceeds the limit of a name.
func overLimit(status int, limit, message string) *refusal {
	return &refusal{status: status, Error: &plan.Error{Message: message, Code: plan.CodeLimit, Limit: limit}}
}

// A request is what a client asks for. Its query is empty where hash names a
// document that the service knows.
type request struct {
	handler.RequestOptions
	hash  string // SHA-256 of the query in lower-case hex, where the client gave it
	trace Trace  // in its extensions
	// found is where all of it is instead, if its body was plain.
	found *exchange
}

// readRequest reads what a request asks for, from its body or its URL, in the
// room of an exchange. It returns in the slot and the turn, if it does not refuse.
func (h *Handler) readRequest(
	w http.ResponseWriter, r *http.Request, x *exchange, work *slot, turn *preparation,
) (asked *request, refused *refusal) {
	if r.Method == http.MethodPost {
		if refused := h.readBody(w, r, x); refused != nil {
			closeUnread(w, r)
			return nil, refused
		}
	} else if max := h.opts.Limits.BodyBytes; max > 0 && len(r.URL.RawQuery) > max {
		return nil, tooLarge("URL's query", max)
	}
	// The slot comes first: requests that wait for their turn keep their bodies.
	if refused := work.take(); refused != nil {
		return nil, refused
	}
	turn.begin(max(len(x.body), len(r.URL.RawQuery)))
	depth := h.opts.Limits.Depth
	switch {
	case r.Method != http.MethodPost:
		asked, refused = decodeURL(r.URL.RawQuery, depth)
	case x.scan.read(x.body, depth):
		x.asked.found = x
		asked = &x.asked
	default:
		asked, refused = decodeRequest(x.body, depth)
	}
	if refused != nil { // which the client may take its time to read
		turn.end()
		work.leave()
	}
	return asked, refused
}

// boundBody gives a body the time it has. One that no POST brings is not read.
func (h *Handler) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.Method != http.MethodPost {
		closeUnread(w, r)
	}
	if d := h.opts.Limits.BodyTimeout; d > 0 {
		// A ResponseWriter that knows no deadlines leaves them to the host.
		_ = http.NewResponseController(w).SetReadDeadline(xsync.Deadline(d))
	}
}

// closeUnread has the connection closed behind an answer to a request whose
// body is not read: net/http would read it to its end, however slow, before it
// sends the answer.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// turnAway refuses a request whose body was not read.
func (h *Handler) turnAway(w http.ResponseWriter, r *http.Request, no *refusal) {
	closeUnread(w, r)
	h.refuse(w, r, no)
}

// readBody reads a body whole, within its limits of size and time. If too many
// arrive at once, those that have taken longest are ended.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, x *exchange) *refusal {
	if !isJSON(first(r.Header["Content-Type"])) {
		return refuse(http.StatusUnsupportedMediaType, codeUnsupportedMedia, "The body must be application/json in UTF-8.")
	}
	if encoding := first(r.Header["Content-Encoding"]); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return refuse(http.StatusUnsupportedMediaType, codeUnsupportedMedia, "The body must not be compressed.")
	}
	limit := h.opts.Limits.BodyBytes
	if limit > 0 && r.ContentLength > int64(limit) {
		return tooLarge("body", limit)
	}
	x.body = slices.Grow(x.body[:0], 512)
	x.incoming.owner, x.incoming.w = &x.incoming, w
	if !h.bodies.list(&x.incoming.hold, max(bodyBytes, cap(x.body)), 0) {
		return tooManyBodies()
	}
	var err error
	x.body, err = readAll(x.body, r.Body, limit, func(more int) bool { return h.bodies.add(&x.incoming.hold, more, 0) })
	ended := !h.bodies.free(&x.incoming.hold)
	switch {
	case ended:
		return tooManyBodies()
	case errors.Is(err, errBodyTooLarge):
		return tooLarge("body", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, Error: &plan.Error{Message: "The body did not come in time.", Code: codeTimeout, Limit: "BodyTimeout"}}
	case err != nil:
		return refuse(http.StatusBadRequest, codeBadRequest, "The body could not be read.")
	}
	return nil
}

// first is a header's value.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// isJSON reports whether a body of a type is JSON in UTF-8.
func isJSON(contentType string) bool {
	if len(contentType) > 256 { // to parse more is expensive
		return false
	}
	switch contentType {
	case "application/json", "application/json; charset=utf-8", "application/json;charset=utf-8", "application/json; charset=UTF-8":
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(params["charset"])
	return err == nil && media == "application/json" && (charset == "" || charset == "utf-8")
}

var (
	errBodyTooLarge = errors.New("body too large")
	errBodyEnded    = errors.New("body ended")
)

// readAll appends what a reader has to dst, at most max bytes where that is
// positive. It reads what is there before it makes more room, which grow must
// allow.
func readAll(dst []byte, r io.Reader, max int, grow func(bytes int) bool) ([]byte, error) {
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case max > 0 && len(dst) > max:
			return dst, errBodyTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		case len(dst) == cap(dst):
			before := cap(dst)
			dst = slices.Grow(dst, 1)
			if !grow(cap(dst) - before) {
				return dst, errBodyEnded
			}
		}
	}
}

func tooManyBodies() *refusal {
	no := refuse(http.StatusServiceUnavailable, codeUnavailable, "Too many bodies at once.")
	no.Limit, no.retry = "PendingBodyBytes", 1
	return no
}

func tooLarge(what string, limit int) *refusal {
	return overLimit(http.StatusRequestEntityTooLarge, "BodyBytes", fmt.Sprintf("The %s exceeds the limit of %d bytes.", what, limit))
}

// notJSON says what is wrong with a text that should have been JSON.
func notJSON(what string, err error, depth int) *refusal {
	if errors.Is(err, errTooDeep) {
		return overLimit(http.StatusBadRequest, "Depth", fmt.Sprintf("%s exceeds the limit of %d nested levels.", what, depth))
	}
	return badRequest(what + " is not JSON: " + err.Error() + ".")
}

// decodeRequest reads the JSON object of a body or of a socket's start.
func decodeRequest(body []byte, depth int) (*request, *refusal) {
	v, err := readJSON(body, depth)
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

// decodeURL reads the parameters of a GET.
func decodeURL(query string, depth int) (*request, *refusal) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, badRequest("The URL's query is malformed.")
	}
	fields := map[string]any{}
	for _, name := range []string{"query", "operationName", "variables", "extensions"} {
		given := values[name]
		if len(given) > 1 {
			return nil, badRequest("Parameter " + name + " is there twice.")
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
			if fields[name], err = readJSON([]byte(given[0]), depth); err != nil {
				return nil, notJSON("Parameter "+name, err, depth)
			}
		}
	}
	return requestOf(fields)
}

func requestOf(fields map[string]any) (*request, *refusal) {
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
	var refused *refusal
	if opts.hash, refused = persistedHash(extensions); refused != nil {
		return nil, refused
	}
	opts.trace = traceOfFields(extensions)
	if opts.Query == "" && opts.hash == "" {
		return nil, badRequest("Must provide query string.")
	}
	return &opts, nil
}

func badRequest(message string) *refusal {
	return refuse(http.StatusBadRequest, codeBadRequest, message)
}

// endpoint is where a request reached us, as info.endpoints shows it.
func endpoint(r *http.Request) string { return r.Host + requestPath(r) }

// requestPath is the path that came, whatever the host's mux has stripped of it.
func requestPath(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") {
		return r.URL.Path
	}
	return path
}
