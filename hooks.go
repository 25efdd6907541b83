package chaingql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// Hooks tell a host what its [Handler] does, for metrics and traces. Each may
// be nil, and one that is costs nothing. They are called concurrently, from the
// goroutine that does the work, and hold it up, which on sockets is the work of
// all of them: a hook must return at once, and not call Shutdown, which would
// wait for it. A panic in one is logged, and harms nothing else.
//
// The log ([Options.Logger]) tells of the same, but for single blocks and the
// start of operations: failures of the source (Warn), its recovery and cut
// connections (Info), missing blocks (Warn, or Error where they stay missing);
// on level Debug operations finished, sockets opened and closed, limits hit, and
// clients that were not let in.
type Hooks struct {
	// OperationStarted is called for each operation that passed all checks and
	// is about to run. The context that it returns (the given one, or one made
	// of it; nil is the given one) is what the Backend's Balance gets, and what
	// OperationFinished is called with: the place for a span.
	OperationStarted func(ctx context.Context, op Operation) context.Context

	// OperationFinished is called once for each operation that was started:
	// when a query's answer is made, or a subscription has ended.
	OperationFinished func(ctx context.Context, op Operation, o Outcome)

	// ReadStarted is called before the Backend's Blocks is asked for a query's
	// page, which others may come to wait for too. ctx is the call's own, asker
	// the query's. The context that it returns (nil is ctx) is what Blocks gets:
	// the place to hand the span on, and nothing that is the asker's alone.
	ReadStarted func(ctx, asker context.Context) context.Context

	// SocketOpened is called after a WebSocket handshake. ctx has the values of
	// the handshake's request.
	SocketOpened func(ctx context.Context, s Socket)

	// SocketClosed is called once for each socket that was opened, after its
	// last operation has finished, with one of the Reasons; err has more,
	// where there is more.
	SocketClosed func(ctx context.Context, s Socket, why Reason, err error)

	// AccessDenied is called for each request, handshake and connection_init that is
	// refused because the [Authorizer] returned ErrUnauthorized or RateLimited, the
	// credentials are malformed, or a socket's Origin is not allowed.
	AccessDenied func(ctx context.Context, d Denial)

	// BlockReceived is called for each new block that the Backend's Follow
	// gave, once and in order; and for each that it left out, when it is found,
	// which may be after blocks from behind it. lag is the time since the block
	// was generated. Connections do not wait for it: deliveries of the block may
	// be told of before.
	BlockReceived func(b Block, lag time.Duration)

	// BlockDropped is called for each block that Follow gave again, or out of
	// order, after one past it; a Follow that was started anew may repeat some.
	BlockDropped func(b Block)

	// BlockDelivered is called for each block that a subscription hands to its
	// connection.
	BlockDelivered func(ctx context.Context, d Delivery)

	// SourceFailed is called each time that Follow ended or could not begin; it
	// is tried again after wait. It is also called, with ErrSilent and no wait,
	// when Follow has given nothing for Options.Silence; and with ErrGap and no
	// wait, when it left out blocks that Blocks does not have either: the
	// stream goes on behind them, so no recovery follows.
	SourceFailed func(err error, wait time.Duration)

	// SourceRecovered is called when a block comes for the first time after
	// one or more failures, or a silence, that began this long ago.
	SourceRecovered func(down time.Duration)

	// LimitHit is called when something is refused or cut for a limit, with
	// the name of the field of [Limits].
	LimitHit func(ctx context.Context, limit string)
}

// An Operation is what [Hooks] are told of an operation.
type Operation struct {
	Type      string // "query" or "subscription"
	Name      string // as the client named it, which is any name; may be empty
	Hash      string // SHA-256 of the document in lower-case hex
	Transport string // "http", "sse", "graphql-ws" or "graphql-transport-ws"
	Project   string // in lower case
	Trace     Trace  // what the client says of its trace
}

