// Package gqlhttp implements the parts of HTTP that every GraphQL service needs: request bodies, content negotiation,
// CORS and cache headers. It knows neither the schema nor the blockchain.
package gqlhttp

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

var (
	// ErrBodyTooLarge is returned by [ReadBody] if the body exceeds the limit.
	ErrBodyTooLarge = errors.New("body too large")
	// ErrBodyRefused is returned by [ReadBody] if grow does not allow more memory.
	ErrBodyRefused = errors.New("no memory left for the body")
)

// ReadBody reads the body r to its end and appends it to dst. If dst then has more than limit bytes, ReadBody returns
// ErrBodyTooLarge; 0 means no limit. Each time that ReadBody enlarges dst, it calls grow with the number of additional
// bytes. If grow returns false, ReadBody returns ErrBodyRefused.
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

// MethodQuery is the method of RFC 10008. A QUERY has a body like a POST, but is safe like a GET, and caches may store
// its response.
const MethodQuery = "QUERY"

// HasBody reports whether the body of r contains the GraphQL request.
func HasBody(r *http.Request) bool { return r.Method == http.MethodPost || r.Method == MethodQuery }

// IsJSON reports whether the header declares that the body is JSON in UTF-8, and whether it declares that the body is
// not compressed.
func IsJSON(header http.Header) (json, plain bool) {
	encoded := slices.ContainsFunc(header["Content-Encoding"], func(encoding string) bool {
		return encoding != "" && !strings.EqualFold(encoding, "identity")
	})
	return isJSON(first(header["Content-Type"])), !encoded
}

func isJSON(contentType string) bool {
	if len(contentType) > 256 { // parsing longer values is expensive
		return false
	}
	switch contentType {
	case "application/json", "application/json; charset=utf-8", "application/json;charset=utf-8",
		"application/json; charset=UTF-8":
		return true
	}
	media, rest := cutMedia(contentType)
	if !equalFold(media, JSON) {
		return false
	}
	var ok bool
	for name, value := range parameters(rest, &ok) {
		if !inUTF8(name, value) {
			return false
		}
	}
	return ok
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// CloseUnread makes net/http close the connection after the response if the body of r has not been read. Otherwise,
// net/http would read the body, no matter how slowly the client sends it, before it sends the response.
func CloseUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// IsUpgrade reports whether r asks for an upgrade to WebSocket.
func IsUpgrade(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	for _, v := range bounded(r.Header["Upgrade"]) {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(token), "websocket") {
				return true
			}
		}
	}
	return false
}

// maxList is the maximum size of a request header that is a list, in bytes. To split a megabyte of commas takes 14 ms.
const maxList = 4 << 10

// bounded returns the lines of a header that is a list, or nil if they exceed maxList.
func bounded(lines []string) []string {
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	if size > maxList {
		return nil
	}
	return lines
}

// Path returns the path as the client sent it, even if the host's mux has stripped a prefix.
func Path(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") {
		return r.URL.Path
	}
	return path
}
