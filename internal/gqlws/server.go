// Package gqlws serves GraphQL over WebSockets. It implements the subprotocols graphql-transport-ws and graphql-ws
// (the legacy one), runs operations for a Session, and limits the resources that a peer can use. It does not depend
// on a schema.
package gqlws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Options configures the limits of a Server. If a field is zero or negative, its limit is off.
type Options struct {
	// KeepAliveInterval is the interval of WebSocket pings and, after connection_init, of the pings that graphql-transport-ws
	// defines itself. With graphql-ws it is the time between the first and the second ka; after that, five ka are sent
	// per interval. If no WebSocket pong arrives within two intervals, the connection is cut.
	KeepAliveInterval time.Duration

	// InitTimeout is the maximum time from the handshake to connection_init with graphql-transport-ws. After it, the
	// connection is closed with code 4408.
	InitTimeout time.Duration

	// UnusedTimeout is the maximum time that a peer of the legacy protocol may be connected without connection_init and
	// without a running operation.
	UnusedTimeout time.Duration

	// FrameTimeout is the maximum time from the first byte of a message to its last.
	FrameTimeout time.Duration

	// WriteTimeout is the maximum time of one write on the connection. After it, the connection is cut without a close
	// frame, because part of a frame may have been written.
	WriteTimeout time.Duration

	// MaxMessage is the maximum size of a message in bytes. If a message is larger, the connection is closed with code
	// 1009.
	MaxMessage int64

	// MessageRate is the maximum number of messages, pings, pongs and empty fragments per second, with bursts of three
	// times that number. 16 other fragments count as one message. If a peer sends more, the connection is closed with
	// code 1008.
	MessageRate int

	// MaxSubscriptions is the maximum number of open subscriptions on one connection. Further ones are refused.
	MaxSubscriptions int

	// MaxQueries is the maximum number of queries that run on one connection. A query counts until its response has
	// been written. If one more query arrives, the connection is not read until a query has ended. After QueryWait the
	// additional query is refused with SERVICE_UNAVAILABLE.
	MaxQueries int

	// QueryWait is the maximum time that a query waits because of MaxQueries.
	QueryWait time.Duration

	// MaxUnsent is the maximum size in bytes of unsent query responses. If a connection has more, it is not read, and
	// queries that are already read do not start.
	MaxUnsent int

	// Account opens the account of a connection. A call of cut closes that connection; cut may be called at any time,
	// from any goroutine. If Account is nil, nothing is counted.
	Account func(peer Session, cut func()) Account

	// MaxID is the maximum length in bytes of an operation id as received, without its quotes.
	MaxID int

	// MaxSockets is the maximum number of connections. If there are that many, Accept returns ErrTooMany.
	MaxSockets int

	// Logger receives records about cut connections and internal errors. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Errors of Accept. If it returns one, no response has been written. The number is the HTTP status to respond with.
var (
	// ErrNoProtocol is returned if the peer offers no supported subprotocol (400). Close code 4406 is therefore never
	// sent.
	ErrNoProtocol = errors.New("gqlws: no supported subprotocol offered")
	// ErrHandshake is returned if the request is not a valid WebSocket handshake (400).
	ErrHandshake = errors.New("gqlws: invalid handshake")
	// ErrTooMany is returned if there are MaxSockets connections (503).
	ErrTooMany = errors.New("gqlws: too many connections")
	// ErrShutdown is returned after a call of Shutdown (503). It is also passed to Session.Closed and Stream.Close if
	// Shutdown ended the connection.
	ErrShutdown = errors.New("gqlws: shutting down")
	// ErrNotHijackable is returned if the ResponseWriter cannot be hijacked (500), for example with HTTP/2 or if a
	// middleware wraps it without Unwrap.
	ErrNotHijackable = errors.New("gqlws: connection cannot be taken over")
)

// A Server owns WebSocket connections from the handshake until they are closed. It is safe for concurrent use.
type Server struct {
	options Options
	log     *slog.Logger
	codecs  []codec // in order of preference
	writers *writerPool
	wheel   *wheel
	poller  poller

	mu       sync.Mutex
	conns    map[*conn]struct{}
	sockets  int // number of conns and of handshakes in progress
	closing  bool
	finished chan struct{} // closed when closing is set and sockets is 0
}

// NewServer returns a Server without connections. It starts no goroutines.
func NewServer(o Options) *Server {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	writers := newWriterPool()
	return &Server{
		options:  o,
		log:      log,
		codecs:   []codec{transport{maxID: o.MaxID}, legacy{maxID: o.MaxID}},
		writers:  writers,
		wheel:    newWheel(writers, o.KeepAliveInterval/beatsPerInterval),
		conns:    make(map[*conn]struct{}),
		finished: make(chan struct{}),
	}
}

// Accept performs a WebSocket handshake and returns at once. The connection is served by goroutines of the Server, so
// that net/http can release the request. The contexts of the Session have the values of r's context, but not its
// cancellation or deadline. The caller must check the origin and the credentials before the call.
//
// If Accept returns an error, it wraps one of this package's errors; nothing has been written, and the caller must
// respond. If it returns nil, the caller must not write anything. Headers set on w are sent with the upgrade.
func (s *Server) Accept(w http.ResponseWriter, r *http.Request, ss Session) error {
	cd := s.codecFor(r.Header)
	if cd == nil {
		return ErrNoProtocol
	}
	if err := s.reserve(); err != nil {
		return err
	}
	c := newConn(context.WithoutCancel(r.Context()), s, cd, ss)
	started := false
	defer func() {
		if !started {
			c.cancel()
			s.release(nil)
		}
	}()

	h := newHandshake(w, &s.options)
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       []string{cd.name()},
		InsecureSkipVerify: true, // the caller checks origins
		// These functions refer to c, not to h: h would keep the memory that net/http holds for the request.
		OnPingReceived: func(_ context.Context, payload []byte) bool { c.handlePing(payload); return false },
		OnPongReceived: func(context.Context, []byte) { c.handlePong() },
	})
	switch {
	case err == nil:
	case h.conn != nil:
		// The peer left during the handshake: nobody can receive a response.
		s.log.DebugContext(c.ctx, "gqlws: handshake not finished", "error", err)
		_ = h.conn.Close()
		return nil
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
	closing := s.closing
	s.mu.Unlock()
	go c.serve()
	if closing {
		c.drain()
	}
	return nil
}