// An Outcome is how an operation ended.
type Outcome struct {
	Duration time.Duration
	// Failed tells that the answer has errors, or that the subscription did
	// not end as its client wanted.
	Failed bool
	// Code is that of the first error in a query's answer, as clients see it
	// in extensions.code; empty where there is none, and for a subscription.
	Code string
	// Reason is why a subscription ended; empty for a query. Err has more,
	// where there is more.
	Reason Reason
	Err    error
	// Blocks is how many a subscription was handed (of a field that the host
	// added, events), and Cursor the position it had reached.
	Blocks uint64
	Cursor Cursor
}

// A Reason is why a socket or a subscription ended.
type Reason string

// The Reasons.
const (
	ReasonClient   Reason = "client"   // its client ended it, or left
	ReasonCut      Reason = "cut"      // the client did not take or say what it had to in time: nothing could be told
	ReasonShutdown Reason = "shutdown" // Shutdown
	ReasonExpired  Reason = "expired"  // the deadline that the Authorizer set
	ReasonRefused  Reason = "refused"  // the client was not let in, broke the protocol or exceeded a limit
	ReasonGap      Reason = "gap"      // blocks are missing: STREAM_GAP
	ReasonLost     Reason = "lost"     // the source does not have what follows (any more), or something failed
)

func reasonOf(why error) Reason {
	for _, known := range []struct {
		err    error
		reason Reason
	}{
		{gqlws.ErrCut, ReasonCut}, {gqlws.ErrShutdown, ReasonShutdown}, {blocklog.ErrClosed, ReasonShutdown},
		{gqlws.ErrExpired, ReasonExpired}, {gqlws.ErrRefused, ReasonRefused}, {ErrGap, ReasonGap},
		{gqlws.ErrGone, ReasonClient}, {context.Canceled, ReasonClient}, {nil, ReasonClient},
	} {
		if errors.Is(why, known.err) {
			return known.reason
		}
	}
	return ReasonLost
}

// A Socket is what [Hooks] are told of a WebSocket.
type Socket struct {
	Protocol string // "graphql-ws" or "graphql-transport-ws"
	Project  string // in lower case
	Remote   string // the client's address, or a proxy's
}

// A Delivery is one block on its way to one subscription.
type Delivery struct {
	Operation Operation
	Cursor    Cursor
	// Lag is how long ago the Handler received the block. It is zero for a
	// block that was read from the Backend's Blocks.
	Lag time.Duration
	// From is "live" for a block that was handed on as it came. A subscription
	// that catches up has it from the "window" of recent blocks, or from the
	// "backend".
	From string
}

var deliveredFrom = [...]string{blocklog.OriginLive: "live", blocklog.OriginWindow: "window", blocklog.OriginSource: "backend"}

// The transports of an Operation that are not subprotocols.
const (
	overHTTP = "http"
	overSSE  = "sse"
)

// events tells hooks and log what happens.
type events struct {
	Hooks
	log *slog.Logger
}

