package chaingql

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// origins says which web pages may call the API: exact origins, or "*". None is
// the handler's own host only.
type origins []string

// wellFormed reports whether a host's origin is one that a browser could send.
// One with a slash at its end, say, would never match.
func wellFormed(origin string) bool {
	u, err := url.Parse(origin)
	return origin == "*" || err == nil && u.Scheme != "" && u.Host != "" && strings.EqualFold(u.Scheme+"://"+u.Host, origin)
}

// allowed reports whether a page of the request's origin may call. A request
// without an origin comes from no page.
func (o origins) allowed(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(o, "*") || o.listed(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func (o origins) listed(origin string) bool {
	return slices.ContainsFunc(o, func(known string) bool { return strings.EqualFold(known, origin) })
}

// setCORS says in an answer's header that the request's page may read it, where
// it may. Credentials are never allowed: the secret travels in a header that
// the page itself sets.
func (o origins) setCORS(w http.ResponseWriter, r *http.Request) {
	if len(o) == 0 {
		return
	}
	h := w.Header()
	if slices.Contains(o, "*") {
		h.Set("Access-Control-Allow-Origin", "*")
		return
	}
	if origin := r.Header.Get("Origin"); o.listed(origin) {
		h.Set("Access-Control-Allow-Origin", origin)
	}
}

// preflight answers OPTIONS, a browser's preflight or somebody's question.
func (o origins) preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Allow", allowedMethods)
	if h.Get("Access-Control-Allow-Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", allowedMethods)
		h.Set("Vary", h.Get("Vary")+", Access-Control-Request-Headers") // which vary left in one line
		if headers := requestHeaders(r); headers != "" {
			h.Set("Access-Control-Allow-Headers", headers)
		}
		h.Set("Access-Control-Max-Age", "7200")
	}
	w.WriteHeader(http.StatusNoContent)
}

// requestHeaders are those that the page wants to send and may.
func requestHeaders(r *http.Request) string {
	var may []string
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Access-Control-Request-Headers"), ","), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "authorization", name == "content-type", name == "last-event-id",
			strings.HasPrefix(name, "tonclient-"), strings.HasPrefix(name, "x-evernode-"):
			may = append(may, name)
		}
	}
	return strings.Join(may, ", ")
}
