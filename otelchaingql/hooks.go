package otelchaingql

import (
	"context"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
)

// Scope is the name of the instrumentation scope of all spans and metrics.
const Scope = "github.com/chaingql/chaingql/otelchaingql"

// Hooks returns hooks for one [chaingql.Handler]; opts may be nil and is copied.
// Handlers that share them share their metrics too, and the state of the source
// is then the one's or the other's: give each its own, with Options.Attributes to
// tell them apart. A host that has hooks of its own sets theirs to functions that
// call both. Instruments that a MeterProvider refuses go to otel.Handle.
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
			// In any case, or what is finished would be more than what was started.
			defer func() { m.operationStarted(ctx, op) }()
			ctx = t.started(ctx, op)
			return ctx
		},
		OperationFinished: func(ctx context.Context, op chaingql.Operation, out chaingql.Outcome) {
			defer t.finished(ctx, op, out)
			m.operationFinished(ctx, op, out) // while the span is there, for exemplars
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
