// Package gqlws serves GraphQL over WebSocket. It implements two subprotocols: graphql-transport-ws and the legacy
// graphql-ws. A Session supplies the operations. The package runs them and limits the resources that a peer can use. It
// does not depend on a GraphQL schema.
package gqlws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Options configures the limits of a Server. If a numeric field is zero or negative, its limit is disabled.
type Options struct {
	// KeepAliveInterval is the time between two WebSocket pings. If the peer responds to neither of two consecutive
	// pings and sends no message meanwhile, the connection is cut.
	//
	// In graphql-transport-ws, KeepAliveInterval is also the time between the protocol's own ping messages, which start
	// after connection_init. In the legacy protocol, it is also the time between the first and the second keep-alive
	// message (ka). Later ka messages are sent five times per interval.
	KeepAliveInterval time.Duration

	// InitTimeout is the maximum time between the handshake and connection_init in graphql-transport-ws. After
	// InitTimeout, the connection is closed with code 4408.
	InitTimeout time.Duration

	// UnusedTimeout is the maximum time that a peer of the legacy protocol may stay connected if it has not sent
	// connection_init and has no running operation.
	UnusedTimeout time.Duration

	// FrameTimeout is the maximum time between the first and the last byte of a message. After FrameTimeout, the
	// connection is cut.
	FrameTimeout time.Duration

	// WriteTimeout is the maximum duration of a write to the peer without progress. Each 64 KiB that the peer has
	// accepted extend it, up to WriteTimeout plus one second per 16 KiB. After that time, the connection is cut without
	// a close frame, because only a part of the previous frame may have been written.
	WriteTimeout time.Duration

	// MaxMessage is the maximum size in bytes of a message from the peer. If a message is larger, the connection is
	// closed with code 1009.
	MaxMessage int64

	// MessageRate is the maximum number of messages per second that a peer may send. A burst may have three times that
	// number. Pings, pongs and empty fragments count as messages. Of the other fragments, 16 count as one message. If a
	// peer sends more, the connection is closed with code 1008.
	MessageRate int

	// MaxSubscriptions is the maximum number of open subscriptions on one connection. Further subscriptions are refused
	// with LIMIT_EXCEEDED.
	MaxSubscriptions int

	// MaxQueries is the maximum number of queries that run at the same time on one connection. A query counts until its
	// response has been written. If the peer sends one more query, that query waits, and the connection is not read
	// until it can start. If it has waited for QueryWait, it is refused with SERVICE_UNAVAILABLE.
	MaxQueries int

	// QueryWait is the maximum time that a query waits because MaxQueries queries are running.
	QueryWait time.Duration

	// MaxUnsent is the maximum total size in bytes of the query responses that a connection has not sent yet. While a
	// connection has more, it is not read, and its waiting queries do not start.
	MaxUnsent int

	// Account opens the account of a connection, which counts the connection's memory. A call to cut closes the
	// connection. It is allowed at any time and from any goroutine. If Account is nil, nothing is counted.
	Account func(peer Session, cut func()) Account

	// Usage returns the usage of the peer of a session, which the session may share with others of the same peer. If
	// Usage is nil, each session has its own.
	Usage func(peer Session) *xsync.Usage

	// MaxID is the maximum length in bytes of an operation id. The length is that of the id as received, with its
	// escape sequences but without its quotes.
	MaxID int

	// Lifetime returns the time after which a connection that is accepted now drains, as during a Shutdown. Nil means
	// that connections have no limit.
	Lifetime func() time.Duration

	// MaxSockets is the maximum number of connections. While there are that many, Accept returns ErrTooMany.
	MaxSockets int

	// Logger receives records about cut connections and internal errors. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Accept returns an error that wraps one of these errors if it has not written a response. Each comment names the HTTP
// status code with which the caller should then respond.
var (
	// ErrNoProtocol is returned if the peer offers no supported subprotocol: status 400. For this reason, the server
	// never sends close code 4406.
	ErrNoProtocol = errors.New("gqlws: no supported subprotocol offered")
	// ErrHandshake is returned if the request is not a valid WebSocket handshake: status 400.
	ErrHandshake = errors.New("gqlws: invalid handshake")
	// ErrTooMany is returned if there are already MaxSockets connections: status 503.
	ErrTooMany = errors.New("gqlws: too many connections")
	// ErrShutdown is returned if Shutdown has been called: status 503. Session.Closed and Stream.Close also receive
	// ErrShutdown if Shutdown has ended their connection.
	ErrShutdown = errors.New("gqlws: shutting down")
	// ErrNotHijackable is returned if the ResponseWriter cannot be hijacked: status 500. Examples are an HTTP/2 request
	// and a middleware that wraps the ResponseWriter without an Unwrap method.
	ErrNotHijackable = errors.New("gqlws: HTTP connection cannot be taken over (hijacked)")
)

// A Server serves WebSocket connections, from the handshake until they are closed. It is safe for concurrent use.
type Server struct {
	options Options
	log     *slog.Logger
	codecs  []codec // in order of preference
	writers *writerPool
	wheel   *wheel
	poller  poller

	lingering atomic.Int64 // number of readers that linger

	sockets *xsync.Gate // the connections, including handshakes in progress

	mu    sync.Mutex // held when sockets is shut, so that no connection escapes Shutdown
	conns map[*conn]struct{}
}

// NewServer returns a Server with the given options. It starts no goroutines.
func NewServer(o Options) *Server {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	writers := newWriterPool()
	return &Server{
		options: o,
		log:     log,
		codecs:  []codec{transport{maxID: o.MaxID}, legacy{maxID: o.MaxID}},
		writers: writers,
		wheel:   newWheel(writers, o.KeepAliveInterval/beatsPerInterval),
		sockets: xsync.NewGate(o.MaxSockets),
		conns:   make(map[*conn]struct{}),
	}
}

// Accept performs the WebSocket handshake for the request r and returns. Goroutines of the Server then serve the
// connection for ss, so that net/http can release the request. The contexts that ss receives have the values of r's
// context, but not its cancellation or deadline. Before calling Accept, the caller must check the origin and the
// credentials.
//
// If Accept returns an error, the error wraps one of this package's errors, nothing has been written to w, and the
// caller must respond, except to ErrGone: then the peer has disconnected during the handshake. If Accept returns nil,
// the caller must not write to w, and Session.Closed will be called. Header fields that the caller has set on w are
// sent with the upgrade response.
func (s *Server) Accept(w http.ResponseWriter, r *http.Request, ss Session) error {
	cd := s.codecFor(r.Header)
	if cd == nil {
		return ErrNoProtocol
	}
	switch ok, closed := s.sockets.Enter(); {
	case closed:
		return ErrShutdown
	case !ok:
		return ErrTooMany
	}
	c := newConn(context.WithoutCancel(r.Context()), s, cd, ss)
	started := false
	defer func() {
		if !started {
			c.cancel()
			s.sockets.Leave()
		}
	}()

	h := newHandshake(w, &s.options)
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       []string{cd.name()},
		InsecureSkipVerify: true, // the caller checks origins
		// These functions refer to c, not to h, because h would keep net/http's memory for the request alive.
		OnPingReceived: func(_ context.Context, payload []byte) bool { c.handlePing(payload); return false },
		OnPongReceived: func(context.Context, []byte) { c.handlePong() },
	})
	switch {
	case err == nil:
	case h.conn != nil:
		s.log.DebugContext(c.ctx, "gqlws: client disconnected during the handshake", guard.Error(err))
		_ = h.conn.Close()
		return ErrGone
	case h.hijackErr != nil:
		return fmt.Errorf("%w: %w", ErrNotHijackable, h.hijackErr)
	default:
		if v := h.header.Get("Sec-WebSocket-Version"); v != "" {
			w.Header().Set("Sec-WebSocket-Version", v) // the supported version (RFC 6455, 4.4)
		}
		return fmt.Errorf("%w: %w", ErrHandshake, err)
	}

	started = true
	c.start(ws, h.conn)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	closing := s.sockets.Closed()
	s.mu.Unlock()
	if s.options.Lifetime != nil {
		c.liveFor(s.options.Lifetime())
	}
	go c.serve()
	if closing {
		c.drain()
	}
	return nil
}

