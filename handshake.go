package chaingql

import (
	"fmt"
	"net/http"

	"github.com/chaingql/chaingql/internal/gqlhttp"
)

// A socket may keep the URL, the host and the secret of its handshake as long as it is open. The path and the host have
// a limit of their own, because they are in memory up to four times, for example for the project. The headers are kept
// until connection_init if the Authorizer receives them only then. net/http admits a megabyte of them by default.
const (
	maxHandshake        = 8 << 10 // bytes of the URL, the host and the secret
	maxHandshakePath    = 512     // bytes of the path and the host
	maxHandshakeHeaders = 16 << 10
	headerCost          = 64 // bytes that are counted for a header in addition to its name and value
)

// tooLongHandshake returns the response to the handshake of c if it exceeds a limit, and nil otherwise.
func (h *Handler) tooLongHandshake(c Credentials) *httpError {
	r := c.Request
	part, most, status := "", 0, statusURLTooLarge
	switch {
	case len(gqlhttp.Path(r))+len(r.Host) > maxHandshakePath:
		part, most = "Path and host", maxHandshakePath
	case len(r.RequestURI)+len(r.Host)+len(c.Secret) > maxHandshake:
		part, most = "Path, query, host and secret", maxHandshake
	case h.auth != (allowAll{}) && !c.HasSecret && headerBytes(r) > maxHandshakeHeaders:
		part, most, status = "The headers", maxHandshakeHeaders, statusHeadersTooLarge
	default:
		return nil
	}
	return overLimit(status, "", fmt.Sprintf("%s of a handshake exceed the limit of %d bytes.", part, most))
}

func headerBytes(r *http.Request) (n int) {
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + headerCost
		}
	}
	return n
}

// withoutHeaders returns the parts of the handshake that a session keeps after the first decision of the Authorizer. It
// drops the headers, because they can be megabytes and a socket may stay open for a long time.
func withoutHeaders(r *http.Request) *http.Request {
	return &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, RemoteAddr: r.RemoteAddr}
}
