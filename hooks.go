package chaingql

import (
	"context"
	"time"
)

// Hooks holds functions that a [Handler] calls to report events, for metrics and traces. A hook that is nil is not
// called and costs nothing. Hooks are called concurrently, on the goroutine that does the work. For sockets, that
// goroutine serves many clients, so a hook must return quickly. A hook must not call Shutdown, because Shutdown waits
// for hooks to return. A panic in a hook is logged and has no other effect.
// The same holds for a call of runtime.Goexit, for example by testing.T.FailNow, but in BlockDelivered it also ends the
// connection of the subscription.
//
// The log ([Options].Logger) has the same events, except for single blocks and the start of operations. Their levels
// are:
//
//   - Error for skipped blocks that the Backend does not have;
//   - Warn for skipped blocks that the Backend has, and for failures of Follow;
//   - Info for the recovery of Follow;
//   - Debug for finished operations, opened and closed sockets, cut connections, exceeded limits and denied clients.
type Hooks struct {
	// OperationStarted is called before an operation runs, after all checks. It returns ctx or a context derived from
	// ctx, for example with a span; nil means ctx. The Handler passes that context to the Backend's Balance and to
	// OperationFinished.
	OperationStarted func(ctx context.Context, op Operation) context.Context

	// OperationFinished is called once for each started operation: when the response of a query has been produced, or
	// when a subscription has ended.
	OperationFinished func(ctx context.Context, op Operation, o Outcome)

	// ReadStarted is called before the Backend's Blocks is called for a query. Other queries may share that call of
	// Blocks. ctx is the context of the shared call, and asker is the context of the query that started the call.
	// ReadStarted returns the context for Blocks; nil means ctx. The returned context may add a span to ctx, but no
	// other values of asker, because the result is also for other queries.
	ReadStarted func(ctx, asker context.Context) context.Context

	// SocketOpened is called after a WebSocket handshake. ctx has the values of the request's context.
	SocketOpened func(ctx context.Context, s Socket)

	// SocketClosed is called once for each opened socket, after its last operation has finished. err describes the
	// cause in more detail. It may be nil.
	SocketClosed func(ctx context.Context, s Socket, why Reason, err error)

	// AccessDenied is called for each request, handshake and connection_init that is refused because the [Authorizer]
	// returned ErrUnauthorized or RateLimitError, the credentials are malformed, the payload of connection_init is too
	// large, or the Origin of a socket is not allowed.
	AccessDenied func(ctx context.Context, d Denial)

	// BlockReceived is called once for each new block that the Backend's Follow yields, in cursor order. It is also
	// called when a block that Follow skipped has been found, possibly after later blocks. lag is the time since the
	// block was generated. Deliveries do not wait for this hook, so BlockDelivered may be called first.
	BlockReceived func(b Block, lag time.Duration)

	// BlockDropped is called for each block that Follow repeats or yields out of order. After a restart, Follow may
	// repeat blocks.
	BlockDropped func(b Block)

	// BlockDelivered is called for each block that a subscription passes to its connection.
	BlockDelivered func(ctx context.Context, d Delivery)

	// SourceFailed is called each time Follow ends or cannot start. The Handler calls Follow again after wait.
	// SourceFailed is also called in three other cases, with a wait of 0. If Follow has yielded nothing for
	// Options.StallTimeout, err is ErrSourceStalled. If the chain was replaced, err is ErrChainReplaced. If Follow
	// skipped blocks that Blocks does not have either, err is ErrGap; Follow continues then, so SourceRecovered is not
	// called afterwards.
	SourceFailed func(err error, wait time.Duration)

	// SourceRecovered is called when the first block arrives after a failure or a stall. down is the time since the
	// failure or the stall began.
	SourceRecovered func(down time.Duration)

	// LimitHit is called when the Handler refuses a request, or ends a response or a connection, because of a limit.
	// limit is the name of a field of [Limits].
	LimitHit func(ctx context.Context, limit string)
}

// An Operation describes a query or a subscription to [Hooks].
type Operation struct {
	// Type is OperationQuery or OperationSubscription.
	Type OperationType
	// Name is the operation's name, chosen by the client. It may be empty.
	Name string
	// Hash is the SHA-256 of the document in lower-case hex.
	Hash string
	// Transport is the protocol by which the client receives the response.
	Transport Transport
	// Project is the project of the request, as in Credentials. It is in lower case.
	Project string
	// Trace is the trace context that the client sent.
	Trace Trace
}

// An OperationType is the type of a GraphQL operation.
type OperationType string

// These are the values of [OperationType].
const (
	OperationQuery        OperationType = "query"
	OperationSubscription OperationType = "subscription"
)

