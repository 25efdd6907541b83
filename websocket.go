package chaingql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/strictjson"
)

// serveSocket responds to a WebSocket handshake.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !h.origins.Allowed(r) {
		no := newHTTPError(statusForbidden, codeBadRequest, "Pages of this origin are not allowed to open sockets.")
		h.events.denied(r.Context(), denial(r, projectOf(r), errForeignOrigin), no)
		h.writeError(w, r, no)
		return
	}
	if guard.FilesLow() {
		h.writeErrorUnread(w, r, noFiles())
		return
	}
	if len(r.RequestURI)+len(r.Host) > maxHandshakeURL {
		h.writeError(w, r, overLimit(statusURLTooLarge, "",
			fmt.Sprintf("Path, query and host of a handshake exceed the limit of %d bytes.", maxHandshakeURL)))
		return
	}
	c, err := h.credentials(r)
	if err != nil {
		no := unauthorized()
		h.events.denied(r.Context(), denial(r, c.Project, err), no)
		h.writeError(w, r, no)
		return
	}
	if h.auth == (allowAll{}) {
		c.Request = nil // otherwise the request would be kept as long as the socket is open
	}
	s := &session{h: h, shown: c, endpoint: endpoint(r), by: caller{project: c.Project},
		socket: Socket{Project: c.Project, Remote: r.RemoteAddr}, denial: denial(r, c.Project, nil)}
	if h.events.traces() {
		s.by.trace = traceOf(r.Header.Get)
	}
	if c.HasSecret {
		// A client without a secret is not refused here, because connection_init may have a secret.
		ctx, _, refused := h.authorize(r, &slot{h: h})
		if refused != nil {
			h.writeError(w, r, refused)
			return
		}
		s.authorized = ctx
		s.shown.Request = withoutHeaders(r)
	}
	switch err := h.sockets.Accept(w, r, s); {
	case err == nil:
	case errors.Is(err, gqlws.ErrShutdown):
		h.writeError(w, r, shuttingDown())
	case errors.Is(err, gqlws.ErrTooMany):
		h.writeError(w, r, unavailable(false, "Connections", "sockets"))
	case errors.Is(err, gqlws.ErrNotHijackable):
		e := h.mask(r.Context(), err)
		h.writeError(w, r, &httpError{status: statusInternal, Error: e})
	case errors.Is(err, gqlws.ErrNoProtocol):
		h.writeError(w, r, unreadable("The subprotocol must be graphql-transport-ws or graphql-ws."))
	default:
		h.writeError(w, r, unreadable("The WebSocket handshake is malformed."))
	}
}

// maxHandshakeURL is the maximum size in bytes of the URL and the host of a handshake together, because a socket keeps
// them as long as it is open.
const maxHandshakeURL = 8 << 10

// A session serves the client of one socket. It implements gqlws.Session.
type session struct {
	h          *Handler
	shown      Credentials     // the credentials of the handshake
	authorized context.Context // the Authorizer's context for shown; nil if shown was not authorized
	endpoint   string
	socket     Socket
	denial     Denial           // reported if connection_init is refused
	by         caller           // describes the client to hooks and the log
	ctx        context.Context  // the context of the socket
	share      *connectionShare // the bytes of the socket in the budget of responses
	traceBytes int              // the size of by.trace, if it is counted
}

// Opened stores the context and the subprotocol of the socket, logs that it was opened, and calls Hooks.SocketOpened.
func (s *session) Opened(ctx context.Context, protocol string) {
	s.ctx, s.socket.Protocol, s.by.transport = ctx, Transport(protocol), Transport(protocol)
	s.h.events.opened(ctx, s.socket)
}

// Closed logs the end of the socket and calls Hooks.SocketClosed.
func (s *session) Closed(why error) {
	s.h.subscriptionQuota.release(s.traceBytes)
	s.h.events.closed(s.ctx, s.socket, why)
}

// Limit reports that a limit was hit.
func (s *session) Limit(name string) { s.h.events.limit(s.ctx, name) }

