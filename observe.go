package chaingql

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
)

// events calls the hooks and writes the log.
type events struct {
	Hooks
	log      *slog.Logger
	failures *guard.FailureLog
}

// call calls a hook of the host, and logs a panic or a call of runtime.Goexit in it.
func (e *events) call(ctx context.Context, name string, hook func()) {
	e.report(ctx, name, guard.RunApart(hook))
}

func (e *events) report(ctx context.Context, name string, err error) {
	if err != nil {
		e.failures.Report(ctx, "chaingql: hook panicked; the panic has no other effect", err, slog.String("hook", name))
	}
}

// begin reports the start of an operation. It returns the context for the operation, and an observed that reports its
// end. The observed is nil if neither a hook nor the log needs it.
func (e *events) begin(ctx context.Context, op *plan.Bound, by *caller) (context.Context, *observed) {
	if !e.traces() && !e.log.Enabled(ctx, slog.LevelDebug) {
		return ctx, nil
	}
	o := &observed{events: e, ctx: ctx, begun: time.Now(), op: Operation{
		Type: OperationType(op.Kind()), Name: op.Name(), Hash: op.Hash(), Transport: by.transport, Project: by.project,
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

// reading calls Hooks.ReadStarted, if it is set, and returns the context for a call of Blocks.
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

// traces reports whether a hook needs the trace contexts of operations.
func (e *events) traces() bool {
	return e.OperationStarted != nil || e.OperationFinished != nil || e.BlockDelivered != nil
}

// received, dropped, failed and recovered are called by the block log, which writes its own log lines.
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

func reasonOf(why error) Reason {
	for _, known := range []struct {
		err    error
		reason Reason
	}{
		{gqlws.ErrCut, ReasonCut}, {gqlws.ErrShutdown, ReasonShutdown}, {blocklog.ErrClosed, ReasonShutdown},
		{gqlws.ErrExpired, ReasonExpired}, {gqlws.ErrGone, ReasonClient}, {gqlws.ErrRefused, ReasonRefused},
		{ErrGap, ReasonGap}, {context.Canceled, ReasonClient}, {nil, ReasonClient},
	} {
		if errors.Is(why, known.err) {
			return known.reason
		}
	}
	return ReasonLost
}

var deliverySources = [...]Source{
	blocklog.OriginLive: SourceLive, blocklog.OriginWindow: SourceWindow, blocklog.OriginSource: SourceBackend,
}

// An observed reports the end of an operation to the hooks and the log.
type observed struct {
	*events
	op    Operation
	ctx   context.Context
	begun time.Time
	// blocks is the number of blocks or events received.
	blocks uint64
}

// queryFinished reports the end of a query. err is the first error in its response, or nil if there is none.
func (o *observed) queryFinished(err *plan.Error) {
	switch {
	case o == nil:
	case err != nil:
		o.finish(Outcome{Failed: true, Code: err.Code})
	default:
		o.finish(Outcome{})
	}
}

// handed counts an event that a subscription passed to its connection.
func (o *observed) handed() {
	if o != nil {
		o.blocks++
	}
}

// delivered counts and reports a block that a subscription passed to its connection.
func (o *observed) delivered(item blocklog.Item) {
	o.handed()
	if o == nil || o.BlockDelivered == nil {
		return
	}
	d := Delivery{Operation: o.op, Cursor: Cursor(item.Cursor), Source: deliverySources[item.Origin]}
	if !item.Arrived.IsZero() {
		d.Lag = time.Since(item.Arrived)
	}
	// A goroutine for each delivery would be expensive.
	returned := false // false if the hook calls runtime.Goexit, which also ends this goroutine
	defer func() {
		if !returned {
			o.failures.Report(o.ctx, "chaingql: hook called runtime.Goexit; its connection ends", guard.ErrGoexit,
				slog.String("hook", "BlockDelivered"))
		}
	}()
	err := guard.Run(func() { o.BlockDelivered(o.ctx, d) })
	returned = true
	o.report(o.ctx, "BlockDelivered", err)
}

// ended reports the end of a subscription.
func (o *observed) ended(cursor string, why error) {
	if o != nil {
		reason := reasonOf(why)
		o.finish(Outcome{
			Failed: reason != ReasonClient, Reason: reason, Err: why, Blocks: o.blocks, Cursor: Cursor(cursor),
		})
	}
}

func (o *observed) finish(out Outcome) {
	out.Duration = time.Since(o.begun)
	o.log.LogAttrs(o.ctx, slog.LevelDebug, "chaingql: operation finished",
		slog.String("type", string(o.op.Type)), slog.String("operation", o.op.Name),
		slog.String("transport", string(o.op.Transport)),
		slog.String("project", o.op.Project), guard.Milliseconds("duration_ms", out.Duration),
		slog.Bool("failed", out.Failed), slog.String("reason", string(out.Reason)), slog.Uint64("blocks", out.Blocks),
		slog.String("cursor", string(out.Cursor)), guard.Error(out.Err))
	if o.OperationFinished != nil {
		o.call(o.ctx, "OperationFinished", func() { o.OperationFinished(o.ctx, o.op, out) })
	}
}

// maxDenialText is the maximum size in bytes of the path and the project in a Denial, because a client can send
// a megabyte.
const maxDenialText = 256

func denial(r *http.Request, project string, err error) Denial {
	return Denial{Project: cut(project), Path: cut(gqlhttp.Path(r)), Remote: r.RemoteAddr, Err: err}
}

// cut returns a copy of text, truncated to maxDenialText bytes.
func cut(text string) string { return strings.Clone(text[:min(len(text), maxDenialText)]) }

// denied reports that a client was refused. It ignores an overload and a failure of the Authorizer, which are not
// denials. The failure has already been logged as an error.
func (e *events) denied(ctx context.Context, d Denial, no *httpError) {
	if no.status == statusInternal || no.status == statusUnavailable {
		return
	}
	d.Code = no.Code
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: access denied", slog.String("project", d.Project),
		slog.String("path", d.Path), slog.String("remote", d.Remote), slog.String("code", d.Code),
		guard.Error(d.Err))
	if e.AccessDenied != nil {
		e.call(ctx, "AccessDenied", func() { e.AccessDenied(ctx, d) })
	}
}

func (e *events) opened(ctx context.Context, s Socket) {
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: socket opened", slog.String("protocol", string(s.Protocol)),
		slog.String("project", s.Project), slog.String("remote", s.Remote))
	if e.SocketOpened != nil {
		e.call(ctx, "SocketOpened", func() { e.SocketOpened(ctx, s) })
	}
}

func (e *events) closed(ctx context.Context, s Socket, why error) {
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: socket closed", slog.String("protocol", string(s.Protocol)),
		slog.String("project", s.Project), slog.String("remote", s.Remote),
		slog.String("reason", string(reasonOf(why))), guard.Error(why))
	if e.SocketClosed != nil {
		e.call(ctx, "SocketClosed", func() { e.SocketClosed(ctx, s, reasonOf(why), why) })
	}
}

