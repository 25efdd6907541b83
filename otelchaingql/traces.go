package otelchaingql

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/chaingql/chaingql"
)

// traces makes the spans.
type traces struct {
	tracer              trace.Tracer
	propagator          propagation.TextMapPropagator
	trustRemote, passOn bool
	names               names
	fixed               []attribute.KeyValue // on all
}

func newTraces(o *Options, names names) *traces {
	return &traces{
		tracer:     o.TracerProvider.Tracer(Scope, trace.WithInstrumentationVersion(chaingql.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: o.Propagator, trustRemote: o.TrustRemoteParent, passOn: o.Baggage, names: names, fixed: o.Attributes,
	}
}

// said has what a client says of its trace, for a Propagator.
type said chaingql.Trace

// Get implements propagation.TextMapCarrier.
func (s said) Get(key string) string {
	switch key {
	case "traceparent":
		return s.Parent
	case "tracestate":
		return s.State
	case "baggage":
		return s.Baggage
	}
	return ""
}

// Set implements propagation.TextMapCarrier: nothing is said to clients.
func (said) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (said) Keys() []string { return []string{"traceparent", "tracestate", "baggage"} }

// join puts an operation into its trace: that of the context, which is a span
// of the host's around the Handler, unless its client names another one. One
// named on a socket is nearer to the operation than the handshake was.
func (t *traces) join(ctx context.Context, op chaingql.Operation) (context.Context, []trace.Link) {
	if op.Trace == (chaingql.Trace{}) {
		return ctx, nil
	}
	far := t.propagator.Extract(context.Background(), said(op.Trace))
	if bags := baggage.FromContext(far); t.passOn && bags.Len() > 0 {
		ctx = baggage.ContextWithBaggage(ctx, bags)
	}
	named, here := trace.SpanContextFromContext(far), trace.SpanContextFromContext(ctx)
	onSocket := op.Transport != "http" && op.Transport != "sse"
	switch {
	case !named.IsValid(), named.TraceID() == here.TraceID():
		return ctx, nil
	case !t.trustRemote, here.IsValid() && !onSocket:
		return ctx, []trace.Link{{SpanContext: named}}
	case here.IsValid():
		return trace.ContextWithRemoteSpanContext(ctx, named), []trace.Link{{SpanContext: here}}
	}
	return trace.ContextWithRemoteSpanContext(ctx, named), nil
}

// maxText bounds what a client may write into each span.
const maxText = 100

// short is the beginning of a client's text.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// started makes the span of an operation. That of a subscription is over at
// once, and the context has no more of it than its identity: a hundred thousand
// of them live for days.
func (t *traces) started(ctx context.Context, op chaingql.Operation) context.Context {
	around, links := t.join(ctx, op)
	name := op.Type
	if t.names[op.Name] {
		name += " " + op.Name
	}
	attributes := append(make([]attribute.KeyValue, 0, len(t.fixed)+5), t.fixed...)
	attributes = append(attributes, operationType(op.Type), keyHash.String(op.Hash), transport(op.Transport), keyProject.String(short(op.Project)))
	if op.Name != "" {
		attributes = append(attributes, semconv.GraphQLOperationName(short(op.Name)))
	}
	ctx, span := t.tracer.Start(around, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...), trace.WithLinks(links...))
	if op.Type == subscription {
		span.End()
		return trace.ContextWithSpan(around, past{of: span.SpanContext(), by: span.TracerProvider()})
	}
	return context.WithValue(ctx, begun{}, span)
}

// begun is the key of a query's span in its context, where the host may have
// put another one in front: that is not ours to end.
type begun struct{}

// past is what is left of a span that has ended: enough for others to be made
// in its trace.
type past struct {
	noop.Span
	of trace.SpanContext
	by trace.TracerProvider
}

// SpanContext implements trace.Span.
func (p past) SpanContext() trace.SpanContext { return p.of }

// TracerProvider implements trace.Span.
func (p past) TracerProvider() trace.TracerProvider { return p.by }

// finished ends a query's span. The end of a subscription is a span of its own,
// in the trace of its beginning.
func (t *traces) finished(ctx context.Context, op chaingql.Operation, out chaingql.Outcome) {
	span, ok := ctx.Value(begun{}).(trace.Span)
	if op.Type == subscription {
		attributes := append(make([]attribute.KeyValue, 0, len(t.fixed)+6), t.fixed...)
		_, span = t.tracer.Start(ctx, "subscription end", trace.WithAttributes(append(attributes,
			operationType(op.Type), transport(op.Transport), reason(out.Reason), keyDelivered.Int64(int64(out.Blocks)),
			keyCursor.String(short(string(out.Cursor))), keyLived.Float64(out.Duration.Seconds()))...))
	} else if !ok {
		return // it could not be begun
	}
	if out.Failed {
		span.SetAttributes(failure(out))
	}
	if !blameless(out) {
		about := ""
		if out.Err != nil {
			about = strings.ToValidUTF8(out.Err.Error(), "\ufffd") // or an exporter drops all that it would send
		}
		span.SetStatus(codes.Error, about)
	}
	span.End()
}

// reading hands a query's span on to a call of Blocks, which others may wait
// for too.
func (t *traces) reading(ctx, asker context.Context) context.Context {
	if t.passOn {
		ctx = baggage.ContextWithBaggage(ctx, baggage.FromContext(asker))
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(asker))
}
