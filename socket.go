package chaingql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// serveSocket answers a WebSocket handshake.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !h.origins.allowed(r) {
		h.refuse(w, r, refuse(http.StatusForbidden, codeBadRequest, "Pages of this origin may not open sockets here."))
		return
	}
	c, err := h.credentials(r)
	if err != nil {
		h.refuse(w, r, unauthorized())
		return
	}
	s := &session{h: h, shown: c, call: call{endpoint(r)}}
	if c.HasSecret {
		// Without a secret a refusal is not yet said: connection_init may
		// bring one.
		ctx, refused := h.authorize(r)
		if refused != nil {
			h.refuse(w, r, refused)
			return
		}
		s.authorized = ctx
	}
	switch err := h.sockets.Accept(w, r, s); {
	case err == nil:
	case errors.Is(err, gqlws.ErrShutdown):
		h.refuse(w, r, shuttingDown())
	case errors.Is(err, gqlws.ErrTooMany):
		h.refuse(w, r, unavailable(false, "sockets"))
	case errors.Is(err, gqlws.ErrNotHijackable):
		e := h.mask(r.Context(), err)
		h.refuse(w, r, &refusal{http.StatusInternalServerError, e})
	case errors.Is(err, gqlws.ErrNoProtocol):
		h.refuse(w, r, badRequest("The subprotocol must be graphql-transport-ws or graphql-ws."))
	default:
		h.refuse(w, r, badRequest("The WebSocket handshake is malformed."))
	}
}

// A session is one socket's client: who it is and what it asks for.
type session struct {
	h          *Handler
	shown      Credentials     // at the handshake
	authorized context.Context // by them; nil where they are still to be judged
	call       call
}

// Init judges the credentials of connection_init beside those of the handshake.
func (s *session) Init(ctx context.Context, payload []byte) (context.Context, error) {
	given, err := s.initCredentials(payload)
	if err != nil {
		return nil, err
	}
	if s.authorized != nil {
		ctx = outliving(s.authorized)
		if !given.HasSecret {
			return ctx, nil
		}
	} else if !given.HasSecret {
		given = s.shown
	}
	admitted, err := s.h.admit(ctx, given)
	if err != nil && !errors.Is(err, ErrUnauthorized) {
		// Trouble of the host's must not read as a wrong secret.
		return nil, requestError(true, s.h.mask(ctx, fmt.Errorf("authorizer: %w", err)))
	}
	return admitted, err
}

// initCredentials reads the secret in connection_init: in Authorization as in
// the header that browsers cannot set, or in accessKey.
func (s *session) initCredentials(payload []byte) (Credentials, error) {
	c := s.shown
	c.Secret, c.HasSecret = "", false
	if payload == nil || s.h.auth == (everybody{}) {
		return c, nil
	}
	v, err := readJSON(payload, s.h.opts.Limits.Depth)
	if err != nil {
		return c, err
	}
	fields, _ := v.(map[string]any)
	if header, ok := fields["Authorization"].(string); ok {
		c.Secret, c.HasSecret, err = basicSecret(header)
	} else if key, ok := fields["accessKey"].(string); ok {
		c.Secret, c.HasSecret = key, true
	}
	return c, err
}

// outliving keeps a context's values and its deadline, but not its end: the
// request's ends with the handshake, and a deadline is the credentials' expiry,
// which the socket sees to.
func outliving(ctx context.Context) context.Context {
	lasting := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return expiring{lasting, deadline}
	}
	return lasting
}

type expiring struct {
	context.Context
	deadline time.Time
}

func (e expiring) Deadline() (time.Time, bool) { return e.deadline, true }

// Start makes an operation of what a client sent.
func (s *session) Start(_ context.Context, payload []byte, wake func()) (gqlws.Operation, error) {
	if payload == nil {
		return gqlws.Operation{}, requestError(false, badRequest("Must provide query string.").Error)
	}
	asked, refused := decodeRequest(payload, s.h.opts.Limits.Depth)
	if refused != nil {
		return gqlws.Operation{}, requestError(false, refused.Error)
	}
	op, errs := s.h.prepare(asked)
	if errs != nil {
		return gqlws.Operation{}, requestError(false, errs...)
	}
	if op.Kind() != ast.Subscription {
		return gqlws.Operation{Run: func(ctx context.Context) []byte { return op.Run(ctx, &s.call, nil) }}, nil
	}
	sub, err := s.h.subscribe(op, "", wake)
	if err != nil {
		return gqlws.Operation{}, requestError(false, err)
	}
	return gqlws.Operation{Stream: socketStream{sub}}, nil
}

// requestError puts errors in the terms of the sockets.
func requestError(lost bool, errs ...*plan.Error) error {
	e := &gqlws.RequestError{Lost: lost}
	for _, err := range errs {
		e.Errors = append(e.Errors, json.RawMessage(err.AppendJSON(nil)))
	}
	return e
}
