package chaingql

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// Mount registers h, a [Handler] or a Handler in middleware, on mux at the path of a pattern, with and without a slash
// at the end. It redirects neither form: a POST or a WebSocket handshake does not survive a redirect.
//
//	chaingql.Mount(mux, "/{project}/graphql", h)
//	chaingql.Mount(mux, "/graphql", h)              // a single tenant, or clients that send no project
//	chaingql.Mount(mux, "api.example/graphql/v1", h) // for one host
//
// A pattern is a path as for [http.ServeMux], after an optional host. Its only wildcard is {project}, a whole segment
// at any place. If the pattern does not have it, the project is empty, whatever the path: the [Authorizer] receives
// Credentials whose Project is "".
//
// Mount panics if the pattern cannot work: if it has a method, another wildcard, a slash at the end, or no slash at the
// start of the path, or if it conflicts with a pattern of mux. It also panics if mux or h is nil.
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

// checkPattern reports whether a pattern has the wildcard {project}, or why it cannot work.
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
		return false, "has an empty segment, or one of dots"
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
			return false, "has the wildcard " + segment + ": only {project} has a meaning"
		case strings.ContainsAny(segment, "{}"):
			return false, "has the segment " + segment + ": a wildcard is a whole segment"
		}
	}
	return hasProject, ""
}

// noProject is the name of a path value that is set if the pattern has no {project}. No wildcard can have this name.
const noProject = "chaingql: no project"

// A singleTenant is a handler that was mounted without {project}.
type singleTenant struct{ http.Handler }

func (s singleTenant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.SetPathValue(noProject, "true")
	s.Handler.ServeHTTP(w, r)
}