// Shutdown ends all connections and waits for their goroutines. On each connection, no new operation starts, running
// queries finish, and then the peer receives the reason and the connection is closed.
//
// To avoid that all peers reconnect at the same time, each of n connections is drained after a random delay of up to
// (n-1) times 10 ms. The maximum delay is half of the time until ctx's deadline, or 10 s if ctx has no deadline. Until
// then the connection is served as before, except that a request for another operation drains it immediately.
//
// If ctx ends first, Shutdown cuts the remaining connections and returns ctx's error. A Server cannot be used again
// after Shutdown. Further calls also wait, but do not change the delays.
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
	select {
	case <-s.finished:
		s.wheel.wg.Wait()
		s.writers.wg.Wait()
		s.poller.wg.Wait()
		return nil
	case <-ctx.Done():
	}
	for _, c := range s.close() {
		c.cut(&cutError{ErrCut, "shutdown took too long", ctx.Err()})
	}
	return fmt.Errorf("gqlws: shutdown: %w", ctx.Err())
}

// close makes reserve return ErrShutdown and returns the open connections.
func (s *Server) close() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		if s.sockets == 0 {
			close(s.finished)
		}
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// reserve counts a connection before its handshake.
func (s *Server) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrShutdown
	}
	if s.options.MaxSockets > 0 && s.sockets >= s.options.MaxSockets {
		return ErrTooMany
	}
	s.sockets++
	return nil
}

// release undoes reserve. c is the connection that has ended, or nil if the handshake failed.
func (s *Server) release(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.sockets--
	if s.closing && s.sockets == 0 {
		close(s.finished)
	}
}

// codecFor returns the preferred codec that h offers, or nil.
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
