package chaingql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
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
	c, err := h.credentials(r)
	if err != nil {
		no := unauthorized()
		h.events.denied(r.Context(), denial(r, c.Project, err), no)
		h.writeError(w, r, no)
		return
	}
	if no := h.tooLongHandshake(c); no != nil {
		h.writeError(w, r, no)
		return
	}
	if h.auth == (allowAll{}) {
		c.Request = nil // otherwise the request would be kept as long as the socket is open
	}
	c.Project = strings.Clone(c.Project) // it may be a part of the URL, which would be kept with it
	s := &session{h: h, shown: c, by: caller{project: c.Project}, remote: r.RemoteAddr, endpoint: endpoint(r)}
	s.path = s.endpoint[len(r.Host):]
	if h.events.traces() {
		s.by.trace = traceOf(r.Header.Get)
	}
	if c.HasSecret {
		// A client without a secret is not refused here, because connection_init may have a secret.
		ctx, _, refused := h.authorize(r, &slot{h: h, remote: s.remote})
		if refused != nil {
			h.writeError(w, r, refused)
			return
		}
		s.authorized = ctx
		s.shown.Request = withoutHeaders(r)
	}
	s.peer = h.peers.enter(s.remote)
	opened := false
	defer func() {
		if !opened { // otherwise, Closed will be called
			h.peers.leave(s.peer)
		}
	}()
	s.client.Usage, s.client.Live = &s.peer.pages, &s.peer.live
	err = h.sockets.Accept(w, r, s)
	opened = err == nil
	switch {
	case err == nil, errors.Is(err, gqlws.ErrGone):
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

// A socket may keep the URL, the host and the secret of its handshake as long as it is open. The headers are kept
// until connection_init if the Authorizer receives them only then. net/http admits a megabyte of them by default.
const (
	maxHandshake        = 8 << 10 // bytes of the URL, the host and the secret
	maxHandshakeHeaders = 16 << 10
	headerCost          = 128 // bytes that are counted for a header in addition to its name and value
)

// tooLongHandshake returns the response to the handshake of c if it exceeds a limit, and nil otherwise.
func (h *Handler) tooLongHandshake(c Credentials) *httpError {
	r := c.Request
	part, most, status := "", 0, statusURLTooLarge
	switch {
	case len(r.RequestURI)+len(r.Host)+len(c.Secret) > maxHandshake:
		part, most = "Path, query, host and secret", maxHandshake
	case h.auth != (allowAll{}) && !c.HasSecret && headerBytes(r) > maxHandshakeHeaders:
		part, most, status = "The headers", maxHandshakeHeaders, statusHeadersTooLarge
	default:
		return nil
	}
	return overLimit(status, "", fmt.Sprintf("%s of a handshake exceed the limit of %d bytes.", part, most))
}

func headerBytes(r *http.Request) (n int) {
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + headerCost
		}
	}
	for name := range r.Trailer { // net/http keeps the announced names
		n += len(name) + headerCost
	}
	return n
}

// withoutHeaders returns the parts of the handshake that a session keeps after the first decision of the Authorizer. It
// drops the headers, because they can be megabytes and a socket may stay open for a long time.
func withoutHeaders(r *http.Request) *http.Request {
	return &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, RemoteAddr: r.RemoteAddr}
}

// A session serves the client of one socket. It implements gqlws.Session.
type session struct {
	h          *Handler
	shown      Credentials     // the credentials of the handshake
	authorized context.Context // the Authorizer's context for shown; nil if shown was not authorized
	endpoint   string
	path       string           // the part of endpoint after the host
	remote     string           // the network address of the client
	by         caller           // describes the client to hooks and the log
	ctx        context.Context  // the context of the socket
	left       func() bool      // reports whether the client has disconnected, possibly before ctx is done
	share      *connectionShare // the bytes of the socket in the budget of responses
	peer       *peer            // whose client this is
	client     blocklog.Client  // reads stored blocks for the subscriptions of the socket
	traceBytes int              // the size of by.trace, if it is counted
}

