package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/coder/websocket"
)

// Why a connection ended, and its Streams with it: what Stream.Close and
// Session.Closed are given, to be told by errors.Is. ErrShutdown is one of them,
// and a *RequestError (errors.As) is where the Session itself ended it, by Init
// or by another stream that was lost.
var (
	// ErrCut: closed without a word, since none would get through: a write
	// stalled, a frame or a pong did not come, Shutdown's context ended. The text
	// says which; the cause is wrapped.
	ErrCut = errors.New("gqlws: connection cut")
	// ErrGone: the peer left, with or without a goodbye.
	ErrGone = errors.New("gqlws: peer is gone")
	// ErrExpired: the deadline of the context that Init returned passed.
	ErrExpired = errors.New("gqlws: session expired")
	// ErrRefused: the peer broke a rule or went over a limit, or Init refused it,
	// whose error is then wrapped.
	ErrRefused = errors.New("gqlws: peer refused")
)

// A severed is why a connection ended without a farewell.
type severed struct {
	kind   error // ErrCut, ErrGone or ErrRefused
	reason string
	err    error
}

func (s *severed) Error() string   { return fmt.Sprintf("%v: %s: %v", s.kind, s.reason, s.err) }
func (s *severed) Unwrap() []error { return []error{s.kind, s.err} }

// readEnd is why the reader ended with err where the net.Conn has not told: it
// tells of what went wrong beneath the library, so this is the library's, or the
// reader's own.
func readEnd(err error) *severed {
	switch {
	case closedByPeer(err):
		return &severed{ErrGone, "closed by the peer", err}
	case errors.Is(err, errInternal):
		return &severed{ErrCut, "reader failed", err}
	case errors.Is(err, net.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		// The library gives a close frame five seconds.
		return &severed{ErrCut, "close frame took too long", err}
	default:
		return &severed{ErrRefused, "broken frame", err}
	}
}

func closedByPeer(err error) bool { return websocket.CloseStatus(err) != -1 }

// An ending is why this side ends a connection. Only the first ending of a
// connection counts.
type ending struct {
	cause   cause
	err     json.RawMessage // the encoded GraphQL error; nil where there is nothing to say, or the cause says it
	detail  string          // for a close frame's reason and the Session
	session error           // lost, internal, refused: the Session's error

	standings []standing // of the running streams and of one that was lost, where ours
}

// A standing is where a stream was when its connection was ended.
type standing struct {
	id     identity
	stream Stream // nil if it was lost
	cursor string
	own    *RequestError // why it ended, or would have, by itself; this has the cursor then
}

// overLimit ends a connection over a limit, which detail names.
func overLimit(c cause, detail string) ending {
	return ending{cause: c, err: encodeError(detail, "LIMIT_EXCEEDED"), detail: detail}
}

// ours is whether the peer did nothing that its streams should end: it is told
// where they stand, or what became of one, to go on on another connection.
func (e *ending) ours() bool {
	switch e.cause {
	case causeShutdown, causeExpired, causeLost, causeInternal, causeLater:
		return true
	}
	return false
}

// why is what the Session is given.
func (e *ending) why() error {
	switch e.cause {
	case causeTerminated:
		return nil
	case causeExpired:
		return ErrExpired
	case causeShutdown:
		return ErrShutdown
	case causeLost, causeInternal, causeLater:
		return e.session
	case causeRefused:
		return fmt.Errorf("%w: %w", ErrRefused, e.session)
	default:
		return fmt.Errorf("%w: %s", ErrRefused, e.detail)
	}
}

type cause int

const (
	causeTerminated cause = iota // the peer asked for it
	causeRefused                 // by the Session's Init
	causeExpired                 // the credential did
	causeShutdown
	causeLost      // a stream did not go on
	causeSilent    // the peer did not begin in time
	causeMalformed // one malformed frame, or too many in a row
	causeNotText   // a message was not UTF-8
	causeTooBig    // a message was
	causeTooMany   // messages in a short time
	causeInternal
	causeLater      // not let in now
	causeNoInit     // strict: a start before connection_init
	causeSecondInit // strict: another connection_init
	causeSameID     // strict: an id that is in use
)

// What a peer reads of the causes that tell.
const (
	sayShutdown = "Service is shutting down"
	sayExpired  = "Session expired"

	codeRetry = "SERVICE_UNAVAILABLE"
)
