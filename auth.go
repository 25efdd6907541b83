package chaingql

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// ErrUnauthorized is returned by an [Authorizer] if the project is unknown, or if the secret is wrong or missing. In
// all these cases, the response to an HTTP request or a handshake has status 401 and the message "Unauthorized access".
// On an open socket, the client receives the corresponding error of its subprotocol.
var ErrUnauthorized = errors.New("chaingql: unauthorized access")

// RateLimitError is returned by an [Authorizer] to refuse a client temporarily. The Authorizer can limit by project and
// by client address, because it receives both with each call. The response to an HTTP request or a handshake has status
// 429 and the header Retry-After. An open socket is closed with a code that allows the client to reconnect.
type RateLimitError struct {
	// RetryAfter is the time that the client should wait before it retries. The client receives whole seconds, rounded
	// up, and at least 1.
	RetryAfter time.Duration
}

// Error returns a message that includes RetryAfter.
func (e RateLimitError) Error() string {
	return fmt.Sprintf("chaingql: rate limited for %v", e.RetryAfter)
}

// refusal returns the error that the client receives.
func (e RateLimitError) refusal() *httpError {
	no := newHTTPError(statusRateLimited, codeRateLimited, "Too many requests.")
	seconds := e.RetryAfter / time.Second
	if e.RetryAfter%time.Second > 0 {
		seconds++
	}
	no.retry = int(min(max(1, seconds), math.MaxInt32)) // an int has 32 bits on some machines
	return no
}

// An Authorizer decides who may use a project. It must be safe for concurrent use. The Handler calls it once for each
// HTTP request. The request has a slot of Limits.Requests meanwhile: an Authorizer that asks a database or another
// service must bound its time, and should remember the answers. For a WebSocket, the Handler calls it:
//
//   - at the handshake, if the header Authorization contains a secret;
//   - for each connection_init message, unless the handshake had a secret and the payload is absent or empty;
//   - for the first start message of the subprotocol graphql-ws, if the client sent no connection_init and the
//     handshake had no secret.
type Authorizer interface {
	// Authorize returns the context that the Handler passes to Backend.Balance: ctx, or a context derived from it with
	// values of the host. If that context has a deadline, the credentials expire then: the Handler closes the sockets
	// and event streams that use them, and their clients may reconnect. Do not cancel that context: operations that
	// have begun may continue on a socket, and later ones fail.
	//
	// Authorize returns ErrUnauthorized to refuse the client, and [RateLimitError] to refuse it temporarily. Any other
	// error is logged, and the client receives an internal error.
	//
	// To hide which projects exist, a call for an unknown project should take as long as one with a wrong secret.
	Authorize(ctx context.Context, c Credentials) (context.Context, error)
}

// Credentials holds the credentials that a client sent, and the client's request.
type Credentials struct {
	// Project is the value of the wildcard {project} in the host's pattern, in lower case. If the pattern passed to
	// [Mount] has no such wildcard, Project is empty. If the Handler was registered without Mount and without the
	// wildcard, Project is the path segment before the last one, or empty if there is none.
	Project string
	// Secret is the password in the header `Authorization: Basic`, whose user name must be empty, or the secret in the
	// payload of connection_init.
	Secret string
	// HasSecret reports whether the client sent a secret, which may be empty.
	HasSecret bool
	// Payload is the payload of a WebSocket's connection_init message as the client sent it. It may contain, for
	// example, a bearer token. It is a JSON object of at most 8 KiB without duplicate keys, nested no deeper than
	// Limits.Depth. It is nil for an HTTP request and at the handshake. It is also nil if there was no connection_init
	// or its payload is not an object. The Authorizer may keep and change it.
	Payload json.RawMessage
	// Request is the HTTP request, or the handshake of a WebSocket. From the second call for the same WebSocket on, it
	// has only Method, URL, Host and RemoteAddr. The Authorizer must not keep or change it.
	Request *http.Request
}

// StaticProjects is an [Authorizer] for a fixed set of projects. The keys are project ids, which are compared without
// regard to case. The key "" is for clients that send no project in the URL. [New] copies the map. New panics if two
// ids differ only in case, or if a project requires a secret but has none. If an Authorizer of the host calls
// Authorize, clients of such a project receive an internal error instead.
type StaticProjects map[string]Project

