package gqlhttp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// AllowedMethods is the value of the headers Allow and Access-Control-Allow-Methods.
const AllowedMethods = "GET, HEAD, OPTIONS, POST"

// Origins lists the web origins whose pages may call the API, or "*". If it is empty, only pages of the server's own
// host may.
type Origins []string

// ValidOrigin reports whether a browser could send origin. One with a slash at its end, for example, would never match.
func ValidOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return origin == "*" || err == nil && u.Scheme != "" && u.Host != "" && strings.EqualFold(u.Scheme+"://"+u.Host, origin)
}

// Allowed reports whether the page that sent r may call the API. A request without an Origin comes from no page.
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

// SetHeader lets the page that sent r read the response, if it may. Credentials are never allowed: the page itself sets
// the header with the secret.
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

// ServeOptions responds to OPTIONS, which need not be a preflight request. SetHeader and SetVary come first.
func ServeOptions(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Allow", AllowedMethods)
	if h.Get("Access-Control-Allow-Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", AllowedMethods)
		h.Set("Vary", h.Get("Vary")+", Access-Control-Request-Headers") // SetVary has left one line
		if headers := allowedHeaders(r); headers != "" {
			h.Set("Access-Control-Allow-Headers", headers)
		}
		h.Set("Access-Control-Max-Age", "7200")
	}
	w.WriteHeader(http.StatusNoContent)
}

// allowedHeaders returns the headers that the page wants to send and may.
func allowedHeaders(r *http.Request) string {
	var allowed []string
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Access-Control-Request-Headers"), ","), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "authorization", name == "content-type", name == "last-event-id",
			strings.HasPrefix(name, "tonclient-"), strings.HasPrefix(name, "x-evernode-"):
			allowed = append(allowed, name)
		}
	}
	return strings.Join(allowed, ", ")
}
