package gqlhttp

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Header values that all responses share, to save three allocations per response (see BenchmarkHeader). They must not
// be modified. They have no spare capacity, so that append copies them.
var (
	utf8JSON    = []string{JSON + "; charset=utf-8"}
	utf8GraphQL = []string{GraphQLResponse + "; charset=utf-8"}
	nosniff     = []string{"nosniff"}
	varies      = []string{"Authorization, Accept, Origin"}

	// NoStore is the value of Cache-Control for responses that must not be cached.
	NoStore = []string{"no-store"}
)

// SetVary adds the request headers on which responses depend to those that the host has set in Vary. It joins all of
// them into one line, because nginx 1.22 reads only the last line.
func SetVary(header http.Header) {
	if own := header["Vary"]; len(own) > 0 {
		header["Vary"] = []string{strings.Join(own, ", ") + ", " + varies[0]}
		return
	}
	header["Vary"] = varies
}

// SetContent sets the headers for a body of n bytes. If media is neither JSON nor GraphQLResponse, the caller sets
// Content-Type.
func SetContent(header http.Header, media string, n int) {
	switch media {
	case JSON:
		header["Content-Type"] = utf8JSON
	case GraphQLResponse:
		header["Content-Type"] = utf8GraphQL
	}
	header["Content-Length"], header["X-Content-Type-Options"] = contentLength(n), nosniff
}

// A length is a value of Content-Length.
type length struct {
	n     int
	value [1]string
}

// lengths holds recently used lengths, each at the index that is its remainder. Responses to similar queries often have
// the same length.
var lengths [1 << 10]atomic.Pointer[length]

func contentLength(n int) []string {
	recent := &lengths[n%len(lengths)]
	l := recent.Load()
	if l == nil || l.n != n {
		l = &length{n, [1]string{strconv.Itoa(n)}}
		recent.Store(l)
	}
	return l.value[:]
}

// SetWriteDeadline sets the deadline of w. If the host's ResponseWriter does not support deadlines, the host itself
// must limit the time. net/http removes the deadline when the request is done.
func SetWriteDeadline(w http.ResponseWriter, d *xsync.WriteDeadline) {
	if at, limited := d.Time(); limited {
		_ = http.NewResponseController(w).SetWriteDeadline(at)
	}
}

// Send writes a response and flushes it. The function body writes its body; it may extend the deadline. An error means
// that the client did not receive the whole response. The error wraps os.ErrDeadlineExceeded if the deadline has
// passed.
func Send(w http.ResponseWriter, r *http.Request, status int, d *xsync.WriteDeadline, body func() error) error {
	SetWriteDeadline(w, d)
	w.WriteHeader(status)
	var err error
	if r.Method != http.MethodHead {
		err = body()
	}
	// Flush before the request is counted as done, because the host may end the process as soon as Shutdown returns.
	unsent := http.NewResponseController(w).Flush()
	if err == nil && !errors.Is(unsent, http.ErrNotSupported) {
		err = unsent
	}
	// HTTP/2 reports only a closed stream.
	if r.ProtoMajor > 1 && err != nil && d.Passed() {
		err = fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

// Matches reports whether an If-None-Match header contains the entity tag, by weak comparison (RFC 9110, section
// 13.1.2). An empty tag matches nothing. Nor does "*", because before a query runs, nobody knows whether it has a
// response that may be kept. If the header exceeds maxList, nothing matches.
func Matches(header http.Header, tag string) bool {
	if tag == "" {
		return false
	}
	for _, line := range bounded(header["If-None-Match"]) {
		for known := range strings.SplitSeq(line, ",") {
			if strings.TrimPrefix(strings.TrimSpace(known), "W/") == tag {
				return true
			}
		}
	}
	return false
}
