package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/coder/websocket"
)

// Reasons why a connection ended. Stream.Close and Session.Closed receive one of them or ErrShutdown; use errors.Is. If
// the Session ended the connection, by Init or by a lost stream, they receive a *RequestError; use errors.As.
var (
	// ErrCut means that the connection was closed without a message to the peer, because none would arrive: a write
	// stalled, a frame or a pong did not arrive, or Shutdown's context ended. The text has the reason; the cause is
	// wrapped.
	ErrCut = errors.New("gqlws: connection cut")
	// ErrGone means that the peer left, with or without a close frame.
	ErrGone = errors.New("gqlws: peer is gone")
	// ErrExpired means that the deadline of the context that Init returned has passed.
	ErrExpired = errors.New("gqlws: session expired")
	// ErrRefused means that the peer violated the protocol, exceeded a limit, or was refused by Init. In the last case
	// it wraps Init's error.
	ErrRefused = errors.New("gqlws: peer refused")
)

// A cutError is the reason why a connection ended without a close handshake.
type cutError struct {
	kind   error // ErrCut, ErrGone or ErrRefused
	reason string
	err    error
}

func (e *cutError) Error() string   { return fmt.Sprintf("%v: %s: %v", e.kind, e.reason, e.err) }
func (e *cutError) Unwrap() []error { return []error{e.kind, e.err} }

// readEndReason returns the reason for err, with which the reader ended. It is used only if the netConn has not
// reported an error. The cause is then the WebSocket library or the reader itself.
func readEndReason(err error) *cutError {
	switch {
	case closedByPeer(err):
		return &cutError{ErrGone, "closed by the peer", err}
	case errors.Is(err, errInternal):
		return &cutError{ErrCut, "reader failed", err}
	case errors.Is(err, net.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		// The library waits five seconds for the rest of a close frame.
		return &cutError{ErrCut, "close frame took too long", err}
	default:
		return &cutError{ErrRefused, "broken frame", err}
	}
}

func closedByPeer(err error) bool { return websocket.CloseStatus(err) != -1 }

// An ending is the reason why the server ends a connection. Only the first ending of a connection counts.
type ending struct {
	cause   cause
	err     json.RawMessage // encoded GraphQL error; nil if there is none or the cause implies it
	detail  string          // for the reason in the close frame and for the Session
	session error           // the Session's error, if it ended the connection

	resumePoints []resumePoint // if causedByServer(): of the running streams and of a lost one
}

// A resumePoint is the position of a stream when its connection ended.
type resumePoint struct {
	id     operationID
	stream Stream // nil if the stream was lost
	cursor string
	err    *RequestError // error with which the stream ended or was about to end; it has the cursor
}

// overLimit returns the ending of a connection that exceeded a limit. detail is the message for the peer.
func overLimit(c cause, detail string) ending {
	return ending{cause: c, err: encodeError(detail, "LIMIT_EXCEEDED"), detail: detail}
}

// causedByServer reports whether the connection ends without a fault of the peer. The peer then receives the
// positions or errors of its streams, so that it can continue on another connection.
func (e *ending) causedByServer() bool {
	switch e.cause {
	case causeShutdown, causeExpired, causeLost, causeInternal, causeTryAgain:
		return true
	}
	return false
}

// why returns the error for Stream.Close and Session.Closed.
func (e *ending) why() error {
	switch e.cause {
	case causeTerminated:
		return nil
	case causeExpired:
		return ErrExpired
	case causeShutdown:
		return ErrShutdown
	case causeLost, causeInternal, causeTryAgain:
		return e.session
	case causeRefused:
		return fmt.Errorf("%w: %w", ErrRefused, e.session)
	default:
		return fmt.Errorf("%w: %s", ErrRefused, e.detail)
	}
}

type cause int

const (
	causeTerminated cause = iota // the peer sent connection_terminate
	causeRefused                 // Init returned an error
	causeExpired                 // the credential expired
	causeShutdown
	causeLost        // a stream was lost (legacy)
	causeInitTimeout // no connection_init or operation in time
	causeMalformed   // one malformed frame, or too many in a row
	causeNotUTF8     // a message was not UTF-8
	causeTooBig      // a message was too large
	causeTooFast     // too many messages in a short time
	causeInternal
	causeTryAgain   // Init returned a lost *RequestError
	causeNoInit     // strict: subscribe before connection_init
	causeSecondInit // strict: another connection_init
	causeIDInUse    // strict: an id that is in use
)

// Messages and the error code that peers receive when the server ends a connection.
const (
	messageShutdown = "Service is shutting down"
	messageExpired  = "Session expired"

	codeRetry = "SERVICE_UNAVAILABLE"
)
