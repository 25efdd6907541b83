package gqlws

import (
	"context"
	"encoding/json"
)

// A Session serves one connection. Its methods are called one at a time: while one of them runs, no further message of
// the peer is processed.
type Session interface {
	// Opened is called once, right after the handshake and before any other method. protocol is the negotiated
	// subprotocol; ctx is the same as for Init. Opened must not block.
	Opened(ctx context.Context, protocol string)

	// Init authenticates the peer. It is called for each connection_init with its payload: raw JSON, or nil if it is
	// absent or null. In the legacy protocol there may be several calls; if the peer sends start before any
	// connection_init, Init is called with nil. ctx carries the values of the handshake's request and is canceled when
	// the connection ends.
	//
	// Operations that start afterwards run with the returned context. Its deadline is the expiry of the peer's
	// credential: the peer then receives an error and the connection is closed, so that the peer reconnects. The
	// deadline of an earlier Init applies as long as operations run that were started under it.
	//
	// If Init returns a *RequestError, its first error is sent (in graphql-transport-ws only a close code), and the
	// connection ends as an internal error, or, if Lost is set, with close code 1013, so that the peer retries. Any
	// other error is logged and refuses the peer, which receives "Unauthorized access" (legacy) or close code 4403.
	Init(ctx context.Context, payload []byte) (context.Context, error)

	// Start validates an operation and returns the functions that run it. payload is the raw JSON of the payload of
	// start or subscribe; it is nil if absent or null, which only the legacy protocol allows. The Session may keep it.
	// ctx ends with the operation. Start must not block for long.
	//
	// If Start returns a *RequestError, it is sent to the peer with the operation's id. Any other error is logged, and
	// the peer receives an internal error.
	Start(ctx context.Context, payload []byte) (Operation, error)

	// Limit is called when the peer exceeded a limit of Options. "MessageBytes" and "MessageRate" end the connection.
	// "SocketSubscriptions" and "SocketQueries" refuse an operation. "IDBytes" refuses a message (legacy) or ends the
	// connection. Limit must not block.
	Limit(name string)

	// Closed is called once and is the last call to the Session: all Streams are closed and all Runs have returned. why
	// is nil if the peer closed the connection properly, otherwise ErrCut, ErrGone, ErrShutdown, ErrExpired, ErrRefused
	// or a *RequestError. Shutdown waits for Closed.
	Closed(why error)
}

// An Operation holds the functions that run one operation. Exactly one of Run and Open is set.
type Operation struct {
	// Run executes a query and returns a complete GraphQL response as JSON, which is sent as one data message
	// followed by complete. It is called at most once, on its own goroutine, and the connection waits for it. ctx is
	// canceled when the peer stops the operation or the connection ends. The query counts against MaxQueries at least
	// until Run returns.
	Run func(ctx context.Context) []byte

	// Size is the expected size in bytes of Run's response. A query waits until the unsent responses of its connection
	// leave room for it.
	Size int

	// Counted reports that Run itself adds its response to the connection's Account.
	Counted bool

	// Open opens the source of a subscription. It is called at most once, right after Start, and its errors are handled
	// like those of Start. If the connection has too many subscriptions, it is not called. wake never blocks and may be
	// called at any time, from any goroutine, also within Open, Next and Close.
	Open func(wake func()) (Stream, error)
}

// A Stream is the source of one subscription. Next and Close are never called concurrently, and no method is called
// after Close.
type Stream interface {
	// Next returns the next payload, a complete GraphQL response as JSON, or nil if there is none yet. When a payload
	// may be available, the Stream calls the wake function that Open received. Payloads are not modified, so that
	// connections may share them.
	//
	// Next is called once after Open, after each wake, and again after each payload. That call comes when the payload
	// has been written; a payload of a few kilobytes may be written together with the next one. If the peer reads
	// slowly, Next is not called. Next must not block, because its goroutine also serves other connections.
	//
	// If Next returns io.EOF, the peer receives complete. If it returns a *RequestError, the peer receives that error.
	// Any other error is logged, and the peer receives an internal error. Each of them ends the stream.
	Next() ([]byte, error)

	// Cursor returns the position that the stream has reached, or "" if there is none. Payloads that Next has
	// returned are before it, all others after it. The peer receives it when the server ends the connection; cursors
	// are compared byte by byte. Cursor may be called at any time before Close, from any goroutine, also while Next
	// runs. It must not block.
	Cursor() string

	// Pending returns the error that Next will return if the Stream has lost its position, otherwise nil. If the server
	// ends the connection, the peer receives this error instead of Cursor. The rules for calls of Cursor apply.
	Pending() *RequestError

	// Close is called once, when the operation has ended. why is nil if the stream ended by itself (Next returned an
	// error), if the peer stopped it, or if the peer sent connection_terminate. Otherwise it is the reason why the
	// connection ended, as for Session.Closed, or ErrGone if the peer closed the connection.
	Close(why error)
}

// A RequestError reports why an operation cannot start or continue.
type RequestError struct {
	// Errors holds encoded GraphQL errors, at least one. If a stream was lost, the extensions of the first error
	// contain the cursor to resume from.
	Errors []json.RawMessage

	// Lost reports that the stream ended through no fault of the peer, which should subscribe again. In the legacy
	// protocol a lost stream ends the whole connection, because clients treat an error of an operation as final. In
	// graphql-transport-ws it ends only its operation. If Init returns the error, the peer should connect again
	// later.
	Lost bool
}

func (e *RequestError) Error() string {
	if len(e.Errors) == 0 {
		return "gqlws: request error"
	}
	return "gqlws: request error: " + string(e.Errors[0])
}

// errInternal is sent to the peer for failures that it did not cause. The log has the details.
var errInternal = &RequestError{Errors: []json.RawMessage{
	encodeError("Internal server error", "INTERNAL_SERVER_ERROR")}}

// encodeError returns a GraphQL error as JSON. If code is empty, extensions are omitted.
func encodeError(message, code string) json.RawMessage { return encodeErrorAt(message, code, "") }

// encodeErrorAt is encodeError with the cursor to resume from. If cursor is empty, it is omitted.
func encodeErrorAt(message, code, cursor string) json.RawMessage {
	type extensions struct {
		Code   string `json:"code,omitempty"`
		Cursor string `json:"cursor,omitempty"`
	}
	e := struct {
		Message    string      `json:"message"`
		Extensions *extensions `json:"extensions,omitempty"`
	}{Message: message}
	if code != "" || cursor != "" {
		e.Extensions = &extensions{code, cursor}
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings always encode
	}
	return b
}