// A Project holds the access rules of one project in [StaticProjects].
type Project struct {
	// Secret is the project's secret. A client that sends another secret is refused. If Secret is empty, every client
	// that sends a secret is refused.
	Secret string
	// RequireSecret reports whether clients that send no secret are refused.
	RequireSecret bool
}

// Authorize admits a client of a known project if it sent the right secret, or if it sent no secret and the project
// requires none.
func (p StaticProjects) Authorize(ctx context.Context, c Credentials) (context.Context, error) {
	var name string
	var project Project
	asked, known := strings.ToLower(c.Project), false
	for id, other := range p { // all, so that the duration does not reveal whether the project exists
		if strings.ToLower(id) != asked {
			continue
		}
		if known {
			return nil, errTwice(asked)
		}
		name, project, known = id, other, true
	}
	t, err := digest(name, project) // also if the project does not exist, for the same reason
	if err != nil {
		return nil, err
	}
	t.known = known
	return t.authorize(ctx, c)
}

// projectDigests holds the digests of the secrets in StaticProjects, for [New], so that its Authorize needs no search.
type projectDigests map[string]tenant

// A tenant is a Project with the digest of its secret.
type tenant struct {
	digest   [sha256.Size]byte
	required bool
	known    bool
	open     bool // the project has no secret
}

func (p StaticProjects) digests() (projectDigests, error) {
	ds := make(projectDigests, len(p))
	for id, project := range p {
		lower := strings.ToLower(id)
		if ds[lower].known {
			return nil, errTwice(lower)
		}
		t, err := digest(id, project)
		if err != nil {
			return nil, err
		}
		ds[lower] = t
	}
	return ds, nil
}

func errTwice(lower string) error {
	return fmt.Errorf("chaingql: StaticProjects: two project ids differ only in case: %q", lower)
}

func digest(id string, p Project) (tenant, error) {
	if p.RequireSecret && p.Secret == "" {
		return tenant{}, fmt.Errorf("chaingql: StaticProjects: project %q requires a secret but has none", id)
	}
	return tenant{sha256.Sum256([]byte(p.Secret)), p.RequireSecret, true, p.Secret == ""}, nil
}

func (ds projectDigests) Authorize(ctx context.Context, c Credentials) (context.Context, error) {
	return ds[strings.ToLower(c.Project)].authorize(ctx, c)
}

// authorize computes one digest in every case, so the duration does not reveal whether the project exists.
func (t tenant) authorize(ctx context.Context, c Credentials) (context.Context, error) {
	shown := sha256.Sum256([]byte(c.Secret))
	right := subtle.ConstantTimeCompare(shown[:], t.digest[:]) == 1
	if !c.HasSecret {
		right = !t.required
	}
	switch {
	case !t.known:
		return nil, errUnknownProject
	case right:
		return ctx, nil
	case !c.HasSecret:
		return nil, errNoSecret
	case t.open:
		return nil, errUnwantedSecret
	}
	return nil, errWrongSecret
}

// These are the reasons for which clients are refused, for [Hooks].AccessDenied and the log. Clients receive the same
// response for all reasons that wrap ErrUnauthorized.
var (
	errUnknownProject  = fmt.Errorf("%w: unknown project", ErrUnauthorized)
	errNoSecret        = fmt.Errorf("%w: no secret", ErrUnauthorized)
	errWrongSecret     = fmt.Errorf("%w: wrong secret", ErrUnauthorized)
	errUnwantedSecret  = fmt.Errorf("%w: a secret for a project that has none", ErrUnauthorized)
	errTwoHeaders      = fmt.Errorf("%w: more than one Authorization header", ErrUnauthorized)
	errMalformedHeader = fmt.Errorf("%w: malformed Basic credentials", ErrUnauthorized)
	errForeignOrigin   = errors.New("chaingql: origin is not allowed")
)

// allowAll admits every client to every project.
type allowAll struct{}

func (allowAll) Authorize(ctx context.Context, _ Credentials) (context.Context, error) {
	return ctx, nil
}

