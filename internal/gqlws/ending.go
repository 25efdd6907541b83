package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/coder/websocket"
)

// These errors and ErrShutdown are the reasons why a connection ended. Stream.Close and Session.Closed receive an error
// that wraps one of them. If Init or a lost stream ended the connection, they receive a *RequestError instead.
var (
	// ErrCut means that the server closed the connection without a message to the peer, because no message would have
	// arrived. For example, a write stalled, a pong did not arrive in time, or the context of Shutdown was done. The
	// error text contains the reason, and the error also wraps the cause.
	ErrCut = errors.New("gqlws: connection cut")
	// ErrGone means that the peer disconnected, with or without a close frame.
	ErrGone = errors.New("gqlws: peer disconnected")
	// ErrExpired means that the peer's credential expired: the deadline of a context that Init returned has passed.
	ErrExpired = errors.New("gqlws: session expired")
	// ErrRefused means that the peer violated the protocol, exceeded a limit, or was refused by Init. If Init refused
	// the peer, the error also wraps Init's error.
	ErrRefused = errors.New("gqlws: refused by the server")
)

// A cutError is the reason why a connection ended without a close handshake.
type cutError struct {
	kind   error  // ErrCut, ErrGone or ErrRefused
	reason string // what failed
	err    error  // the cause
}

func (e *cutError) Error() string   { return fmt.Sprintf("%v: %s: %v", e.kind, e.reason, e.err) }
func (e *cutError) Unwrap() []error { return []error{e.kind, e.err} }

// readEndReason returns the reason for err, with which the reader has ended. It matters only if the netConn has
// recorded no error of the network. In that case, err comes from coder/websocket or from the reader itself.
func readEndReason(err error) *cutError {
	switch {
	case closedByPeer(err):
		return &cutError{ErrGone, "closed by the peer", err}
	case errors.Is(err, errInternal):
		return &cutError{ErrCut, "reader failed", err}
	case errors.Is(err, net.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		// coder/websocket waits at most five seconds for the rest of a close frame.
		return &cutError{ErrCut, "close frame took too long", err}
	default:
		return &cutError{ErrRefused, "broken frame", err}
	}
}

func closedByPeer(err error) bool { return websocket.CloseStatus(err) != -1 }

// An ending describes why the server ends a connection. A connection has at most one ending, because the first one
// counts.
type ending struct {
	cause   cause
	err     json.RawMessage // encoded GraphQL error; nil if there is none or if the cause determines it
	detail  string          // text for the reason in the close frame and for the error of the Session
	session error           // error of the Session, if that error ended the connection

	// resumePoints holds the positions of the running streams and of a lost stream. It is set only if the peer is not
	// at fault (causedByServer).
	resumePoints []resumePoint
}

// A resumePoint is the position of a stream when its connection ended.
type resumePoint struct {
	id     operationID
	cursor string
	err    *RequestError // error with which the stream ended or was going to end; it contains the cursor
}

// overLimit returns the ending of a connection because its peer exceeded a limit. detail is the message for the peer.
func overLimit(c cause, detail string) ending {
	return ending{cause: c, err: encodeError(detail, "LIMIT_EXCEEDED"), detail: detail}
}

// causedByServer reports whether the connection ends through no fault of the peer. In that case, the peer receives the
// positions or errors of its streams, so that it can resume them on another connection.
func (e *ending) causedByServer() bool {
	switch e.cause {
	case causeShutdown, causeExpired, causeLost, causeInternal, causeTryAgain:
		return true
	}
	return false
}

// why returns the error that Stream.Close and Session.Closed receive.
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

// A cause is the kind of an ending.
type cause int

const (
	causeTerminated  cause = iota // the peer sent connection_terminate
	causeRefused                  // Init returned an error
	causeExpired                  // the credential expired
	causeShutdown                 // Shutdown was called
	causeLost                     // a stream was lost (legacy protocol)
	causeInitTimeout              // no connection_init or operation arrived in time
	causeMalformed                // one malformed frame, or too many in a row
	causeNotUTF8                  // a message was not UTF-8
	causeTooBig                   // a message was too large
	causeTooFast                  // too many messages in a short time
	causeInternal                 // Init returned a *RequestError
	causeTryAgain                 // Init returned a *RequestError with Lost set
	causeNoInit                   // subscribe arrived before connection_init (graphql-transport-ws)
	causeSecondInit               // connection_init arrived twice (graphql-transport-ws)
	causeIDInUse                  // an operation has an id that is in use (graphql-transport-ws)
)

// These are the messages and the error code that peers receive when the server ends a connection.
const (
	messageShutdown = "Service is shutting down"
	messageExpired  = "Session expired"

	codeRetry = "SERVICE_UNAVAILABLE"
)
