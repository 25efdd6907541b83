package chaingql_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

// projectRecorder returns an Authorizer that admits every client and stores its project in seen.
func projectRecorder(seen *string) chaingql.Authorizer {
	return authorizer(func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
		*seen = c.Project
		return ctx, nil
	})
}

func TestMountServesPathsWithAndWithoutASlashWithoutARedirect(t *testing.T) {
	const none = "Authorizer not called"
	for pattern, projects := range map[string]map[string]string{
		"/{project}/graphql": {
			"/demo/graphql": "demo", "/DeMo/graphql/": "demo", "/a%2Fb/graphql": "a/b", "/graphql": none,
			"/api/demo/graphql": none,
		},
		"/api/{project}/graphql":            {"/api/demo/graphql": "demo", "/api/demo/graphql/": "demo"},
		"/v1/{project}/query/now":           {"/v1/demo/query/now": "demo", "/v1/demo/query/now/": "demo"},
		"/graphql/{project}":                {"/graphql/demo": "demo", "/graphql/demo/": "demo"},
		"/{project}":                        {"/demo": "demo", "/demo/": "demo"},
		"/graphql":                          {"/graphql": "", "/graphql/": "", "/demo/graphql": none},
		"/api/graphql":                      {"/api/graphql": "", "/api/graphql/": ""},
		"/api/v1/graphql":                   {"/api/v1/graphql": "", "/api/v1/graphql/": ""},
		"example.com/{project}/graphql":     {"/demo/graphql": "demo", "/demo/graphql/": "demo"},
		"example.com/api/graphql":           {"/api/graphql": "", "/api/graphql/": ""},
		"another.example/{project}/graphql": {"/demo/graphql": none},
	} {
		var seen string
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projectRecorder(&seen)})
		mux := http.NewServeMux()
		chaingql.Mount(mux, pattern, h)
		for path, project := range projects {
			seen = none
			w := do(mux, "POST", path, request802, "Content-Type", "application/json") // to example.com
			equal(t, pattern+": project of "+path, seen, project)
			if project == none {
				equal(t, pattern+": status of "+path, w.Code, http.StatusNotFound)
			} else {
				equal(t, pattern+": response of "+path, w.Body.String(), response802)
			}
		}
	}
}

// Without Mount, the project is the path segment before the last one.
func TestHandlerMayBeMountedSeveralTimes(t *testing.T) {
	var seen string
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projectRecorder(&seen)})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	chaingql.Mount(mux, "/api/v1/graphql", h)
	mux.Handle("/plain/v1/graphql", h)
	for path, project := range map[string]string{
		"/demo/graphql": "demo", "/api/v1/graphql/": "", "/plain/v1/graphql": "v1", "/v1/graphql": "v1",
	} {
		seen = "Authorizer not called"
		do(mux, "POST", path, request802, "Content-Type", "application/json")
		equal(t, "project of "+path, seen, project)
	}
}

// An outer router may have set the path value "project".
func TestMountWithoutProjectIgnoresOtherPathValues(t *testing.T) {
	var seen string
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projectRecorder(&seen)})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/api/graphql", h)
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("project", "other")
		mux.ServeHTTP(w, r)
	})
	seen = "Authorizer not called"
	do(outer, "POST", "/api/graphql", request802, "Content-Type", "application/json")
	equal(t, "project", seen, "")
}

func TestMountAcceptsMiddleware(t *testing.T) {
	var seen string
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projectRecorder(&seen)})
	cloning := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.Clone(r.Context())) })
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", cloning)
	chaingql.Mount(mux, "/api/graphql", cloning)
	for path, project := range map[string]string{"/demo/graphql": "demo", "/api/graphql": ""} {
		seen = "Authorizer not called"
		do(mux, "POST", path, request802, "Content-Type", "application/json")
		equal(t, "project of "+path, seen, project)
	}
}

func TestSocketMountedWithoutProjectHasNoProject(t *testing.T) {
	var seen string
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projectRecorder(&seen)})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/api/graphql", h)
	for _, path := range []string{"/api/graphql", "/api/graphql/"} {
		seen = "Authorizer not called"
		w := do(mux, "GET", path, "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
			"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol", "graphql-transport-ws",
			"Authorization", basic(":secret"))
		equal(t, "project of "+path, seen, "")
		equal(t, "status of "+path, w.Code, http.StatusInternalServerError) // a recorder cannot be hijacked
	}
}

