// Package gqlws serves GraphQL over WebSockets: it speaks the subprotocols
// graphql-transport-ws and graphql-ws (the legacy one), runs operations for a
// Session, and bounds what a peer can make it do. It knows nothing of schemas.
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

// Options are the limits of a Server. A field that is zero or negative is off.
type Options struct {
	// KeepAlive is the interval of WebSocket pings, and of graphql-transport-ws's
	// own pings after connection_init. With graphql-ws, it is the time between the
	// first two ka; from then on there is one each fifth of it. A peer whose
	// WebSocket pong does not come within two intervals is cut.
	KeepAlive time.Duration

	// InitTimeout is how long a peer of graphql-transport-ws may take to send
	// its connection_init; it is then closed with 4408.
	InitTimeout time.Duration

	// UnusedTimeout is how long a peer of the legacy protocol may be connected
	// without an accepted connection_init and without a running operation.
	UnusedTimeout time.Duration

	// FrameTimeout is how long the rest of a begun message may take.
	FrameTimeout time.Duration

	// WriteTimeout is how long one write on the connection may take. It being
	// over, half a frame may be out: the connection is cut.
	WriteTimeout time.Duration

	// MaxMessage is the size of a message in bytes; a larger one ends the
	// connection with close code 1009.
	MaxMessage int64

	// MessageRate is how many messages, pings, pongs and empty fragments a second a
	// peer may send, and three times as many at once; 16 other fragments count as one. More
	// end the connection with close code 1008.
	MessageRate int

	// MaxSubscriptions is how many subscriptions may be open on one connection; a
	// further one is refused.
	MaxSubscriptions int

	// MaxQueries is how many queries may run on one connection, up to when their
	// answers are written. If there is a further one, the connection is not read until
	// one of them has ended, but for QueryWait at most: then the further one is refused
	// with SERVICE_UNAVAILABLE.
	MaxQueries int

	// QueryWait is how long a query may wait because of MaxQueries.
	QueryWait time.Duration

	// MaxUnsent is the size in bytes of unsent answers to queries beyond which a
	// connection is not read, and no query that was read is started.
	MaxUnsent int

	// Account opens the account of a connection, which cut ends; cut may be called
	// at any time, from any goroutine. If it is nil, nothing is counted.
	Account func(peer Session, cut func()) Account

	// MaxID is the length of an operation's id in bytes.
	MaxID int

	// MaxSockets is how many connections a Server holds; see Accept.
	MaxSockets int

	// Logger is told of connections that were cut and of what failed; nil is
	// nobody.
	Logger *slog.Logger
}

// What Accept returns where it wrote no answer.
var (
	// ErrNoProtocol: the peer offers no subprotocol that is spoken here (400,
	// so that close code 4406 is never needed).
	ErrNoProtocol = errors.New("gqlws: no supported subprotocol offered")
	// ErrHandshake: the request is no WebSocket handshake, or a wrong one (400).
	ErrHandshake = errors.New("gqlws: invalid handshake")
	// ErrTooMany: there are MaxSockets connections (503).
	ErrTooMany = errors.New("gqlws: too many connections")
	// ErrShutdown: Shutdown was called (503). It is also why connections ended.
	ErrShutdown = errors.New("gqlws: shutting down")
	// ErrNotHijackable: the ResponseWriter does not give up its connection, as
	// with HTTP/2 or under a middleware that hides it (500).
	ErrNotHijackable = errors.New("gqlws: connection cannot be taken over")
)

// A Server owns WebSocket connections from their handshake to their end. It is
// safe for concurrent use.
type Server struct {
	options Options
	log     *slog.Logger
	codecs  []codec // the first of these that a peer offers is spoken
	crew    *crew
	wheel   *wheel
	watch   watch

	mu       sync.Mutex
	conns    map[*conn]struct{}
	sockets  int // conns, and handshakes under way
	closing  bool
	finished chan struct{} // closed when closing and no sockets are left
}

// NewServer returns a Server without connections. It starts nothing by itself.
func NewServer(o Options) *Server {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	crew := newCrew()
	return &Server{
		options:  o,
		log:      log,
		codecs:   []codec{transport{maxID: o.MaxID}, legacy{maxID: o.MaxID}},
		crew:     crew,
		wheel:    newWheel(crew, o.KeepAlive/beats),
		conns:    make(map[*conn]struct{}),
		finished: make(chan struct{}),
	}
}

// Accept answers a WebSocket handshake and returns at once: the connection lives
// on in goroutines of the Server, so that net/http can let go of the request.
// The Session's contexts have the values of r's context, but neither its
// cancellation nor its deadline. Origin and credentials are the caller's to
// check beforehand.
//
// An error (one of this package's, to be told by errors.Is) means that nothing
// was written and the caller has to answer; nil means that nothing may be
// written any more. Headers set on w are sent with the upgrade.
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
		InsecureSkipVerify: true, // origins are the caller's affair
		// Of c rather than h, which would keep all that net/http holds for the
		// request.
		OnPingReceived: func(_ context.Context, payload []byte) bool { c.pong(payload); return false },
		OnPongReceived: func(context.Context, []byte) { c.alive() },
	})
	switch {
	case err == nil:
	case h.conn != nil:
		// The peer left during the handshake; there is nobody to answer.
		s.log.DebugContext(c.ctx, "gqlws: handshake not finished", "error", err)
		_ = h.conn.Close()
		return nil
	case h.hijackErr != nil:
		return fmt.Errorf("%w: %w", ErrNotHijackable, h.hijackErr)
	default:
		if v := h.header.Get("Sec-WebSocket-Version"); v != "" {
			w.Header().Set("Sec-WebSocket-Version", v) // the one spoken here (RFC 6455, 4.4)
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

// Shutdown ends all connections and waits for their goroutines: no operation is
// started any more, running queries are answered, then each peer is told and its
// connection closed. So that peers do not come back all at once, each of n
// connections has its turn at a random time within (n-1) times 10 ms, at most
// half of the time left until ctx's deadline, or 10 s where it has none. Until
// then it is served as before; that it asks for another operation ends it.
//
// When ctx ends first, connections are cut and ctx's error is returned. A Server
// that was shut down stays so; further calls wait too, and leave turns as they
// are.
func (s *Server) Shutdown(ctx context.Context) error {
	conns := s.close()
	wait := xsync.Spread(ctx, len(conns))
	for _, c := range conns {
		if wait > 0 {
			c.drainIn(rand.N(wait))
		} else {
			c.drain()
		}
	}
	select {
	case <-s.finished:
		s.wheel.turning.Wait()
		s.crew.working.Wait()
		s.watch.waiting.Wait()
		return nil
	case <-ctx.Done():
	}
	for _, c := range s.close() {
		c.cut(&severed{ErrCut, "shutdown took too long", ctx.Err()})
	}
	return fmt.Errorf("gqlws: shutdown: %w", ctx.Err())
}

// close lets nobody in any more and returns who is still there.
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

// reserve takes a place for a connection before its handshake.
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

// release gives the place back, with c, the connection that had it, if any.
func (s *Server) release(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.sockets--
	if s.closing && s.sockets == 0 {
		close(s.finished)
	}
}

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
