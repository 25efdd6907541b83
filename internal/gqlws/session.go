package gqlws

import (
	"context"
	"encoding/json"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A Session handles one connection. Its methods are called one at a time, except Blocked. While another method runs, no
// further message from the peer is processed.
type Session interface {
	// Opened is called once, after the handshake and before all other methods. protocol is the negotiated subprotocol.
	// ctx is the context that Init receives. Opened must not block.
	//
	// left reports whether the peer has disconnected. While Init or Start runs, the connection is not read, so that
	// their contexts do not show it. They should call left before expensive work if they have waited for their turn.
	Opened(ctx context.Context, protocol string, left func() bool)

	// Init authenticates the peer. It is called for each connection_init message. payload is the raw JSON payload of
	// the message, or nil if the payload is absent or null. In the legacy protocol, a peer may send several
	// connection_init messages. If it sends start before any of them, Init is called with a nil payload. ctx has the
	// values of the handshake request's context and is canceled when the connection ends.
	//
	// Operations that start after Init use the context that Init returns. The deadline of that context is the expiry of
	// the peer's credential: when it passes, the peer receives an error and the connection is closed, so that the peer
	// reconnects. If Init is called again, the earlier deadline remains in force while operations that started under it
	// are running.
	//
	// If Init returns a *RequestError, the connection ends as after an internal error or, if Lost is set, with close
	// code 1013, so that the peer retries. In the legacy protocol, the peer also receives the first of the Errors. If
	// Init returns any other error, the peer is refused: it receives "Unauthorized access" in
	// the legacy protocol, or close code 4403.
	Init(ctx context.Context, payload []byte) (context.Context, error)

	// Start validates an operation and returns the functions that run it. payload is the raw JSON payload of a start or
	// subscribe message. It is nil if the payload is absent or null, which only the legacy protocol allows. The Session
	// may keep payload, which then keeps the whole message in memory. ctx is canceled when the operation ends. Start
	// must not block for long.
	//
	// If Start returns a *RequestError, its Errors are sent to the peer with the operation's id. If Start returns any
	// other error, the error is logged and the peer receives an internal error. If the peer's credential has expired
	// meanwhile, all errors are ignored, because the connection ends.
	Start(ctx context.Context, payload []byte) (Operation, error)

	// Limit is called when the peer has exceeded a limit of Options. The name of the limit determines the consequence:
	//   - MessageBytes, MessageRate: the connection is closed.
	//   - SocketSubscriptions, SocketQueries, PendingResponseBytes: the operation is refused.
	//   - IDBytes: the message is refused (legacy protocol), or the connection is closed.
	//
	// Limit must not block.
	Limit(name string)

	// Blocked is called with true before a write that may wait for the peer, and with false after it. Meanwhile, Next
	// is not called for the Streams of the connection. Blocked may run at the same time as other methods and must not
	// block.
	Blocked(blocked bool)

	// Closed is called once, after all other calls to the Session, when all Streams are closed and all calls to Run
	// have returned. If the peer closed the connection properly, why is nil. Otherwise why is a *RequestError or wraps
	// ErrCut, ErrGone, ErrShutdown, ErrExpired or ErrRefused. Shutdown waits until Closed has returned.
	Closed(why error)
}

// An Operation holds the functions that run one operation. Exactly one of Run and Open is set.
type Operation struct {
	// Run executes a query and returns a complete GraphQL response as JSON. The response is sent as one data message
	// (next in graphql-transport-ws), followed by complete. Run is called at most once, on its own goroutine, and the
	// connection waits for Run to return. ctx is canceled when the peer stops the operation or the connection ends. The
	// query counts toward MaxQueries at least until Run has returned.
	Run func(ctx context.Context) []byte

	// Size is the expected size in bytes of the response that Run returns. While the query runs, Size counts toward
	// Options.MaxUnsent, so that further queries may have to wait.
	Size int

	// Memory is the size in bytes of a query that waits because MaxQueries queries are running or MaxUnsent is reached.
	// Meanwhile the connection's Account holds it.
	Memory int

	// Counted reports that Run itself adds the size of its response to the connection's Account.
	Counted bool

	// Open opens the source of a subscription. It is called at most once, immediately after Start. If the connection
	// already has MaxSubscriptions subscriptions, Open is not called. Errors of Open have the same effect as errors of
	// Start. The wake function never blocks and may be called at any time and from any goroutine, even during Open,
	// Next and Close.
	Open func(wake xsync.Waker) (Stream, error)
}

// A Stream is the source of one subscription. Next and Close are never called concurrently. No method is called after
// Close.
type Stream interface {
	// Next returns the next payload, which is a complete GraphQL response as JSON. It returns nil if no payload is
	// available yet. When a payload may have become available, the Stream calls the wake function that Open received.
	// Payloads are never modified, so that connections may share them.
	//
	// Next is called after Open, after each call to wake, and again after each payload that Next has returned with
	// more. By then, that payload has usually been written; payloads of a few kilobytes may be written together with
	// the next one. If more is false, the Stream must call wake when there is another payload. While the peer reads
	// slowly, Next is not called. Next must not block, because its goroutine also serves other connections.
	//
	// If Next returns io.EOF, the peer receives complete. If Next returns a *RequestError, the peer receives its
	// Errors. If Next returns any other error, the error is logged and the peer receives an internal error. Every error
	// ends the stream.
	Next() (payload []byte, more bool, err error)

	// Behind reports whether the next call of Next reads stored data. Streams that are behind do not delay those with
	// new data, and those for which Next has returned more without a payload do not delay the others. Behind is called
	// after Open and after each Next, by the same goroutine.
	Behind() bool

	// Position returns the position that the stream has reached, or "" if it has none. The payloads that Next has
	// returned are before the position, and all later payloads are after it. If the Stream has lost its position,
	// Position returns an error that contains another one. The peer receives the error or else the cursor when the
	// server ends the connection. Cursors are compared byte by byte. Position is called before Close, and never while
	// Next is running. It must not block.
	Position() (cursor string, own *RequestError)

	// Close is called once, when the operation has ended. why is nil if Next returned an error, if the peer stopped the
	// operation, or if the peer sent connection_terminate. If the peer closed the connection, why wraps ErrGone.
	// Otherwise why is the error that Session.Closed receives.
	Close(why error)
}

// A RequestError reports to the peer why an operation cannot start or continue. Session.Init also returns it if it
// cannot check the peer.
type RequestError struct {
	// Errors holds one or more encoded GraphQL errors. If a stream was lost, the extensions of the first error contain
	// the cursor from which the peer can resume.
	Errors []json.RawMessage

	// Lost reports that the stream ended through no fault of the peer, so that the peer should subscribe again. In the
	// legacy protocol, a lost stream ends the whole connection, because clients treat an operation's error as final. In
	// graphql-transport-ws, a lost stream ends only its operation. If Init returns an error with Lost set, the peer
	// should connect again later.
	Lost bool
}

func (e *RequestError) Error() string {
	if len(e.Errors) == 0 {
		return "gqlws: request error"
	}
	return "gqlws: request error: " + string(e.Errors[0])
}

// errInternal is sent to the peer after a failure that the peer did not cause. The log contains the details.
var errInternal = &RequestError{Errors: []json.RawMessage{
	encodeError("Internal server error", "INTERNAL_SERVER_ERROR")}}

// encodeError returns a GraphQL error as JSON. If code is empty, extensions are omitted.
func encodeError(message, code string) json.RawMessage { return encodeErrorAt(message, code, "") }

// encodeErrorAt is like encodeError, but also adds the cursor to resume from. If cursor is empty, it is omitted.
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