// Opened stores the context and the subprotocol of the socket, logs that it was opened, and calls Hooks.SocketOpened.
func (s *session) Opened(ctx context.Context, protocol string, left func() bool) {
	s.ctx, s.left, s.by.transport = ctx, left, Transport(protocol)
	s.h.events.opened(ctx, s.socket())
}

// Blocked reports that a write to the client has begun or ended.
func (s *session) Blocked(blocked bool) { s.client.SetBlocked(blocked) }

// Closed logs the end of the socket and calls Hooks.SocketClosed.
func (s *session) Closed(why error) {
	s.h.subscriptionQuota.release(s.traceBytes, &s.peer.held)
	s.h.peers.leave(s.peer)
	s.h.events.closed(s.ctx, s.socket(), why)
}

func (s *session) socket() Socket {
	return Socket{Protocol: s.by.transport, Project: s.by.project, Remote: s.remote}
}

// Limit reports that a limit was hit.
func (s *session) Limit(name string) { s.h.events.limit(s.ctx, name) }

// Start prepares an operation.
func (s *session) Start(ctx context.Context, payload []byte) (gqlws.Operation, error) {
	if payload == nil {
		return gqlws.Operation{}, requestError(false, badRequest("Must provide query string.").Error)
	}
	depth := s.h.opts.Limits.Depth
	p, refused := s.h.preparing.run(ctx, len(payload), true, func(compiled bool) (prepared, *httpError) {
		if !compiled && s.left() { // otherwise clients could send many new documents, over one socket at a time
			return prepared{}, clientLeft()
		}
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
	return gqlws.Operation{Open: func(wake xsync.Waker) (gqlws.Stream, error) {
		sub, err := s.h.subscribe(ctx, op, subscriber{by, ownTrace, "", wake, &s.client, s.peer})
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

func (s socketStream[S]) Behind() bool { return s.stream.behind() }

func (s socketStream[S]) Position() (cursor string, own *gqlws.RequestError) {
	cursor, end := s.stream.position()
	if end != nil {
		own = requestError(end.lost, end.err)
	}
	return cursor, own
}

func (s socketStream[S]) Close(why error) { s.stream.close(why) }

// requestError converts errors to the type of gqlws.
func requestError(lost bool, errs ...*plan.Error) *gqlws.RequestError {
	e := &gqlws.RequestError{Lost: lost}
	for _, err := range errs {
		e.Errors = append(e.Errors, json.RawMessage(err.AppendJSON(nil)))
	}
	return e
}

// runQuery runs a query and counts its response in the account of the socket.
func (s *session) runQuery(ctx context.Context, op *plan.Bound, by caller) (text []byte) {
	h := s.h
	out := &responseShare{budget: h.responses}
	defer func() { h.responses.Move(&out.Reservation, &s.share.Reservation, len(text)) }()
	gate, reserved := h.requests.Enter(mathrand.Uint32())
	if gate == nil {
		return appendErrors(nil, plan.Errors{shuttingDown().Error})
	}
	defer gate.Leave()
	work := slot{h: h, remote: s.remote, reserved: reserved}
	if no := work.take(); no != nil {
		s.Limit(no.Limit)
		return appendErrors(nil, plan.Errors{no.Error})
	}
	defer work.leave()
	text = h.run(ctx, &call{endpoint: s.endpoint, remote: s.remote, by: by, op: op}, nil, out)
	if cap(text)-len(text) > freeBytes {
		// The connection counts the length of text, not its capacity. After a response has exceeded ResponseBytes,
		// text is a short error in a buffer of megabytes.
		text = bytes.Clone(text)
	}
	if n := len(text) - out.Bytes(); n > 0 && !h.responses.Add(&out.Reservation, n, 0) {
		// Otherwise the account would cut the socket and end its subscriptions.
		s.Limit("PendingResponseBytes")
		return appendErrors(nil, plan.Errors{noRoom().Error})
	}
	return text
}
