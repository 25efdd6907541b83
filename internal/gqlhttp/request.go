// Package gqlhttp has the rules of HTTP that requests and responses of any GraphQL service follow: bodies, content
// negotiation, CORS and the headers of caches. It knows neither a schema nor a chain.
package gqlhttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Errors of [ReadBody].
var (
	ErrBodyTooLarge = errors.New("body too large")
	ErrBodyRefused  = errors.New("no room for the body")
)

// ReadBody appends the body of r to dst: at most limit bytes, unless limit is 0. It reads the bytes that are there before
// it makes more room, and asks grow for that.
func ReadBody(dst []byte, r io.Reader, limit int, grow func(bytes int) bool) ([]byte, error) {
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case limit > 0 && len(dst) > limit:
			return dst, ErrBodyTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		case len(dst) == cap(dst):
			before := cap(dst)
			dst = slices.Grow(dst, 1)
			if !grow(cap(dst) - before) {
				return dst, ErrBodyRefused
			}
		}
	}
}

// IsJSON reports whether the header says that the body is uncompressed JSON in UTF-8.
func IsJSON(header http.Header) (json, plain bool) {
	encoding := first(header["Content-Encoding"])
	return isJSON(first(header["Content-Type"])), encoding == "" || strings.EqualFold(encoding, "identity")
}

func isJSON(contentType string) bool {
	if len(contentType) > 256 { // parsing more is expensive
		return false
	}
	switch contentType {
	case "application/json", "application/json; charset=utf-8", "application/json;charset=utf-8",
		"application/json; charset=UTF-8":
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(params["charset"])
	return err == nil && media == JSON && (charset == "" || charset == "utf-8")
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// CloseUnread closes the connection after the response if the body of r is not read: net/http would read it to its end,
// however slow, before it sends the response.
func CloseUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// IsUpgrade reports whether r asks for a WebSocket.
func IsUpgrade(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	for _, v := range r.Header["Upgrade"] {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(token), "websocket") {
				return true
			}
		}
	}
	return false
}

// Path returns the path as the client sent it, even if the host's mux has stripped a prefix.
func Path(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") {
		return r.URL.Path
	}
	return path
}