// responseCut logs that the client did not receive a whole response, unless err is nil.
func (e *events) responseCut(r *http.Request, err error) {
	if err != nil {
		e.log.LogAttrs(r.Context(), slog.LevelDebug,
			"chaingql: response not delivered, because the client left or was too slow",
			slog.String("project", projectOf(r)), slog.String("remote", r.RemoteAddr), guard.Error(err))
	}
}

// limit reports that the limit with this name was hit. It does nothing if name is empty.
func (e *events) limit(ctx context.Context, name string) {
	if name == "" {
		return
	}
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: limit hit; a request was refused or a connection ended",
		slog.String("limit", name))
	if e.LimitHit != nil {
		e.call(ctx, "LimitHit", func() { e.LimitHit(ctx, name) })
	}
}

// maxTrace is the maximum size in bytes of each part of a trace context. Longer parts are dropped.
const maxTrace = 1 << 10

// traceOf returns a trace context. It calls value with the name of each part.
func traceOf(value func(name string) string) Trace {
	short := func(name string) string {
		if v := value(name); len(v) <= maxTrace {
			return v
		}
		return ""
	}
	return Trace{short("traceparent"), short("tracestate"), short("baggage")}
}

func traceOfFields(fields map[string]any) Trace {
	return traceOf(func(name string) string { text, _ := fields[name].(string); return text })
}

// or returns t if it has a value of traceparent, and u otherwise.
func (t Trace) or(u Trace) Trace {
	if t.Parent == "" {
		return u
	}
	return t
}

// size returns the memory of t's values in bytes.
func (t Trace) size() int { return len(t.Parent) + len(t.State) + len(t.Baggage) }

// A caller describes the client of an operation to the hooks and the log.
type caller struct {
	transport Transport
	project   string
	trace     Trace
	header    http.Header // of the request; nil if its trace context has been read already
}

// traced returns a copy of a with the trace context own. If own has no traceparent, the copy keeps that of a.
func (a caller) traced(own Trace) caller {
	a.trace = own.or(a.trace)
	return a
}
