package gqlhttp

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AllowedMethods is the value of the headers Allow and Access-Control-Allow-Methods.
const AllowedMethods = "GET, HEAD, OPTIONS, POST, QUERY"

// Origins lists the web origins whose pages may call the API, or "*" for all origins. Pages from the server's own host
// may always call the API.
type Origins []string

// ValidOrigin reports whether origin is "*" or has the form in which browsers send an origin. For example, an origin
// with a trailing slash would never match.
func ValidOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return origin == "*" ||
		err == nil && u.Scheme != "" && u.Host != "" && strings.EqualFold(u.Scheme+"://"+u.Host, origin)
}

// Allowed reports whether the page that sent r may call the API. A request without an Origin header is allowed,
// because it does not come from a page of another origin.
func (o Origins) Allowed(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(o, "*") || o.listed(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func (o Origins) listed(origin string) bool {
	return slices.ContainsFunc(o, func(known string) bool { return strings.EqualFold(known, origin) })
}

// SetHeader sets Access-Control-Allow-Origin if the page that sent r may read the response. It never allows
// credentials, such as cookies, because pages send their secret in a header that they set themselves.
func (o Origins) SetHeader(h http.Header, r *http.Request) {
	if len(o) == 0 {
		return
	}
	if slices.Contains(o, "*") {
		h.Set("Access-Control-Allow-Origin", "*")
		return
	}
	if origin := r.Header.Get("Origin"); o.listed(origin) {
		h.Set("Access-Control-Allow-Origin", origin)
	}
}

// SetRetryAfter sets Retry-After, which pages of other origins may read.
func SetRetryAfter(h http.Header, seconds int) {
	h.Set("Retry-After", strconv.Itoa(seconds))
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Add("Access-Control-Expose-Headers", "Retry-After") // the host may have set others
	}
}

// SetAllowed sets the headers that say which methods are allowed, and that the body of a QUERY is JSON.
func SetAllowed(h http.Header) {
	h.Set("Allow", AllowedMethods)
	h.Set("Accept-Query", JSON)
}

// SetOptions sets the header h of the response to an OPTIONS request, which may be a CORS preflight request. Call
// SetHeader and SetVary first.
func SetOptions(h, request http.Header) {
	SetAllowed(h)
	if h.Get("Access-Control-Allow-Origin") != "" && request.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", AllowedMethods)
		h.Set("Vary", h.Get("Vary")+", Access-Control-Request-Headers") // SetVary has left only one line
		if headers := allowedHeaders(request); headers != "" {
			h.Set("Access-Control-Allow-Headers", headers)
		}
		h.Set("Access-Control-Max-Age", "7200")
	}
}

// allowedHeaders returns those headers in Access-Control-Request-Headers that a page may send. If the list exceeds
// maxList, it returns "".
func allowedHeaders(request http.Header) string {
	list := strings.Join(bounded(request.Values("Access-Control-Request-Headers")), ",")
	var allowed []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "authorization", name == "content-type", name == "last-event-id",
			name == "traceparent", name == "tracestate", name == "baggage", // W3C Trace Context and Baggage
			strings.HasPrefix(name, "tonclient-"), strings.HasPrefix(name, "x-evernode-"):
			allowed = append(allowed, name)
		}
	}
	return strings.Join(allowed, ", ")
}
