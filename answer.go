package chaingql

import (
	"errors"
	"math"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/sse"
	"github.com/chaingql/chaingql/internal/xsync"
)

// The media types of answers.
const (
	typeJSON    = "application/json"
	typeGraphQL = "application/graphql-response+json"
	typeEvents  = "text/event-stream"
)

// Values of headers that all answers share, to be set and never written to.
// They have no room behind them, so that whoever adds one gets a copy.
var (
	utf8JSON    = []string{typeJSON + "; charset=utf-8"}
	utf8GraphQL = []string{typeGraphQL + "; charset=utf-8"}
	nosniff     = []string{"nosniff"}
	lengths     = func() (all [1 << 10][1]string) {
		for n := range all {
			all[n][0] = strconv.Itoa(n)
		}
		return all
	}()
)

// contentLength is the value of the header. That of a short answer is shared.
func contentLength(n int) []string {
	if n < len(lengths) {
		return lengths[n][:]
	}
	return []string{strconv.Itoa(n)}
}

const allowedMethods = "GET, HEAD, OPTIONS, POST"

// A wish is what an Accept list says of a media type.
type wish struct {
	q     float64
	place int // in the list, from one; zero where it is not there
}

// maxAccept is the size in bytes up to which Accept headers are read. Browsers
// send less than 300 bytes.
const maxAccept = 4 << 10

// negotiate picks the media type of JSON that the Accept headers like best: of
// those liked equally, the one named first; "" where they want none. A wildcard
// stands for application/json, unless that is refused by name. events says
// whether an event stream is welcome, which must be by name. Headers that are
// too long want nothing.
func negotiate(accept []string) (media string, events bool) {
	if len(accept) == 0 {
		return typeJSON, false
	}
	size := 0
	for _, line := range accept {
		size += len(line)
	}
	if size > maxAccept || len(accept) > maxAccept {
		return "", false
	}
	list := strings.TrimSpace(strings.Join(accept, ","))
	switch list {
	case "", "*/*", typeJSON:
		return typeJSON, false
	}
	wishes := map[string]wish{}
	place := 0
	for part := range strings.SplitSeq(list, ",") {
		place++
		name, q, ok := accepted(part)
		if known := wishes[name]; ok && (known.place == 0 || known.q < q) {
			wishes[name] = wish{q, place}
		}
	}
	json, own, any := wishes[typeJSON], wishes[typeGraphQL], wishes["application/*"]
	if any.place == 0 {
		any = wishes["*/*"]
	}
	switch {
	case json.place == 0:
		json = any
	case json.q == 0 && own.place == 0:
		own = any
	}
	switch {
	case own.q > json.q, own.q == json.q && own.place < json.place:
		media = typeGraphQL
	default:
		media = typeJSON
	}
	if max(own.q, json.q) == 0 {
		media = ""
	}
	return media, wishes[typeEvents].q > 0
}

// accepted reads one item of an Accept list.
func accepted(item string) (name string, q float64, ok bool) {
	name, params, err := mime.ParseMediaType(item)
	if err != nil {
		return "", 0, false
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "", 0, false
	}
	given, weighed := params["q"]
	if !weighed {
		return name, 1, true
	}
	q, err = strconv.ParseFloat(given, 64)
	return name, q, err == nil && q >= 0 && q <= 1
}

// write sends a small answer, which no budget counts.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, media string, body []byte) {
	_ = h.respond(w, r, status, media, len(body), func() error {
		_, err := w.Write(body)
		return err
	})
}

// respond sends an answer of n bytes, at most one per request, within the time
// that a client is given to take it. An error means that the client did not take all of it.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, status int, media string, n int, send func() error) error {
	header := w.Header()
	switch media {
	case typeJSON:
		header["Content-Type"] = utf8JSON
	case typeEvents:
		sse.SetHeader(header)
	default:
		header["Content-Type"] = utf8GraphQL
	}
	header["Content-Length"], header["X-Content-Type-Options"] = contentLength(n), nosniff
	rc := http.NewResponseController(w)
	limit := time.Duration(math.MaxInt64)
	if d := h.opts.Limits.WriteTimeout; d > 0 {
		// A ResponseWriter that knows no deadlines leaves them to the host.
		// net/http lifts this one when the request is done.
		limit = xsync.Clock(d)
		_ = rc.SetWriteDeadline(xsync.Deadline(d))
	}
	w.WriteHeader(status)
	var err error
	if r.Method != http.MethodHead {
		err = send()
	}
	// Sent now, and not once the request is off the books: when Shutdown
	// returns, a host may end the process.
	if unsent := rc.Flush(); err == nil && !errors.Is(unsent, http.ErrNotSupported) {
		err = unsent
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || r.ProtoMajor > 1 && err != nil && xsync.Clock(0) >= limit { // HTTP/2 reports a closed stream
		h.events.limit(r.Context(), "WriteTimeout")
	} // else an error means that the client is gone: nobody is left to tell
	return err
}

// writeErrors answers a request whose document is not run.
func (h *Handler) writeErrors(w http.ResponseWriter, r *http.Request, media string, errs plan.Errors) {
	w.Header()["Cache-Control"] = noStore
	status := http.StatusOK
	if media == typeGraphQL {
		status = http.StatusBadRequest
	}
	h.write(w, r, status, media, appendErrors(nil, errs))
}

// refuse answers a request that is not run.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	h.events.limit(r.Context(), no.Limit)
	if no.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(no.retry))
	}
	w.Header()["Cache-Control"] = noStore
	switch no.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="chaingql", charset="UTF-8"`)
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", allowedMethods)
	}
	h.write(w, r, no.status, typeJSON, appendErrors(nil, plan.Errors{no.Error}))
}

// appendErrors appends an answer that has nothing but errors.
func appendErrors(dst []byte, errs plan.Errors) []byte {
	dst = append(dst, `{"errors":`...)
	return append(errs.AppendJSON(dst), '}')
}
