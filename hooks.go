package chaingql

import (
	"context"
	"time"
)

// Hooks report events of a [Handler], for metrics and traces. Any of them may be nil, and then costs nothing. They
// are called concurrently, on the goroutine that does the work; on sockets, that goroutine serves many clients. So a
// hook must return at once, and must not call Shutdown, which would wait for it. A panic in a hook is logged and has
// no other effect.
//
// The log ([Options].Logger) has the same events, except for single blocks and the start of operations. Failures of the
// source have level Warn; its recovery and cut connections Info; missing blocks Warn, or Error if they stay missing;
// finished operations, opened and closed sockets, exceeded limits and denied clients Debug.
type Hooks struct {
	// OperationStarted is called before an operation runs, after all checks. It returns ctx or a context derived from
	// it, for example with a span; nil means ctx. The Backend's Balance and OperationFinished receive that context.
	OperationStarted func(ctx context.Context, op Operation) context.Context

	// OperationFinished is called once for each started operation: when the response of a query has been produced, or
	// when a subscription has ended.
	OperationFinished func(ctx context.Context, op Operation, o Outcome)

	// ReadStarted is called before the Backend's Blocks is called for a query's page. Other queries may share the
	// call. ctx is the context of the call, and asker that of the query. ReadStarted returns the context for Blocks
	// (nil means ctx): add the span to it, and nothing else that belongs to one query.
	ReadStarted func(ctx, asker context.Context) context.Context

	// SocketOpened is called after a WebSocket handshake. ctx has the values of the request's context.
	SocketOpened func(ctx context.Context, s Socket)

	// SocketClosed is called once for each opened socket, after its last operation has finished. err is the cause in
	// more detail, and may be nil.
	SocketClosed func(ctx context.Context, s Socket, why Reason, err error)

	// AccessDenied is called for each request, handshake and connection_init that is refused because the [Authorizer]
	// returned ErrUnauthorized or RateLimitError, the credentials are malformed, or the Origin of a socket is not
	// allowed.
	AccessDenied func(ctx context.Context, d Denial)

	// BlockReceived is called once for each new block from the Backend's Follow, in cursor order, and for each block
	// that Follow skipped when it is found, possibly after later blocks. lag is the time since the block was
	// generated. Connections do not wait for it: BlockDelivered may be called before.
	BlockReceived func(b Block, lag time.Duration)

	// BlockDropped is called for each block that Follow repeats or yields out of order. A Follow that was restarted may
	// repeat some.
	BlockDropped func(b Block)

	// BlockDelivered is called for each block that a subscription passes to its connection.
	BlockDelivered func(ctx context.Context, d Delivery)

	// SourceFailed is called each time that Follow ends or cannot start; it is retried after wait. It is also called
	// with wait 0 and ErrSourceStalled if Follow has yielded nothing for Options.StallTimeout, and with wait 0 and
	// ErrGap if Follow skipped blocks that Blocks does not have either. After ErrGap the stream continues, so
	// SourceRecovered does not follow.
	SourceFailed func(err error, wait time.Duration)

	// SourceRecovered is called when the first block arrives after failures or a stall, which began down ago.
	SourceRecovered func(down time.Duration)

	// LimitHit is called when a limit refuses or cuts something. limit is the name of a field of [Limits].
	LimitHit func(ctx context.Context, limit string)
}

// An Operation describes an operation to [Hooks].
type Operation struct {
	// Type is OperationQuery or OperationSubscription.
	Type OperationType
	// Name is the operation's name, chosen by the client. It may be empty.
	Name string
	// Hash is the SHA-256 of the document in lower-case hex.
	Hash string
	// Transport is the protocol of the response.
	Transport Transport
	// Project is the project of the request, as in Credentials. It is in lower case.
	Project string
	// Trace is the trace context that the client sent.
	Trace Trace
}

// An OperationType is the type of an operation, as in GraphQL.
type OperationType string

// The operation types.
const (
	OperationQuery        OperationType = "query"
	OperationSubscription OperationType = "subscription"
)

// A Transport is the protocol by which a client receives responses.
type Transport string

// The Transports.
const (
	TransportHTTP               Transport = "http"
	TransportSSE                Transport = "sse"
	TransportGraphQLWS          Transport = "graphql-ws"           // of subscriptions-transport-ws
	TransportGraphQLTransportWS Transport = "graphql-transport-ws" // of the library graphql-ws
)

// An Outcome describes the end of an operation.
type Outcome struct {
	// Duration is the time since OperationStarted.
	Duration time.Duration
	// Failed reports that the response has errors, or that the subscription was not ended by its client.
	Failed bool
	// Code is extensions.code of the first error in the response of a query. It is empty if there is none, and for
	// subscriptions.
	Code string
	// Reason is the reason for the end of a subscription, and empty for a query.
	Reason Reason
	// Err is the cause in more detail. It may be nil.
	Err error
	// Blocks is the number of blocks that a subscription received, or of events for a field that the host added.
	Blocks uint64
	// Cursor is the position that a subscription reached.
	Cursor Cursor
}

// A Reason is the reason for the end of a socket or a subscription.
type Reason string

// The Reasons.
const (
	ReasonClient   Reason = "client"   // the client ended it or left
	ReasonCut      Reason = "cut"      // the client was too slow; it received no message about the end
	ReasonShutdown Reason = "shutdown" // Shutdown was called
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
	// Remote is the address of the client, or of a proxy.
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
	// Source is the place from which the block came.
	Source Source
}

// A Source is the place from which a subscription received a block.
type Source string

// The Sources. While a subscription catches up, it receives recent blocks from the window in memory, and older ones
// from the Backend.
const (
	SourceLive    Source = "live" // passed on as it arrived from Follow
	SourceWindow  Source = "window"
	SourceBackend Source = "backend"
)

// A Denial describes why a client was refused. It contains neither the secret nor the payload that the client sent.
type Denial struct {
	// Project is the project of the request, as in Credentials. If it is not the expected one, the Handler is mounted
	// under a path that does not end in /<project>/<name>: under /api/graphql, every project is "api".
	Project string
	// Path is the path of the URL without the query, cut at 256 bytes.
	Path string
	// Remote is the address of the client, or of a proxy.
	Remote string
	// Code is the code of the error: UNAUTHENTICATED, RATE_LIMITED, LIMIT_EXCEEDED if the payload of connection_init is
	// too large, or BAD_REQUEST for a socket from a foreign Origin.
	Code string
	// Err is the reason, which the client does not receive: the error of the Authorizer, such as RateLimitError, or one
	// of this package, for example because of a foreign Origin. The errors of StaticProjects wrap ErrUnauthorized and
	// state what is wrong: an unknown project, no secret, a wrong secret, or a secret for a project that has none.
	Err error
}

// A Trace is the trace context that a client sent (W3C Trace Context and Baggage), unchecked. It comes from the
// extensions of the operation, otherwise from the payload of connection_init, otherwise from the headers of the
// request, under these names in lower case. Missing values are empty.
type Trace struct {
	// Parent is traceparent.
	Parent string
	// State is tracestate.
	State string
	// Baggage is baggage.
	Baggage string
}
