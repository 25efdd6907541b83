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
)

// ErrUnauthorized is returned by an [Authorizer] that does not know the project
// or finds the secret wrong or missing. The client gets 401 with "Unauthorized
// access", the same for each of these, or on a socket the protocol's own
// refusal.
var ErrUnauthorized = errors.New("chaingql: unauthorized access")

// RateLimited is returned by an [Authorizer], which sees the project and the
// address of each request, to refuse a client for a while. The client gets 429
// with Retry-After, or on a socket an error and a close after which it may come
// back.
type RateLimited struct {
	// After is when to ask again: told in whole seconds, rounded up, at least
	// one.
	After time.Duration
}

// Error tells the wait.
func (e RateLimited) Error() string {
	return fmt.Sprintf("chaingql: rate limited for %v", e.After)
}

// refusal is what the client is told.
func (e RateLimited) refusal() *refusal {
	no := refuse(http.StatusTooManyRequests, codeRateLimited, "Too many requests.")
	seconds := e.After / time.Second
	if e.After%time.Second > 0 {
		seconds++
	}
	no.retry = int(min(max(1, seconds), math.MaxInt32)) // an int has 32 bits on some machines
	return no
}

// An Authorizer decides who may use a project. It is called concurrently: once
// for each HTTP request, and for a socket
//
//   - at the handshake, if the header Authorization has a secret;
//   - for each connection_init, unless the handshake had a secret and the payload is
//     absent or empty;
//   - at the first start on a graphql-ws socket without connection_init, unless the
//     handshake had a secret.
type Authorizer interface {
	// Authorize returns the context that the Backend's Balance will get: the
	// given one, or one made of it with values of the host's own. A deadline
	// on it is the credentials' expiry: a socket is closed then, and its
	// client may come back. ErrUnauthorized refuses, [RateLimited] for a
	// while; any other error is answered as an internal error and logged.
	//
	// It should take as long for an unknown project as for a wrong secret.
	Authorize(ctx context.Context, c Credentials) (context.Context, error)
}

// Credentials are what a client shows.
type Credentials struct {
	// Project is the wildcard {project} of the host's pattern, else the
	// path's segment before the last, in lower case. It may be empty.
	Project string
	// Secret is the password of `Authorization: Basic`, whose user name must
	// be empty, or what connection_init brought.
	Secret string
	// HasSecret tells an empty secret from none.
	HasSecret bool
	// Payload is the payload of a socket's connection_init as the client sent it, with
	// whatever fields its client and the Authorizer agree on, such as a bearer token.
	// It is a JSON object of at most 8 KiB without duplicate keys, nested no deeper
	// than Limits.Depth. It is nil over HTTP, at the handshake, and if connection_init
	// brought no object or did not come. The Authorizer owns it.
	Payload json.RawMessage
	// Request is the HTTP request. For a socket it is the handshake; after the
	// first decision about the socket it has only Method, URL, Host and
	// RemoteAddr. It must not be kept or changed.
	Request *http.Request
}

// StaticProjects is an [Authorizer] that knows its projects by id. Ids are
// compared in lower case; [New] panics on two that differ in case only, and on
// a project that requires a secret but has none. New takes a copy. The key ""
// is the project of clients whose URL names none.
type StaticProjects map[string]Project

// A Project is a tenant of [StaticProjects].
type Project struct {
	// Secret is what a client must show if it shows one. A project without a
	// Secret refuses clients that show one.
	Secret string
	// RequireSecret refuses clients that show none.
	RequireSecret bool
}

// Authorize admits a known project with the right secret or, unless the project
// requires one, with none.
func (p StaticProjects) Authorize(ctx context.Context, c Credentials) (context.Context, error) {
	known, err := p.digest()
	if err != nil {
		return nil, err
	}
	return known.Authorize(ctx, c)
}

// digests are StaticProjects with nothing left to compute but one digest,
// whoever asks and for whatever.
type digests map[string]tenant

type tenant struct {
	digest   [sha256.Size]byte
	required bool
	known    bool
	open     bool // it has no secret
}

func (p StaticProjects) digest() (digests, error) {
	ds := make(digests, len(p))
	for id, project := range p {
		lower := strings.ToLower(id)
		if _, twice := ds[lower]; twice {
			return nil, fmt.Errorf("chaingql: StaticProjects: two projects are called %q but for case", lower)
		}
		if project.RequireSecret && project.Secret == "" {
			return nil, fmt.Errorf("chaingql: StaticProjects: project %q requires a secret but has none", id)
		}
		ds[lower] = tenant{sha256.Sum256([]byte(project.Secret)), project.RequireSecret, true, project.Secret == ""}
	}
	return ds, nil
}

func (ds digests) Authorize(ctx context.Context, c Credentials) (context.Context, error) {
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

// everybody admits everyone to every project.
type everybody struct{}

func (everybody) Authorize(ctx context.Context, _ Credentials) (context.Context, error) {
	return ctx, nil
}

// credentials reads who asks from a request. It fails where there is an
// Authorization header of the Basic scheme that is not as it should be, or more
// than one header; not where everybody is admitted, whose headers may be for
// somebody else.
func (h *Handler) credentials(r *http.Request) (Credentials, error) {
	c := Credentials{Project: projectOf(r), Request: r}
	if h.auth == (everybody{}) {
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

// basicSecret reads the secret of an Authorization header. Other schemes are
// left to the host's Authorizer, which has the request.
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

// projectOf finds the project's id in a request: the wildcard {project} of the
// host's pattern, else the segment before the last. It is in lower case.
func projectOf(r *http.Request) string {
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