// Init admits or refuses the client of a connection_init.
func (s *session) Init(ctx context.Context, payload []byte) (context.Context, error) {
	admitted, err := s.authorizeInit(ctx, payload)
	if err == nil {
		return admitted, nil
	}
	no := s.h.refused(ctx, err)
	d := s.denial
	d.Err = err
	s.h.events.denied(ctx, d, no)
	if no.status == statusUnauthorized {
		return nil, err
	}
	return nil, requestError(no.retry > 0, no.Error)
}

// authorizeInit authorizes the credentials of connection_init together with those of the handshake.
func (s *session) authorizeInit(ctx context.Context, payload []byte) (context.Context, error) {
	said, err := s.initPayload(payload)
	if err != nil {
		return nil, err
	}
	s.keepTrace(traceOfFields(said))
	given, err := s.initCredentials(said)
	if err != nil {
		return nil, err
	}
	if said != nil {
		given.Payload = bytes.Clone(payload)
	}
	if s.socket.Protocol == TransportGraphQLTransportWS {
		s.shown.Request = nil // no second connection_init can follow
	} else if s.shown.Request != nil {
		s.shown.Request = withoutHeaders(s.shown.Request)
	}
	if s.authorized != nil {
		ctx = socketContext{ctx, context.WithoutCancel(s.authorized), s.authorized}
		if len(said) == 0 {
			return ctx, nil
		}
	}
	return s.h.admit(ctx, given)
}

// keepTrace sets the trace context of the operations that have none of their own: that of the first connection_init, or
// that of the handshake. It is kept and counted as long as the socket is open, because subscriptions may share it. If
// there is no room, it is dropped.
func (s *session) keepTrace(t Trace) {
	if s.traceBytes > 0 || !s.h.events.traces() {
		return
	}
	s.by.trace = t.or(s.by.trace)
	n := s.by.trace.size()
	if full := s.h.subscriptionQuota.reserve(n); full != nil {
		s.Limit(full.Limit)
		s.by.trace = Trace{}
		return
	}
	s.traceBytes = n
}

// withoutHeaders returns the parts of the handshake that a session keeps after the first decision of the Authorizer. It
// drops the headers, because they can be megabytes and a socket may stay open for a long time.
func withoutHeaders(r *http.Request) *http.Request {
	return &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, RemoteAddr: r.RemoteAddr}
}

// maxPayload is the maximum size in bytes of a connection_init payload that is passed to an Authorizer. It is the size
// of headers that servers commonly accept.
const maxPayload = 8 << 10

var errPayloadTooLarge = errors.New("chaingql: payload of connection_init is too large")

// initPayload parses the payload of connection_init. It returns nil if neither the Authorizer nor a hook needs it.
func (s *session) initPayload(payload []byte) (map[string]any, error) {
	open := s.h.auth == (allowAll{})
	if payload == nil || open && !s.h.events.traces() {
		return nil, nil
	}
	if !open && len(payload) > maxPayload {
		return nil, errPayloadTooLarge
	}
	v, err := strictjson.Read(payload, s.h.opts.Limits.Depth)
	if err != nil && !open {
		return nil, fmt.Errorf("%w: payload of connection_init: %w", ErrUnauthorized, err)
	}
	fields, _ := v.(map[string]any)
	return fields, nil
}

