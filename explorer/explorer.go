package explorer

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// These are the default values of [Options].
const (
	DefaultEndpoint = "/{project}/graphql"
	DefaultProject  = "demo"
	DefaultTitle    = "chaingql"
	DefaultAccount  = "-1:0000000000000000000000000000000000000000000000000000000000000000"
)

// Options configures [New]. Use the zero value if the API is on the same origin at
// /{project}/graphql.
type Options struct {
	// Endpoint is the URL of the API: an http or https URL, or a path on the origin of the
	// explorer. The pages replace {project} in its path with the project that the visitor enters.
	// If Endpoint does not contain {project}, the pages do not ask for a project. If the API has
	// another origin, the AllowedOrigins option of the API must contain the origin of the
	// explorer. Default: [DefaultEndpoint].
	Endpoint string

	// Project is the initial value of the project field. Default: [DefaultProject].
	Project string

	// Title is the title of the pages. Default: [DefaultTitle].
	Title string

	// Account is the address in the example queries. Default: [DefaultAccount].
	Account string
}

// A Handler serves the explorer. Create it with [New]. It is safe for concurrent use.
//
// Mount it at / or, with [http.StripPrefix], at a path that ends with a slash. Do not mount it at
// /explorer/ if the same [http.ServeMux] has the pattern /{project}/graphql: the two patterns
// conflict, and the mux panics. The patterns / and /tools/explorer/ do not conflict.
type Handler struct {
	connectTo string    // value of connect-src in the policy of the pages
	live      string    // the page with the live view
	graphiql  [2]string // the page with GraphiQL, before and after the nonce
}

// New returns a Handler. opts may be nil. New copies opts, so that later changes have no effect. It
// panics if Endpoint is not a path or an http or https URL, because that is a programming
// error.
func New(opts *Options) *Handler {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Endpoint = cmp.Or(o.Endpoint, DefaultEndpoint)
	o.Project = cmp.Or(o.Project, DefaultProject)
	o.Title = cmp.Or(o.Title, DefaultTitle)
	o.Account = cmp.Or(o.Account, DefaultAccount)
	connectTo, err := sources(o.Endpoint)
	if err != nil {
		panic(fmt.Sprintf("explorer: New: Endpoint: %v", err))
	}
	h := &Handler{connectTo: connectTo, live: page("live", o)}
	h.graphiql[0], h.graphiql[1], _ = strings.Cut(page("graphiql", o), nonceHere)
	return h
}

// sources returns the value of connect-src that permits requests and WebSockets to the endpoint.
// The source 'self' includes WebSockets to the same origin.
func sources(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", err
	case u.Scheme == "" && u.Host == "":
		return "'self'", nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.ContainsAny(u.Host, ";,'*"):
		return "", fmt.Errorf("%q is not a path or an http or https URL without credentials", u.Redacted())
	}
	socket := strings.Replace(u.Scheme, "http", "ws", 1)
	return fmt.Sprintf("%s://%s %s://%s", u.Scheme, u.Host, socket, u.Host), nil
}

// The Content-Security-Policies of the pages. The scripts of the live view never create markup from
// strings, so its policy needs no exceptions. The editor of GraphiQL needs three:
//   - It creates style elements. They have the nonce of the response.
//   - It sets style attributes, which only 'unsafe-inline' permits. In style-src-attr,
//     'unsafe-inline' permits neither scripts nor style elements.
//   - Its style sheet has images in data: URLs.
const (
	everyPolicy = "default-src 'none'; script-src 'self'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'"
	livePolicy = everyPolicy + "; style-src 'self'; img-src 'self'; require-trusted-types-for 'script'; " +
		"trusted-types 'none'; connect-src "
	graphiqlPolicy = everyPolicy + "; style-src 'self' 'nonce-%s'; style-src-attr 'unsafe-inline'; " +
		"img-src 'self' data:; font-src 'self'; worker-src 'self'; connect-src "
)

// ServeHTTP serves the pages and their assets. It accepts only GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	path := strings.TrimPrefix(r.URL.Path, "/")
	name, isAsset := strings.CutPrefix(path, "assets/")
	switch {
	case path != "" && path != "live" && !(isAsset && assets.have(name)):
		header.Set("Content-Security-Policy", noContentPolicy)
		http.Error(w, "There is no such page.", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Content-Security-Policy", noContentPolicy)
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "Only GET and HEAD are served.", http.StatusMethodNotAllowed)
	case isAsset:
		assets.serve(w, r, name)
	case path == "live":
		answer(w, r, h.live, livePolicy+h.connectTo)
	default:
		nonce := rand.Text()
		answer(w, r, h.graphiql[0]+nonce+h.graphiql[1], fmt.Sprintf(graphiqlPolicy, nonce)+h.connectTo)
	}
}

// answer responds with a page and its Content-Security-Policy.
func answer(w http.ResponseWriter, r *http.Request, page, policy string) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Length", strconv.Itoa(len(page)))
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, page) // an error means that the client has disconnected
	}
}
