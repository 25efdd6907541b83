package gqlws

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// A Session answers one connection. Its methods are called one at a time: while
// one of them runs, nothing else that the peer says is heard.
type Session interface {
	// Opened is called once, right after the handshake and before anything else,
	// with the subprotocol that is spoken. ctx is as in Init. It must not block.
	Opened(ctx context.Context, protocol string)

	// Init lets the peer in or refuses it. It is called for each
	// connection_init with its payload (raw JSON; nil where it was absent or
	// null). In the legacy protocol that may be more than once, and it is called
	// with nil before the first start of a peer that sent none before. ctx
	// carries the values of the handshake's request and is cancelled when the
	// connection is gone.
	//
	// The operations started from then on run with the context it returns; a
	// deadline on it is the end of the peer's credential: the peer is told, and
	// the connection closed so that the peer connects again. The deadline of an
	// earlier Init still applies while operations run that were started under it. A *RequestError
	// is told and ends the connection as an internal error, or, where it is
	// Lost, so that the peer tries again later; any other error
	// refuses the peer: it is logged, the peer reads "Unauthorized access"
	// (legacy) or close code 4403.
	Init(ctx context.Context, payload []byte) (context.Context, error)

	// Start checks an operation and says how it is run. payload is the raw JSON
	// of start's or subscribe's payload, the Session's to keep; nil where it was
	// absent or null (which only the legacy protocol allows). ctx ends with the
	// operation. It must not block for long.
	//
	// A *RequestError is told to the peer under the operation's id, any other
	// error is logged and told as an internal one.
	Start(ctx context.Context, payload []byte) (Operation, error)

	// Limit is called when a limit of Options stopped the peer: "MessageBytes"
	// and "MessageRate" end the connection, "SocketSubscriptions" and
	// "SocketQueries" refuse an operation, "IDBytes" a message (legacy) or the peer.
	// It must not block.
	Limit(name string)

	// Closed is called once, when all Streams are closed, all Runs have returned
	// and nothing else of the Session will be called. why is nil where the peer
	// closed the connection properly, else one of ErrCut, ErrGone, ErrShutdown,
	// ErrExpired, ErrRefused or a *RequestError. Shutdown waits for it.
	Closed(why error)
}

// An Operation is how one operation is run: either Run or Open is set.
type Operation struct {
	// Run answers a query: it is called once, on a goroutine of its own, which
	// the connection waits for. It returns a whole GraphQL answer as JSON, told
	// as one data message and a complete. ctx is cancelled when the peer stops
	// the operation or is gone; the place it takes among the connection's
	// operations is free only when Run has returned.
	Run func(ctx context.Context) []byte

	// Size is the size in bytes that Run's answer is expected to have. A query waits
	// while there is no room for it among the unsent answers of its connection.
	Size int

	// Open opens the source of a subscription. It is called at most once, right after
	// Start, with the same rules for its error; not if the connection has too many
	// subscriptions. wake may be called at any time, from any goroutine (within Open,
	// Next and Close too), and never blocks.
	Open func(wake func()) (Stream, error)
}

// A Stream is the source of one subscription. Next and Close are never called
// at the same time, and nothing is called after Close.
type Stream interface {
	// Next returns the next payload, a whole GraphQL answer as JSON, or nil when
	// there is none yet: the wake given to Open tells when there may be one.
	// The payload is only read, so it may be shared between connections. Next is
	// called once after Open, after each wake, and again after each payload,
	// when that one has been written or, of a few kilobytes, with it: a peer that
	// reads slowly is not asked for. It must not block: the next in line is
	// another connection's.
	//
	// io.EOF is the end: the peer reads complete. A *RequestError is an end with
	// a reason, any other error an end that is logged and told as internal.
	Next() ([]byte, error)

	// Cursor returns the position the stream has reached, "" for none: what Next
	// has returned is before it, all the rest behind it. A peer is told of it
	// when this side ends its connection, so cursors are compared byte by byte.
	// It may be called at any time before Close, from any goroutine, while Next
	// runs too, and must not block.
	Cursor() string

	// Pending returns the error that Next is going to return, if the Stream has
	// lost its place and Next has not returned that yet, else nil. When this side
	// ends the connection, the peer is told it instead of Cursor. It is called
	// like Next.
	Pending() *RequestError

	// Close is called once, when the operation has ended. why is nil where it
	// ended by itself (Next's end or error), or the peer stopped it or said
	// goodbye with connection_terminate; else why the connection ended under it,
	// as in Session.Closed, or ErrGone where the peer closed it.
	Close(why error)
}

// A RequestError is why an operation does not start, or does not go on.
type RequestError struct {
	// Errors are encoded GraphQL errors, at least one. Of a lost stream, the first
	// has the cursor from which to go on in its extensions.
	Errors []json.RawMessage

	// Lost says that the stream broke off through no fault of the peer, which
	// should subscribe again. In the legacy protocol the connection ends with
	// the first error, since its clients take an operation's own error as final;
	// in the other one the operation ends alone.
	Lost bool
}

func (e *RequestError) Error() string {
	if len(e.Errors) == 0 {
		return "gqlws: request error"
	}
	return "gqlws: request error: " + string(e.Errors[0])
}

// errInternal is what a peer is told of a failure that is not its own and that
// the log has.
var errInternal = &RequestError{Errors: []json.RawMessage{
	encodeError("Internal server error", "INTERNAL_SERVER_ERROR")}}

// encodeError is a GraphQL error as JSON; an empty code leaves extensions out.
func encodeError(message, code string) json.RawMessage { return encodeErrorAt(message, code, "") }

// encodeErrorAt is encodeError with the cursor from which the peer can go on, if
// there is one.
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

// An operation is one that the connection runs. Its fields are guarded by the
// connection's mu, except for those set before it is started.
type operation struct {
	id      identity
	expires time.Time // when the credential that it was started under does; zero is never
	query   bool
	run     func(context.Context) []byte // of a query, until it has returned
	stream  Stream                       // of an answer where it is a query, once there is one
	cancel  context.CancelFunc
	begin   func() // runs it
	size    int    // expected, of its answer
	unsent  int    // bytes of its answer, until they are in a write

	started  bool // it is, or was, among the connection's operations
	running  bool // it is a query whose Run was, or is about to be, called
	queued   bool // it waits for its turn to write
	busy     bool // its Run, or its Next, is under way
	ended    bool
	handover bool // it ended while busy: whoever is at work on it closes it

	why error // ended: what Close is given
}

// An answer is the Stream of what a query came to: one payload, or why there is
// none.
type answer struct {
	payload []byte
	err     error
}

func (a *answer) Next() (payload []byte, err error) {
	if payload, a.payload = a.payload, nil; payload == nil && a.err == nil {
		return nil, io.EOF
	}
	return payload, a.err
}

func (a *answer) Cursor() string         { return "" }
func (a *answer) Pending() *RequestError { return nil }
func (a *answer) Close(error)            {}
