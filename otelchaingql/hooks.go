package otelchaingql

import (
	"context"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
)

// Scope is the name of the instrumentation scope of all spans and metrics that this package creates.
const Scope = "github.com/chaingql/chaingql/otelchaingql"

// Hooks returns the hooks that create telemetry for one [chaingql.Handler]. opts may be nil. Hooks copies opts.
//
// Call Hooks once for each Handler, and distinguish the Handlers with Options.Attributes. If Handlers shared hooks,
// their metrics would be mixed, and a gauge such as chaingql.source.up would show the state that any of them reported
// last. To use hooks of your own as well, set each field of the result to a function that calls both your hook and the
// hook of this package. Errors of the MeterProvider are passed to otel.Handle.
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
			// This is deferred, because the operation must count as started even if t.started panics:
			// it will count as finished.
			defer func() { m.operationStarted(ctx, op) }()
			ctx = t.started(ctx, op)
			return ctx
		},
		OperationFinished: func(ctx context.Context, op chaingql.Operation, out chaingql.Outcome) {
			defer t.finished(ctx, op, out)
			m.operationFinished(ctx, op, out) // before the span ends, so that exemplars refer to it
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
