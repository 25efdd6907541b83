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

// ErrUnauthorized is returned by an [Authorizer] if the project is unknown, or the secret is wrong or missing. The
// client receives 401 with "Unauthorized access" in all these cases, or on a socket the error of its protocol.
var ErrUnauthorized = errors.New("chaingql: unauthorized access")

// RateLimitError is returned by an [Authorizer] to refuse a client for a while. The Authorizer sees the project and the
// address of each request. The client receives 429 with Retry-After. On a socket it receives an error and a close
// after which it may reconnect.
type RateLimitError struct {
	// RetryAfter is the time until the client should retry. The client receives it in whole seconds, rounded up, at
	// least one.
	RetryAfter time.Duration
}

// Error returns a text with the time to wait.
func (e RateLimitError) Error() string {
	return fmt.Sprintf("chaingql: rate limited for %v", e.RetryAfter)
}

// refusal returns the error for the client.
func (e RateLimitError) refusal() *httpError {
	no := newHTTPError(http.StatusTooManyRequests, codeRateLimited, "Too many requests.")
	seconds := e.RetryAfter / time.Second
	if e.RetryAfter%time.Second > 0 {
		seconds++
	}
	no.retry = int(min(max(1, seconds), math.MaxInt32)) // an int has 32 bits on some machines
	return no
}

// An Authorizer decides who may use a project. It is called concurrently: once for each HTTP request, and for a socket
//
//   - at the handshake, if the header Authorization has a secret;
//   - for each connection_init, unless the handshake had a secret and the payload is absent or empty;
//   - at the first start on a graphql-ws socket without connection_init, unless the handshake had a secret.
type Authorizer interface {
	// Authorize returns the context for the Backend's Balance: ctx, or a context derived from it with values of the
	// host. A deadline of that context is the expiry of the credentials: then the socket is closed, and its client
	// may reconnect. Authorize returns ErrUnauthorized to refuse the client, and [RateLimitError] to refuse it for a
	// while. Any other error is logged, and the client receives an internal error.
	//
	// An unknown project should take as long as a wrong secret.
	Authorize(ctx context.Context, c Credentials) (context.Context, error)
}

// Credentials are the credentials that a client sent, and its request.
type Credentials struct {
	// Project is the wildcard {project} of the host's pattern, in lower case. It is empty if the pattern given to
	// [Mount] has no such wildcard. If the Handler was mounted without Mount and the wildcard, it is the segment of the
	// path before the last, and empty if there is none.
	Project string
	// Secret is the password of `Authorization: Basic`, whose user name must
	// be empty, or the secret in connection_init.
	Secret string
	// HasSecret distinguishes an empty secret from none.
	HasSecret bool
	// Payload is the payload of a socket's connection_init as the client sent it, for example with a bearer token. It
	// is a JSON object of at most 8 KiB without duplicate keys, nested no deeper than Limits.Depth. It is nil over
	// HTTP, at the handshake, and if connection_init is missing or its payload is no object. The Authorizer owns it.
	Payload json.RawMessage
	// Request is the HTTP request; for a socket it is the handshake. After the first decision about a socket it has
	// only Method, URL, Host and RemoteAddr. The Authorizer must not keep or change it.
	Request *http.Request
}

// StaticProjects is an [Authorizer] with a fixed set of projects by id. Ids are compared in lower case. [New] copies
// it, and panics if two ids differ only in case or a project requires a secret but has none. The key "" is the
// project of clients whose URL names none.
type StaticProjects map[string]Project

// A Project is a tenant of [StaticProjects].
type Project struct {
	// Secret is the secret of the project. A project without a
	// Secret refuses clients that send one.
	Secret string
	// RequireSecret refuses clients that send no secret.
	RequireSecret bool
}

// Authorize admits a client of a known project with the right secret, or without a secret unless the project requires
// one.
func (p StaticProjects) Authorize(ctx context.Context, c Credentials) (context.Context, error) {
	known, err := p.digest()
	if err != nil {
		return nil, err
	}
	return known.Authorize(ctx, c)
}

// projectDigests are StaticProjects with the digests of their secrets. Authorize computes one digest in every case,
// so its time does not depend on the project.
type projectDigests map[string]tenant

type tenant struct {
	digest   [sha256.Size]byte
	required bool
	known    bool
	open     bool // it has no secret
}

func (p StaticProjects) digest() (projectDigests, error) {
	ds := make(projectDigests, len(p))
	for id, project := range p {
		lower := strings.ToLower(id)
		if _, twice := ds[lower]; twice {
			return nil, fmt.Errorf("chaingql: StaticProjects: two project ids differ only in case: %q", lower)
		}
		if project.RequireSecret && project.Secret == "" {
			return nil, fmt.Errorf("chaingql: StaticProjects: project %q requires a secret but has none", id)
		}
		ds[lower] = tenant{sha256.Sum256([]byte(project.Secret)), project.RequireSecret, true, project.Secret == ""}
	}
	return ds, nil
}

func (ds projectDigests) Authorize(ctx context.Context, c Credentials) (context.Context, error) {
	t := ds[strings.ToLower(c.Project)]
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

// Why clients are refused, for [Hooks].AccessDenied and the log. Clients receive the same response for all of them.
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

// credentials reads the credentials of a request. It fails if there are several Authorization headers, or one of the
// Basic scheme is malformed. If everybody is admitted, it ignores them: they may be meant for another service.
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

// basicSecret returns the secret of an Authorization header. Other schemes than Basic are left to the host's
// Authorizer, which has the request.
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

// projectOf returns the id of the project in lower case: "" if Mount was called without the wildcard {project}, the
// wildcard if the host's pattern has it, or else the segment of the path before the last.
func projectOf(r *http.Request) string {
	if r.PathValue(noProject) != "" {
		return ""
	}
	if id := r.PathValue("project"); id != "" {
		return strings.ToLower(id)
	}
	path := strings.TrimSuffix(r.URL.EscapedPath(), "/")
	path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	segment := path[strings.LastIndexByte(path, '/')+1:]
	id, err := url.PathUnescape(segment)
	if err != nil {
		id = segment
	}
	return strings.ToLower(id)
}

// authorize returns the context and the project of a request that the Authorizer admits. The Authorizer runs in a slot.
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

// admit calls the Authorizer. A panic becomes an error.
func (h *Handler) admit(ctx context.Context, c Credentials) (admitted context.Context, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p) // net/http's own way to say goodbye
		default:
			admitted, err = nil, guard.New(p)
		}
	}()
	admitted, err = h.auth.Authorize(ctx, c)
	if err == nil && admitted == nil {
		err = errors.New("neither a context nor an error")
	}
	return admitted, err
}

// refused returns the error that the client receives for an Authorizer's error.
func (h *Handler) refused(ctx context.Context, err error) *httpError {
	var limited RateLimitError
	var pointed *RateLimitError
	switch {
	case errors.Is(err, ErrUnauthorized):
		return unauthorized()
	case errors.Is(err, errPayloadTooLarge):
		return overLimit(http.StatusRequestEntityTooLarge, "",
			fmt.Sprintf("The payload of connection_init exceeds the limit of %d bytes.", maxPayload))
	case errors.As(err, &limited):
		return limited.refusal()
	case errors.As(err, &pointed) && pointed != nil:
		return pointed.refusal()
	}
	// A failure of the host must not look like a wrong secret.
	return &httpError{status: http.StatusInternalServerError, Error: h.mask(ctx, fmt.Errorf("authorizer: %w", err))}
}
