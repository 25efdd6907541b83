package chaingql

import (
	"context"
	"errors"
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
	if h.auth == (everybody{}) {
		c.Request = nil // or it would be kept as long as the socket lives
	}
	s := &session{h: h, shown: c, endpoint: endpoint(r), socket: Socket{Project: c.Project, Remote: r.RemoteAddr}, by: asker{project: c.Project}}
	if h.events.traces() {
		s.by.trace = traceOf(r.Header.Get)
	}
	if c.HasSecret {
		// Without a secret a refusal is not yet said: connection_init may
		// bring one.
		ctx, _, refused := h.authorize(r)
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
		h.refuse(w, r, unavailable(false, "Sockets", "sockets"))
	case errors.Is(err, gqlws.ErrNotHijackable):
		e := h.mask(r.Context(), err)
		h.refuse(w, r, &refusal{status: http.StatusInternalServerError, Error: e})
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
	endpoint   string
	socket     Socket
	by         asker           // of its operations
	ctx        context.Context // the socket's
}

// Opened tells of the socket.
func (s *session) Opened(ctx context.Context, protocol string) {
	s.ctx, s.socket.Protocol, s.by.transport = ctx, protocol, protocol
	s.h.events.opened(ctx, s.socket)
}

// Closed tells of its end.
func (s *session) Closed(why error) { s.h.events.closed(s.ctx, s.socket, why) }

// Limit tells of a limit that stopped the client.
func (s *session) Limit(name string) { s.h.events.limit(s.ctx, name) }

// Init judges the credentials of connection_init beside those of the handshake.
func (s *session) Init(ctx context.Context, payload []byte) (context.Context, error) {
	said, err := s.said(payload)
	if err != nil {
		return nil, err
	}
	s.by.trace = traceOfFields(said).or(s.by.trace)
	given, err := s.initCredentials(said)
	if err != nil {
		return nil, err
	}
	shown := s.shown
	if s.socket.Protocol == "graphql-transport-ws" {
		s.shown.Request = nil // there is no second connection_init to be judged
	}
	if s.authorized != nil {
		ctx = outliving(s.authorized)
		if !given.HasSecret {
			return ctx, nil
		}
	} else if !given.HasSecret {
		given = shown
	}
	admitted, err := s.h.admit(ctx, given)
	if err != nil && !errors.Is(err, ErrUnauthorized) {
		no := s.h.refused(ctx, err)
		return nil, requestError(no.retry > 0, no.Error)
	}
	return admitted, err
}

// said reads the payload of connection_init, where there is something to look
// for.
func (s *session) said(payload []byte) (map[string]any, error) {
	open := s.h.auth == (everybody{})
	if payload == nil || open && !s.h.events.traces() {
		return nil, nil
	}
	v, err := readJSON(payload, s.h.opts.Limits.Depth)
	if err != nil && !open {
		return nil, err
	}
	fields, _ := v.(map[string]any)
	return fields, nil
}

// initCredentials reads the secret in connection_init: in Authorization as in
// the header that browsers cannot set, or in accessKey.
func (s *session) initCredentials(fields map[string]any) (c Credentials, err error) {
	c = s.shown
	c.Secret, c.HasSecret = "", false
	if s.h.auth == (everybody{}) {
		return c, nil
	}
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
func (s *session) Start(ctx context.Context, payload []byte, wake func()) (gqlws.Operation, error) {
	if payload == nil {
		return gqlws.Operation{}, requestError(false, badRequest("Must provide query string.").Error)
	}
	asked, refused := decodeRequest(payload, s.h.opts.Limits.Depth)
	if refused != nil {
		s.Limit(refused.Limit)
		return gqlws.Operation{}, requestError(false, refused.Error)
	}
	op, errs := s.h.prepare(ctx, asked)
	if errs != nil {
		return gqlws.Operation{}, requestError(false, errs...)
	}
	by := s.by.traced(asked.trace)
	if op.Kind() != ast.Subscription {
		return gqlws.Operation{Run: func(ctx context.Context) []byte {
			ok, closed := s.h.requests.enter()
			if !ok {
				no := unavailable(closed, "Requests", "requests")
				s.Limit(no.Limit)
				return appendErrors(nil, plan.Errors{no.Error})
			}
			defer s.h.requests.leave()
			return s.h.run(ctx, &call{path: s.endpoint, op: op}, by, nil)
		}}, nil
	}
	sub, err := s.h.subscribe(ctx, op, subscriber{by, "", wake})
	if err != nil {
		return gqlws.Operation{}, requestError(false, err)
	}
	return gqlws.Operation{Stream: socketStream{sub}}, nil
}
