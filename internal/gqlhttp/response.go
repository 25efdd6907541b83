package gqlhttp

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Header values that all responses share and nobody writes to. They have no spare capacity, so that an append copies
// them. They save three allocations per response (BenchmarkHeader).
var (
	utf8JSON    = []string{JSON + "; charset=utf-8"}
	utf8GraphQL = []string{GraphQLResponse + "; charset=utf-8"}
	nosniff     = []string{"nosniff"}
	varies      = []string{"Authorization, Accept, Origin"}
	lengths     = func() (all [1 << 10][1]string) {
		for n := range all {
			all[n][0] = strconv.Itoa(n)
		}
		return all
	}()

	// NoStore is the value of Cache-Control for responses that must not be kept.
	NoStore = []string{"no-store"}
)

// SetVary names the request headers that responses depend on, in addition to those that the host has named. It leaves
// one line: nginx 1.22 reads only the last.
func SetVary(header http.Header) {
	if own := header["Vary"]; len(own) > 0 {
		header["Vary"] = []string{strings.Join(own, ", ") + ", " + varies[0]}
		return
	}
	header["Vary"] = varies
}

// SetContent sets the headers of a body of n bytes. media is JSON or GraphQLResponse; for others, the caller sets
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

func contentLength(n int) []string {
	if n < len(lengths) {
		return lengths[n][:]
	}
	return []string{strconv.Itoa(n)}
}

// Send writes a response, whose body body writes, and flushes it. The client has timeout to take it; 0 means no limit. An
// error means that it did not take all of it, and wraps os.ErrDeadlineExceeded if the time was over.
func Send(w http.ResponseWriter, r *http.Request, status int, timeout time.Duration, body func() error) error {
	rc := http.NewResponseController(w)
	end := time.Duration(math.MaxInt64)
	if timeout > 0 {
		// If the host's ResponseWriter has no deadlines, they are left to the host. net/http removes this one when the
		// request is done.
		end = xsync.Clock(timeout)
		_ = rc.SetWriteDeadline(xsync.Deadline(timeout))
	}
	w.WriteHeader(status)
	var err error
	if r.Method != http.MethodHead {
		err = body()
	}
	// Flushed here and not after the request has been counted as done: when Shutdown returns, a host may end the process.
	if unsent := rc.Flush(); err == nil && !errors.Is(unsent, http.ErrNotSupported) {
		err = unsent
	}
	if r.ProtoMajor > 1 && err != nil && xsync.Clock(0) >= end { // HTTP/2 reports a closed stream
		err = fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

// Matches reports whether a header If-None-Match has the entity tag, compared weakly (RFC 9110, section 13.1.2).
func Matches(header http.Header, tag string) bool {
	for _, line := range header["If-None-Match"] {
		for known := range strings.SplitSeq(line, ",") {
			if tag != "" && strings.TrimPrefix(strings.TrimSpace(known), "W/") == tag {
				return true
			}
		}
	}
	return false
}
