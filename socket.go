package chaingql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// serveSocket answers a WebSocket handshake.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !h.origins.allowed(r) {
		no := refuse(http.StatusForbidden, codeBadRequest, "Pages of this origin may not open sockets here.")
		h.events.denied(r.Context(), denial(r, projectOf(r), errForeignOrigin), no)
		h.refuse(w, r, no)
		return
	}
	if len(r.RequestURI)+len(r.Host) > maxHandshakeURL {
		h.refuse(w, r, overLimit(http.StatusRequestEntityTooLarge, "",
			fmt.Sprintf("Path, query and host of a handshake exceed the limit of %d bytes.", maxHandshakeURL)))
		return
	}
	c, err := h.credentials(r)
	if err != nil {
		no := unauthorized()
		h.events.denied(r.Context(), denial(r, c.Project, err), no)
		h.refuse(w, r, no)
		return
	}
	if h.auth == (everybody{}) {
		c.Request = nil // or it would be kept as long as the socket lives
	}
	s := &session{h: h, shown: c, endpoint: endpoint(r), by: asker{project: c.Project},
		socket: Socket{Project: c.Project, Remote: r.RemoteAddr}, denial: denial(r, c.Project, nil)}
	if h.events.traces() {
		s.by.trace = traceOf(r.Header.Get)
	}
	if c.HasSecret {
		// Without a secret a refusal is not yet said: connection_init may
		// bring one.
		ctx, _, refused := h.authorize(r, &slot{h: h})
		if refused != nil {
			h.refuse(w, r, refused)
			return
		}
		s.authorized = ctx
		s.shown.Request = withoutHeaders(r)
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

// maxHandshakeURL is the size in bytes of the longest URL and host of a handshake, which a socket keeps for its life.
const maxHandshakeURL = 8 << 10

// isUpgrade reports whether a request asks for a WebSocket.
func isUpgrade(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	for _, v := range r.Header["Upgrade"] {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(token), "websocket") {
				return true
			}
		}
	}
	return false
}

// A session is one socket's client: who it is and what it asks for.
type session struct {
	h          *Handler
	shown      Credentials     // at the handshake
	authorized context.Context // by them; nil where they are still to be judged
	endpoint   string
	socket     Socket
	denial     Denial          // what is reported if connection_init is refused
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

// Init lets the client in or refuses it.
func (s *session) Init(ctx context.Context, payload []byte) (context.Context, error) {
	admitted, err := s.judge(ctx, payload)
	if err == nil {
		return admitted, nil
	}
	no := s.h.refused(ctx, err)
	d := s.denial
	d.Err = err
	s.h.events.denied(ctx, d, no)
	if no.status == http.StatusUnauthorized {
		return nil, err
	}
	return nil, requestError(no.retry > 0, no.Error)
}

// judge judges the credentials of connection_init with those of the handshake.
func (s *session) judge(ctx context.Context, payload []byte) (context.Context, error) {
	said, err := s.said(payload)
	if err != nil {
		return nil, err
	}
	s.by.trace = traceOfFields(said).or(s.by.trace)
	given, err := s.initCredentials(said)
	if err != nil {
		return nil, err
	}
	if said != nil {
		given.Payload = bytes.Clone(payload)
	}
	if s.socket.Protocol == "graphql-transport-ws" {
		s.shown.Request = nil // there is no second connection_init to be judged
	} else if s.shown.Request != nil {
		s.shown.Request = withoutHeaders(s.shown.Request)
	}
	if s.authorized != nil {
		ctx = outliving(s.authorized)
		if len(said) == 0 {
			return ctx, nil
		}
	}
	return s.h.admit(ctx, given)
}

// withoutHeaders returns what a session keeps of its handshake after the first decision: headers can have megabytes, and
// a socket lives long.
func withoutHeaders(r *http.Request) *http.Request {
	return &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, RemoteAddr: r.RemoteAddr}
}

// maxPayload is the size in bytes of the largest payload of connection_init that an Authorizer is shown: as much as
// servers take of headers.
const maxPayload = 8 << 10

var errPayloadTooLarge = errors.New("chaingql: payload of connection_init is too large")

// said reads the payload of connection_init, where there is something to look
// for.
func (s *session) said(payload []byte) (map[string]any, error) {
	open := s.h.auth == (everybody{})
	if payload == nil || open && !s.h.events.traces() {
		return nil, nil
	}
	if !open && len(payload) > maxPayload {
		return nil, errPayloadTooLarge
	}
	v, err := readJSON(payload, s.h.opts.Limits.Depth)
	if err != nil && !open {
		return nil, fmt.Errorf("%w: payload of connection_init: %w", ErrUnauthorized, err)
	}
	fields, _ := v.(map[string]any)
	return fields, nil
}

// initCredentials returns the credentials of the handshake, with the secret of
// connection_init if it has one: in Authorization as in the header that browsers
// cannot set, or in accessKey.
func (s *session) initCredentials(fields map[string]any) (Credentials, error) {
	c := s.shown
	if s.h.auth == (everybody{}) {
		return c, nil
	}
	if header, ok := fields["Authorization"].(string); ok {
		secret, ok, err := basicSecret(header)
		if ok || err != nil {
			c.Secret, c.HasSecret = secret, ok
		}
		return c, err
	}
	if key, ok := fields["accessKey"].(string); ok {
		c.Secret, c.HasSecret = key, true
	}
	return c, nil
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
func (s *session) Start(ctx context.Context, payload []byte) (gqlws.Operation, error) {
	if payload == nil {
		return gqlws.Operation{}, requestError(false, badRequest("Must provide query string.").Error)
	}
	turn := preparation{of: &s.h.preparing}
	defer turn.end()
	turn.begin(len(payload))
	asked, refused := decodeRequest(payload, s.h.opts.Limits.Depth)
	if refused != nil {
		s.Limit(refused.Limit)
		return gqlws.Operation{}, requestError(false, refused.Error)
	}
	op, errs := s.h.prepare(ctx, asked)
	turn.end()
	if errs != nil {
		return gqlws.Operation{}, requestError(false, errs...)
	}
	by := s.by.traced(asked.trace)
	if op.Kind() != ast.Subscription {
		return gqlws.Operation{Run: func(ctx context.Context) []byte {
			return s.answer(ctx, op, by)
		}, Size: sizeOf(op.Cost())}, nil
	}
	return gqlws.Operation{Open: func(wake func()) (gqlws.Stream, error) {
		sub, err := s.h.subscribe(ctx, op, subscriber{by, "", wake})
		if err != nil {
			return nil, requestError(false, err)
		}
		return socketStream{sub}, nil
	}}, nil
}

// answer runs a query. The bytes of its answer are counted until it is returned;
// then they are the connection's.
func (s *session) answer(ctx context.Context, op *plan.Bound, by asker) []byte {
	h := s.h
	if ok, _ := h.requests.Enter(); !ok {
		return appendErrors(nil, plan.Errors{shuttingDown().Error})
	}
	defer h.requests.Leave()
	work := slot{h: h}
	if no := work.take(); no != nil {
		s.Limit(no.Limit)
		return appendErrors(nil, plan.Errors{no.Error})
	}
	defer work.leave()
	out := &outgoing{budget: h.answers}
	defer h.answers.free(&out.hold)
	text := h.run(ctx, &call{path: s.endpoint, op: op}, by, nil, out)
	if cap(text)-len(text) > freeBytes {
		// The connection counts the length. One that exceeded AnswerBytes has a short
		// error in memory of megabytes.
		text = bytes.Clone(text)
	}
	return text
}
