package chaingql

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// Mount registers h on mux for the path in pattern, with and without a slash at the end. h is a [Handler], or
// middleware around a Handler. Neither form of the path redirects to the other, because a POST or a WebSocket handshake
// does not survive a redirect.
//
//	chaingql.Mount(mux, "/{project}/graphql", h)
//	chaingql.Mount(mux, "/graphql", h)               // one project, or clients that send no project
//	chaingql.Mount(mux, "api.example/graphql/v1", h) // only for the host api.example
//
// A pattern is an optional host followed by a path, as for [http.ServeMux]. The path may contain the wildcard {project}
// as one of its segments, and no other wildcard. Without {project}, the [Authorizer] receives Credentials with an empty
// Project, whatever the path is.
//
// Mount panics if the pattern has a method, another wildcard, a slash at the end, or no slash at the start of the path,
// or if it conflicts with a pattern of mux. It also panics if mux or h is nil. /{project}/graphql conflicts with each
// subtree, such as /debug/ or /static/, because both match /debug/graphql and neither is more specific. In that case,
// register the subtrees on an outer mux, and an inner mux with the Handler for "/".
func Mount(mux *http.ServeMux, pattern string, h http.Handler) {
	if mux == nil {
		panic("chaingql: Mount: mux is nil")
	}
	if own, ok := h.(*Handler); h == nil || ok && own == nil {
		panic("chaingql: Mount: handler is nil")
	}
	hasProject, problem := checkPattern(pattern)
	if problem != "" {
		panic(fmt.Sprintf("chaingql: Mount: pattern %q %s", pattern, problem))
	}
	if !hasProject {
		h = singleTenant{h}
	}
	mux.Handle(pattern, h)
	mux.Handle(pattern+"/{$}", h)
}

// checkPattern reports whether a pattern has the wildcard {project}. If the pattern is invalid, problem says why.
func checkPattern(pattern string) (hasProject bool, problem string) {
	if pattern == "" {
		return false, "is empty"
	}
	if strings.ContainsAny(pattern, " \t") {
		return false, "has a method or a space: the Handler chooses the methods"
	}
	slash := strings.IndexByte(pattern, '/')
	if slash < 0 || strings.ContainsAny(pattern[:slash], "{}") {
		return false, "has no slash at the start of its path"
	}
	if strings.Contains(pattern[:slash], ":") {
		return false, "has a port: http.ServeMux compares hosts without it"
	}
	route := pattern[slash:]
	if strings.HasSuffix(route, "/") || strings.HasSuffix(route, "/{$}") {
		return false, "ends with a slash: Mount adds the path with a slash itself"
	}
	if path.Clean(route) != route {
		return false, `has an empty segment, ".", or ".."`
	}
	for segment := range strings.SplitSeq(route[1:], "/") {
		switch {
		case segment == "{project}" && hasProject:
			return false, "has {project} twice"
		case segment == "{project}":
			hasProject = true
		case strings.HasSuffix(segment, "...}"):
			return false, "has the wildcard " + segment + ", which matches any number of segments"
		case segment[0] == '{' && segment[len(segment)-1] == '}':
			return false, "has the wildcard " + segment + ": only {project} is supported"
		case strings.ContainsAny(segment, "{}"):
			return false, "has the segment " + segment + ": a wildcard must be a whole segment"
		}
	}
	return hasProject, ""
}

// noProject is the name of the path value that a singleTenant sets. No wildcard of a pattern can have this name.
const noProject = "chaingql: no project"

// A singleTenant wraps a handler that was mounted without the wildcard {project}. It marks each request, so that the
// handler does not take a segment of the path for the project.
type singleTenant struct{ http.Handler }

func (s singleTenant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.SetPathValue(noProject, "true")
	s.Handler.ServeHTTP(w, r)
}