// initCredentials returns the credentials of the handshake. A secret in connection_init replaces that of the handshake.
// The field Authorization has the form of the HTTP header of that name, which browsers cannot set for a WebSocket. The
// field accessKey counts only if there is no Authorization.
func (s *session) initCredentials(fields map[string]any) (Credentials, error) {
	c := s.shown
	if s.h.auth == (allowAll{}) {
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

// A socketContext is the context of a socket with the values and the deadline of the context that the Authorizer
// returned for the handshake. It is done when the socket ends. The Authorizer's own context is done when the handshake
// ends, and the socket itself ends at the deadline, when the credentials expire.
type socketContext struct {
	context.Context
	values, authorized context.Context
}

// Value returns the value of the Authorizer's context. The fallback is for the context package, which uses a private
// key to find the parent that cancels a context.
func (c socketContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (c socketContext) Deadline() (time.Time, bool) { return c.authorized.Deadline() }

// Start prepares an operation.
func (s *session) Start(ctx context.Context, payload []byte) (gqlws.Operation, error) {
	if payload == nil {
		return gqlws.Operation{}, requestError(false, badRequest("Must provide query string.").Error)
	}
	depth := s.h.opts.Limits.Depth
	// A waiting message stays in memory. Small ones are not refused, because all clients may reconnect at once.
	limited := len(payload) > freeBytes
	p, refused := s.h.preparing.run(len(payload), limited, func(compiled bool) (prepared, *httpError) {
		asked, refused := decodeRequest(payload, depth)
		if refused != nil {
			return prepared{}, refused
		}
		return s.h.prepare(ctx, asked, compiled), nil
	})
	if refused != nil {
		s.Limit(refused.Limit)
		return gqlws.Operation{}, requestError(false, refused.Error)
	}
	if p.errs != nil {
		return gqlws.Operation{}, requestError(false, p.errs...)
	}
	op, by := p.op, s.by.traced(p.trace)
	if op.Kind() != ast.Subscription {
		return gqlws.Operation{Run: func(ctx context.Context) []byte {
			return s.runQuery(ctx, op, by)
		}, Size: sizeOf(op.Cost()), Memory: queryMemory(op, len(payload)), Counted: true}, nil
	}
	ownTrace := 0
	if p.trace.Parent != "" {
		ownTrace = p.trace.size()
	}
	return gqlws.Operation{Open: func(wake func()) (gqlws.Stream, error) {
		sub, err := s.h.subscribe(ctx, op, subscriber{by, ownTrace, "", wake})
		if err != nil {
			return nil, requestError(false, err)
		}
		if blocks, ok := sub.(*subscription); ok {
			return socketStream[*subscription]{blocks}, nil
		}
		return socketStream[stream]{sub}, nil
	}}, nil
}

// queryMemory estimates the memory in bytes of a query that was received in a message of n bytes.
func queryMemory(op *plan.Bound, n int) int {
	use := op.MemoryUse()
	return use.Shared + use.Text + use.Variables + n
}

// A socketStream adapts a subscription to gqlws. If S is a pointer, the adapter needs no memory of its own.
type socketStream[S stream] struct{ stream S }

func (s socketStream[S]) Next() (response []byte, more bool, err error) {
	response, err = s.stream.next()
	var end *ending
	if err != nil && errors.As(err, &end) {
		return nil, false, requestError(end.lost, end.err)
	}
	return response, s.stream.more(), err
}

func (s socketStream[S]) Cursor() string { return s.stream.cursor() }

func (s socketStream[S]) Pending() *gqlws.RequestError {
	end := s.stream.pending()
	if end == nil {
		return nil
	}
	return requestError(end.lost, end.err)
}

func (s socketStream[S]) Close(why error) { s.stream.close(why) }

// runQuery runs a query and counts its response in the account of the socket.
func (s *session) runQuery(ctx context.Context, op *plan.Bound, by caller) (text []byte) {
	h := s.h
	out := &responseShare{budget: h.responses}
	defer func() { h.responses.Move(&out.Reservation, &s.share.Reservation, len(text)) }()
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
	text = h.run(ctx, &call{path: s.endpoint, op: op}, by, nil, out)
	if cap(text)-len(text) > freeBytes {
		// The connection counts the length of text, not its capacity. After a response has exceeded ResponseBytes,
		// text is a short error in a buffer of megabytes.
		text = bytes.Clone(text)
	}
	if n := len(text) - out.Bytes(); n > 0 && !h.responses.Add(&out.Reservation, n, 0) {
		// Otherwise the account would cut the socket and end its subscriptions.
		s.Limit("PendingResponseBytes")
		return appendErrors(nil, plan.Errors{errNoRoom()})
	}
	return text
}
