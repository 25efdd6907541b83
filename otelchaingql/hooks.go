package otelchaingql

import (
	"context"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
)

// Scope is the name of the instrumentation scope of all spans and metrics.
const Scope = "github.com/chaingql/chaingql/otelchaingql"

// Hooks returns the hooks for one [chaingql.Handler]. opts may be nil. Hooks copies opts.
//
// Call Hooks once for each Handler, and distinguish the Handlers with Options.Attributes. If two
// Handlers share their hooks, their metrics are mixed, and gauges such as chaingql.source.up show
// the Handler that reported last.
//
// If your program has its own hooks too, replace each field that you need with a function that calls
// both hooks. Errors of the MeterProvider are passed to otel.Handle.
func Hooks(opts *Options) chaingql.Hooks {
	o := opts.withDefaults()
	o.Attributes = slices.Clone(o.Attributes)
	allowed := make(names, len(o.OperationNames))
	for _, name := range o.OperationNames {
		allowed[name] = true
	}
	t, m := newTraces(&o, allowed), newMetrics(&o, allowed)
	return chaingql.Hooks{
		OperationStarted: func(ctx context.Context, op chaingql.Operation) context.Context {
			// The call is deferred, so that the operation is counted as started even if t.started
			// panics. OperationFinished will be called in any case and count it as finished.
			defer func() { m.operationStarted(ctx, op) }()
			ctx = t.started(ctx, op)
			return ctx
		},
		OperationFinished: func(ctx context.Context, op chaingql.Operation, out chaingql.Outcome) {
			defer t.finished(ctx, op, out)
			m.operationFinished(ctx, op, out) // before the span ends, so that exemplars can refer to it
		},
		ReadStarted: t.reading,
		SocketOpened: func(ctx context.Context, s chaingql.Socket) {
			m.socketsActive.Add(ctx, 1, m.byTransport.at(s.Protocol)...)
		},
		SocketClosed: func(ctx context.Context, s chaingql.Socket, why chaingql.Reason, _ error) {
			m.socketsActive.Add(ctx, -1, m.byTransport.at(s.Protocol)...)
			m.socketsClosed.Add(ctx, 1, m.with(transport(s.Protocol), reason(why)))
		},
		BlockReceived:  m.blockReceived,
		BlockDropped:   func(chaingql.Block) { m.blocksDropped.Add(context.Background(), 1, m.always) },
		BlockDelivered: func(_ context.Context, d chaingql.Delivery) { m.blockDelivered(&d) },
		SourceFailed:   func(err error, _ time.Duration) { m.sourceFailed(err) },
		SourceRecovered: func(down time.Duration) {
			m.sourceUp(true)
			m.outage.Record(context.Background(), down.Seconds(), m.always)
		},
		LimitHit: func(ctx context.Context, limit string) { m.limitsHit.Add(ctx, 1, m.with(limitName(limit))) },
	}
}