// Shutdown ends all connections and waits for their goroutines. On each connection, no new operation starts, and
// running queries finish. Then the peer receives the reason, and the connection is closed.
//
// This begins on each connection after a random delay, so that not all peers reconnect at the same time. With n
// connections, the maximum delay is (n-1) times 10 ms, but never more than half of the time until ctx's deadline, or 10
// seconds if ctx has no deadline. During its delay, a connection is served as before, except that a request for a new
// operation ends the delay.
//
// If ctx is done before all connections have ended, Shutdown cuts the remaining connections and returns an error that
// wraps ctx's error. After Shutdown, the Server cannot be used again. Further calls to Shutdown also wait for the
// connections, but do not change the delays.
func (s *Server) Shutdown(ctx context.Context) error {
	conns := s.close()
	wait := xsync.Spread(ctx, len(conns))
	for _, c := range conns {
		if wait > 0 {
			c.drainAfter(rand.N(wait))
		} else {
			c.drain()
		}
	}
	if err := s.sockets.Close(ctx); err != nil {
		for _, c := range s.close() {
			c.cut(&cutError{ErrCut, "shutdown took too long", err})
		}
		return fmt.Errorf("gqlws: shutdown: %w", err)
	}
	s.wheel.wg.Wait()
	s.writers.wg.Wait()
	s.poller.wg.Wait()
	return nil
}

// close makes Accept return ErrShutdown from now on, and returns the open connections.
func (s *Server) close() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sockets.Shut()
	return slices.Collect(maps.Keys(s.conns))
}

// release removes a connection that has ended.
func (s *Server) release(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.sockets.Leave()
}

// codecFor returns the codec of a subprotocol that the request header h offers, or nil if h offers no supported one. If
// h offers several, codecFor returns the codec that the server prefers.
func (s *Server) codecFor(h http.Header) codec {
	for _, cd := range s.codecs {
		for _, line := range h.Values("Sec-WebSocket-Protocol") {
			for offer := range strings.SplitSeq(line, ",") {
				if strings.EqualFold(strings.TrimSpace(offer), cd.name()) {
					return cd
				}
			}
		}
	}
	return nil
}