// credentials reads the credentials of a request. It fails if there are several Authorization headers, or if a Basic
// header is malformed. If all clients are admitted, it ignores the headers, which may be meant for another service.
func (h *Handler) credentials(r *http.Request) (Credentials, error) {
	c := Credentials{Project: projectOf(r), Request: r}
	if h.auth == (allowAll{}) {
		return c, nil
	}
	headers := r.Header["Authorization"]
	if len(headers) > 1 {
		return c, errTwoHeaders
	}
	if len(headers) == 1 {
		var err error
		if c.Secret, c.HasSecret, err = basicSecret(headers[0]); err != nil {
			return c, err
		}
	}
	return c, nil
}

// basicSecret returns the secret in an Authorization header with the scheme Basic. For any other scheme, ok is false:
// the host's Authorizer can read the header itself.
func basicSecret(header string) (secret string, ok bool, err error) {
	scheme, encoded, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return "", false, errMalformedHeader
	}
	user, secret, colon := strings.Cut(string(decoded), ":")
	if !colon || user != "" {
		return "", false, errMalformedHeader
	}
	return secret, true, nil
}

// projectOf returns the project id of a request in lower case. It is "" if the pattern passed to Mount has no wildcard
// {project}. Otherwise it is the value of that wildcard, or, without the wildcard, the path segment before the last.
func projectOf(r *http.Request) string {
	if r.PathValue(noProject) != "" {
		return ""
	}
	if id := r.PathValue("project"); id != "" {
		return strings.ToLower(id)
	}
	path, escaped := r.URL.Path, r.URL.RawPath != "" // it is set if a segment contains a slash
	if escaped {
		path = r.URL.EscapedPath()
	}
	path = strings.TrimSuffix(path, "/")
	path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	id := path[strings.LastIndexByte(path, '/')+1:]
	if escaped {
		if segment, err := url.PathUnescape(id); err == nil {
			id = segment
		}
	}
	return strings.ToLower(id)
}

// authorize calls the Authorizer for a request and returns the context and the project of an admitted client. During
// the call, the request occupies work, a slot of Limits.Requests.
func (h *Handler) authorize(r *http.Request, work *slot) (ctx context.Context, project string, refused *httpError) {
	if h.auth == (allowAll{}) {
		return r.Context(), projectOf(r), nil
	}
	c, err := h.credentials(r)
	if err == nil {
		if refused := work.take(); refused != nil {
			return nil, "", refused
		}
		defer work.leave()
		ctx, err = h.admit(r.Context(), c)
	}
	if err != nil {
		refused = h.refused(r.Context(), err)
		h.events.denied(r.Context(), denial(r, c.Project, err), refused)
		return nil, "", refused
	}
	return ctx, c.Project, nil
}

// admit calls the Authorizer and converts a panic to an error.
func (h *Handler) admit(ctx context.Context, c Credentials) (admitted context.Context, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p) // net/http handles it by closing the connection
		default:
			admitted, err = nil, guard.New(p)
		}
	}()
	admitted, err = h.auth.Authorize(ctx, c)
	if err == nil && admitted == nil {
		err = errors.New("Authorize returned neither a context nor an error")
	}
	return admitted, err
}

// refused returns the error that the client receives if the Authorizer returns err.
func (h *Handler) refused(ctx context.Context, err error) *httpError {
	var limited RateLimitError
	var pointed *RateLimitError
	switch {
	case errors.Is(err, ErrUnauthorized):
		return unauthorized()
	case errors.Is(err, errTooManyInits):
		return unavailable(false, "Requests", "requests")
	case errors.Is(err, errPayloadTooLarge):
		return overLimit(statusBodyTooLarge, "",
			fmt.Sprintf("The payload of connection_init exceeds the limit of %d bytes.", maxPayload))
	case errors.As(err, &limited):
		return limited.refusal()
	case errors.As(err, &pointed) && pointed != nil:
		return pointed.refusal()
	}
	// If the Authorizer fails, the client must not receive the response to a wrong secret.
	return &httpError{status: statusInternal, Error: h.mask(ctx, fmt.Errorf("authorizer: %w", err))}
}