// A Transport is the protocol by which a client receives responses.
type Transport string

// These are the values of [Transport].
const (
	TransportHTTP               Transport = "http"
	TransportSSE                Transport = "sse"                  // event streams (Server-Sent Events)
	TransportMultipart          Transport = "multipart"            // Apollo's multipart protocol for subscriptions
	TransportGraphQLWS          Transport = "graphql-ws"           // subprotocol of subscriptions-transport-ws
	TransportGraphQLTransportWS Transport = "graphql-transport-ws" // subprotocol of the library graphql-ws
)

// An Outcome describes the end of an operation.
type Outcome struct {
	// Duration is the time since OperationStarted.
	Duration time.Duration
	// Failed reports whether the response to a query has errors, or a subscription ended for a reason other than
	// ReasonClient.
	Failed bool
	// Code is extensions.code of the first error in the response to a query. It is empty if there is no error, and for
	// subscriptions.
	Code string
	// Reason is the reason for which a subscription ended. It is empty for a query.
	Reason Reason
	// Err describes the cause in more detail. It may be nil.
	Err error
	// Blocks is the number of blocks that a subscription received. For a subscription to a field that the host added,
	// it is the number of events.
	Blocks uint64
	// Cursor is the position that a subscription had reached.
	Cursor Cursor
}

// A Reason is the reason for which a socket or a subscription ended.
type Reason string

// These are the values of [Reason].
const (
	ReasonClient   Reason = "client"   // the client ended it or left
	ReasonCut      Reason = "cut"      // the client was too slow; it received no message about the end
	ReasonShutdown Reason = "shutdown" // Shutdown was called, or Options.ConnectionLifetime has passed
	ReasonExpired  Reason = "expired"  // the deadline of the Authorizer's context has passed
	ReasonRefused  Reason = "refused"  // the client was denied, broke the protocol or exceeded a limit
	ReasonGap      Reason = "gap"      // blocks are missing: STREAM_GAP
	ReasonLost     Reason = "lost"     // the source does not have the next blocks (any more), or an error occurred
)

// A Socket describes a WebSocket to [Hooks].
type Socket struct {
	// Protocol is TransportGraphQLWS or TransportGraphQLTransportWS.
	Protocol Transport
	// Project is the project of the request, as in Credentials. It is in lower case.
	Project string
	// Remote is the network address of the client, or of a proxy in front of the Handler.
	Remote string
}

// A Delivery describes one block that a subscription passes to its connection.
type Delivery struct {
	// Operation is the subscription.
	Operation Operation
	// Cursor is the cursor of the block.
	Cursor Cursor
	// Lag is the time since the Handler received the block. It is zero for a block that was read from the Backend's
	// Blocks.
	Lag time.Duration
	// Source is the place from which the subscription received the block.
	Source Source
}

// A Source is the place from which a subscription received a block.
type Source string

// These are the values of [Source]. A subscription that catches up receives older blocks from the Backend and recent
// ones from the window in memory.
const (
	SourceLive    Source = "live"    // from Follow, when the block arrived
	SourceWindow  Source = "window"  // from the window of recent blocks
	SourceBackend Source = "backend" // from Blocks
)

// A Denial describes why a client was refused. It contains neither the secret nor the payload that the client sent.
type Denial struct {
	// Project is the project of the request, as in Credentials. If it is not the project that you expect, the Handler
	// may be mounted without the wildcard {project} under a path that does not end in /<project>/<name>. For example,
	// under /api/graphql every project is "api".
	Project string
	// Path is the path of the URL without the query, truncated to 256 bytes.
	Path string
	// Remote is the network address of the client, or of a proxy in front of the Handler.
	Remote string
	// Code is the code of the error that the client receives: UNAUTHENTICATED, RATE_LIMITED, LIMIT_EXCEEDED if the
	// payload of connection_init is too large, or BAD_REQUEST if the Origin of a socket is not allowed.
	Code string
	// Err is the reason, which the client does not receive. It is the error of the Authorizer, such as RateLimitError,
	// or an error of this package, for example if the Origin is not allowed. The errors of StaticProjects wrap
	// ErrUnauthorized and state what is wrong: an unknown project, no secret, a wrong secret, or a secret for a project
	// that has none.
	Err error
}

// A Trace is the trace context that a client sent (W3C Trace Context and Baggage). It is not validated. The Handler
// takes the trace context from the extensions of the operation. If these have no traceparent, the Handler takes it from
// the payload of connection_init. If that has no traceparent either, the Handler takes it from the headers of the
// request. Missing values are empty.
type Trace struct {
	// Parent is the value of traceparent.
	Parent string
	// State is the value of tracestate.
	State string
	// Baggage is the value of baggage.
	Baggage string
}
