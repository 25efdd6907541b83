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

// What Options that are not set come to.
const (
	DefaultEndpoint = "/{project}/graphql"
	DefaultProject  = "demo"
	DefaultTitle    = "chaingql"
	DefaultAccount  = "-1:0000000000000000000000000000000000000000000000000000000000000000"
)

// Options of [New]. The zero value is good where the API is mounted beside the
// explorer, at /{project}/graphql.
type Options struct {
	// Endpoint is where the pages find the API: an http or https URL, or a path
	// of their own origin. {project} stands in it for the project that the
	// visitor names, behind the host; without it they are not asked for one. An
	// API of another origin must list the explorer's in its AllowedOrigins. Default:
	// [DefaultEndpoint].
	Endpoint string

	// Project is the one that stands in the form at first. Default:
	// [DefaultProject].
	Project string

	// Title is shown above the pages. Default: [DefaultTitle].
	Title string

	// Account is the address that the examples ask for. Default:
	// [DefaultAccount].
	Account string
}

// A Handler serves the explorer. Make it with [New]. It is safe for concurrent
// use, and may be mounted at / or, with [http.StripPrefix], under any path that
// ends with a slash. (Beside /{project}/graphql, [http.ServeMux] takes /explorer/
// for a conflict, but not /, nor /tools/explorer/.)
type Handler struct {
	connectTo string // sources that the pages may call
	live      string
	graphiql  [2]string // before and behind the nonce
}

// New returns a Handler. opts may be nil and is copied. It panics where the
// Endpoint is neither a path nor an http or https URL: that is a mistake in the
// host's code.
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

// sources are what a page's policy must let it connect to. 'self' is its own
// origin's sockets too.
func sources(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", err
	case u.Scheme == "" && u.Host == "":
		return "'self'", nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(u.Host, ";,'*"):
		return "", fmt.Errorf("%q is no path and no http or https URL", endpoint)
	}
	socket := strings.Replace(u.Scheme, "http", "ws", 1)
	return fmt.Sprintf("%s://%s %s://%s", u.Scheme, u.Host, socket, u.Host), nil
}

// What a page may do. The live view's scripts touch the document only by nodes;
// GraphiQL's editor cannot do without three things: style elements that it makes
// itself, which carry the answer's nonce; style attributes in the markup of its
// lines, which nothing but 'unsafe-inline' admits (attributes alone, no script
// and no style element); and images in its style sheet, as data.
const (
	everyPolicy    = "default-src 'none'; script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	livePolicy     = everyPolicy + "; style-src 'self'; img-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'; connect-src "
	graphiqlPolicy = everyPolicy + "; style-src 'self' 'nonce-%s'; style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; worker-src 'self'; connect-src "
)

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	path := strings.TrimPrefix(r.URL.Path, "/")
	name, isAsset := strings.CutPrefix(path, "assets/")
	switch {
	case path != "" && path != "live" && !(isAsset && assets.have(name)):
		header.Set("Content-Security-Policy", nothing)
		http.Error(w, "There is no such page.", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Content-Security-Policy", nothing)
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

func answer(w http.ResponseWriter, r *http.Request, page, policy string) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Length", strconv.Itoa(len(page)))
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, page) // whoever left needs no answer
	}
}