func TestMountPanicsForInvalidPatterns(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for pattern, want := range map[string]string{
		"":                            "is empty",
		"graphql":                     "has no slash at the start of its path",
		"{project}/graphql":           "has no slash at the start of its path",
		"POST /{project}/graphql":     "has a method or a space",
		"GET\t/graphql":               "has a method or a space",
		"/my graphql":                 "has a method or a space",
		"/":                           "ends with a slash",
		"example.com/":                "ends with a slash",
		"/{project}/graphql/":         "ends with a slash",
		"/{project}/graphql/{$}":      "ends with a slash",
		"/{project}/{rest...}":        "has the wildcard {rest...}, which matches any number of segments",
		"/{project...}":               "has the wildcard {project...}",
		"/{tenant}/graphql":           "has the wildcard {tenant}: only {project} is supported",
		"/{project}/{version}":        "has the wildcard {version}",
		"/{}/graphql":                 "has the wildcard {}",
		"/{Project}/graphql":          "has the wildcard {Project}",
		"/{project}/{project}":        "has {project} twice",
		"/p-{project}/graphql":        "has the segment p-{project}: a wildcard must be a whole segment",
		"/{project}.v1/graphql":       "has the segment {project}.v1",
		"/{project/graphql":           "has the segment {project:",
		"/a{$}":                       "has the segment a{$}",
		"//graphql":                   "has an empty segment",
		"/{project}//graphql":         "has an empty segment",
		"/{project}/../graphql":       `has an empty segment, ".", or ".."`,
		"/./graphql":                  `has an empty segment, ".", or ".."`,
		"example.com:8080/graphql":    "has a port",
		"https://example.com/graphql": "has a port",
	} {
		mux := http.NewServeMux()
		text := panicOf(func() { chaingql.Mount(mux, pattern, h) })
		if want := fmt.Sprintf("chaingql: Mount: pattern %q %s", pattern, want); !strings.HasPrefix(text, want) {
			t.Errorf("pattern %q: Mount panicked with %q, want %q", pattern, text, want)
		}
		if w := do(mux, "GET", "/demo/graphql?query={__typename}", ""); w.Code != http.StatusNotFound {
			t.Errorf("pattern %q: Mount panicked, but the mux serves requests", pattern)
		}
	}
	taken := http.NewServeMux()
	taken.Handle("/{tenant}/graphql", h)
	for what, mount := range map[string]func(){
		"mux is nil":     func() { chaingql.Mount(nil, "/graphql", h) },
		"handler is nil": func() { chaingql.Mount(http.NewServeMux(), "/graphql", nil) },
		"handler is nil, a *Handler": func() {
			chaingql.Mount(http.NewServeMux(), "/graphql", (*chaingql.Handler)(nil))
		},
		"conflicts": func() { chaingql.Mount(taken, "/{project}/graphql", h) }, // from net/http
	} {
		want, _, _ := strings.Cut(what, ",")
		if text := panicOf(mount); !strings.Contains(text, want) {
			t.Errorf("%s: Mount panicked with %q, want %q", what, text, want)
		}
	}
}

// panicOf returns the text of f's panic, or "" if f does not panic.
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// If Mount accepts a pattern, net/http must accept it too.
func FuzzMount(f *testing.F) {
	for _, pattern := range []string{
		"/{project}/graphql", "example.com/graphql", "/{tenant}/graphql", "/%7B/graphql", "/{project}", "/api//graphql",
	} {
		f.Add(pattern)
	}
	h, _ := newHandler(f, referenceChain(f), chaingql.Options{})
	f.Fuzz(func(t *testing.T, pattern string) {
		text := panicOf(func() { chaingql.Mount(http.NewServeMux(), pattern, h) })
		if text != "" && !strings.HasPrefix(text, "chaingql: Mount: ") {
			t.Errorf("pattern %q: net/http panicked with %s", pattern, text)
		}
	})
}

// mountedCaller returns a function that sends a query for a balance through a mux, as net/http does.
func mountedCaller(t testing.TB, mount func(*http.ServeMux, string, http.Handler), pattern string) func() {
	t.Helper()
	c, account := newCaller(t)
	mux := http.NewServeMux()
	mount(mux, pattern, c.handler)
	c.handler = mux
	body := bodyOf(balanceText, map[string]any{"address": account.String()})
	fresh, err := http.NewRequestWithContext(t.Context(), "POST", c.request.URL.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fresh.RequestURI, fresh.Header, fresh.Body = c.request.RequestURI, c.request.Header, c.request.Body
	return func() {
		*c.request = *fresh // without path values
		c.call(body)
	}
}

// The wildcard {project} needs no allocation. Without it, Mount sets a path value, which net/http stores in a map.
func TestMountAllocatesOnlyForPatternsWithoutProject(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector empties pools at random")
		return
	}
	for pattern, most := range map[string]float64{"/{project}/graphql": 0, "/demo/graphql": 2} {
		plain := testing.AllocsPerRun(200, mountedCaller(t, (*http.ServeMux).Handle, pattern))
		mounted := testing.AllocsPerRun(200, mountedCaller(t, chaingql.Mount, pattern))
		if mounted > plain+most {
			t.Errorf("%s: %v allocations per query, want at most %v more than %v", pattern, mounted, most, plain)
		}
	}
}