// call runs a hook of the host's.
func (e *events) call(ctx context.Context, name string, hook func()) {
	defer func() {
		if p := recover(); p != nil {
			e.log.ErrorContext(ctx, "chaingql: hook panicked", slog.String("hook", name),
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		}
	}()
	hook()
}

// An observed operation is one whose end will be told.
type observed struct {
	*events
	op    Operation
	ctx   context.Context
	begun time.Time
	// blocks, or events, that it was handed
	blocks uint64
}

// begin tells that an operation starts. It returns the context to run it in.
func (e *events) begin(ctx context.Context, op *plan.Bound, by asker) (context.Context, *observed) {
	if !e.traces() && !e.log.Enabled(ctx, slog.LevelDebug) {
		return ctx, nil
	}
	o := &observed{events: e, ctx: ctx, begun: time.Now(), op: Operation{
		Type: string(op.Kind()), Name: op.Name(), Hash: op.Hash(), Transport: by.transport, Project: by.project,
		Trace: by.trace.or(traceOf(by.header.Get)),
	}}
	if e.OperationStarted != nil {
		e.call(ctx, "OperationStarted", func() {
			if made := e.OperationStarted(ctx, o.op); made != nil {
				o.ctx = made
			}
		})
	}
	return o.ctx, o
}

// reading returns the context for a call of Blocks that a query asks for.
func (e *events) reading(ctx, asker context.Context) context.Context {
	if e.ReadStarted != nil {
		e.call(asker, "ReadStarted", func() {
			if made := e.ReadStarted(ctx, asker); made != nil {
				ctx = made
			}
		})
	}
	return ctx
}

// traces is whether somebody wants to know of an operation's trace.
func (e *events) traces() bool {
	return e.OperationStarted != nil || e.OperationFinished != nil || e.BlockDelivered != nil
}

// failed reports whether an answer has errors: one without ends with its data,
// which is an object.
func failed(answer []byte) bool { return bytes.HasSuffix(answer, []byte("]}")) }

// answered tells that a query has its answer.
func (o *observed) answered(answer []byte, failed bool) {
	switch {
	case o == nil:
	case failed:
		o.finish(Outcome{Failed: true, Code: firstCode(answer)})
	default:
		o.finish(Outcome{})
	}
}

// firstCode finds the code of an answer's first error. What is looked for has
// quotes, which clients' text has behind backslashes; errors come last.
func firstCode(answer []byte) string {
	_, code, _ := bytes.Cut(answer[max(0, bytes.LastIndex(answer, []byte(`,"errors":[{"message":`))):], []byte(`,"extensions":{"code":"`))
	code, _, _ = bytes.Cut(code, []byte(`"`))
	return string(code)
}

// handed tells that a subscription was handed an event.
func (o *observed) handed() {
	if o != nil {
		o.blocks++
	}
}

// delivered tells that a subscription was handed a block.
func (o *observed) delivered(item blocklog.Item) {
	o.handed()
	if o == nil || o.BlockDelivered == nil {
		return
	}
	d := Delivery{Operation: o.op, Cursor: Cursor(item.Cursor), From: deliveredFrom[item.Origin]}
	if !item.Arrived.IsZero() {
		d.Lag = time.Since(item.Arrived)
	}
	o.call(o.ctx, "BlockDelivered", func() { o.BlockDelivered(o.ctx, d) })
}

// ended tells that a subscription has ended.
func (o *observed) ended(cursor string, why error) {
	if o != nil {
		reason := reasonOf(why)
		o.finish(Outcome{Failed: reason != ReasonClient, Reason: reason, Err: why, Blocks: o.blocks, Cursor: Cursor(cursor)})
	}
}

func (o *observed) finish(out Outcome) {
	out.Duration = time.Since(o.begun)
	o.log.LogAttrs(o.ctx, slog.LevelDebug, "chaingql: operation finished",
		slog.String("type", o.op.Type), slog.String("operation", o.op.Name), slog.String("transport", o.op.Transport),
		slog.String("project", o.op.Project), slog.Duration("duration", out.Duration), slog.Bool("failed", out.Failed),
		slog.String("reason", string(out.Reason)), slog.Uint64("blocks", out.Blocks), slog.String("cursor", string(out.Cursor)), slog.Any("error", out.Err))
	if o.OperationFinished != nil {
		o.call(o.ctx, "OperationFinished", func() { o.OperationFinished(o.ctx, o.op, out) })
	}
}

// received, failed and recovered are told by the block log, whose own lines
// the log has.
func (e *events) received(b Block) {
	if e.BlockReceived != nil {
		e.call(context.Background(), "BlockReceived", func() { e.BlockReceived(b, time.Since(b.Time)) })
	}
}

func (e *events) dropped(b Block) {
	if e.BlockDropped != nil {
		e.call(context.Background(), "BlockDropped", func() { e.BlockDropped(b) })
	}
}

func (e *events) failed(err error, wait time.Duration) {
	if e.SourceFailed != nil {
		e.call(context.Background(), "SourceFailed", func() { e.SourceFailed(err, wait) })
	}
}

func (e *events) recovered(down time.Duration) {
	if e.SourceRecovered != nil {
		e.call(context.Background(), "SourceRecovered", func() { e.SourceRecovered(down) })
	}
}
