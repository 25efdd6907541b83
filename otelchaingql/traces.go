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

// traces creates the spans.
type traces struct {
	tracer              trace.Tracer
	propagator          propagation.TextMapPropagator
	trustRemote, passOn bool
	names               names
	fixed               []attribute.KeyValue // attributes of all spans
}

func newTraces(o *Options, names names) *traces {
	return &traces{
		tracer: o.TracerProvider.Tracer(Scope, trace.WithInstrumentationVersion(chaingql.Version),
			trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: o.Propagator, trustRemote: o.TrustRemoteParent, passOn: o.Baggage, names: names,
		fixed: o.Attributes,
	}
}

// traceCarrier is the trace context that a client sent, in the form that a Propagator reads.
type traceCarrier chaingql.Trace

// Get implements propagation.TextMapCarrier.
func (s traceCarrier) Get(key string) string {
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

// Set implements propagation.TextMapCarrier. It does nothing, because no trace context is sent to clients.
func (traceCarrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (traceCarrier) Keys() []string { return []string{"traceparent", "tracestate", "baggage"} }

// join returns a context that contains the parent of the operation's span, and the links of that span. The parent is
// the span in ctx, which the host has started around the Handler. If the client names another trace, the span has a
// link to that trace. The client's trace becomes the parent instead if remote parents are trusted and either ctx has no
// span or the operation was sent on a socket. The span then has a link to the span in ctx.
func (t *traces) join(ctx context.Context, op chaingql.Operation) (context.Context, []trace.Link) {
	if op.Trace == (chaingql.Trace{}) {
		return ctx, nil
	}
	far := t.propagator.Extract(context.Background(), traceCarrier(op.Trace))
	if bags := baggage.FromContext(far); t.passOn && bags.Len() > 0 {
		ctx = baggage.ContextWithBaggage(ctx, bags)
	}
	named, here := trace.SpanContextFromContext(far), trace.SpanContextFromContext(ctx)
	onSocket := op.Transport == chaingql.TransportGraphQLWS || op.Transport == chaingql.TransportGraphQLTransportWS
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

// maxText is the maximum length in bytes of a text from a client in a span.
const maxText = 100

// short returns the first maxText bytes of a text from a client, as valid UTF-8.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// started starts the span of an operation. If the operation is a subscription, started ends the span immediately, and
// the returned context contains only the identity of the span. The reason is that a hundred thousand subscriptions may
// last for days.
func (t *traces) started(ctx context.Context, op chaingql.Operation) context.Context {
	around, links := t.join(ctx, op)
	name := string(op.Type)
	if t.names[op.Name] {
		name += " " + op.Name
	}
	attributes := append(make([]attribute.KeyValue, 0, len(t.fixed)+5), t.fixed...)
	attributes = append(attributes, operationType(op.Type), keyHash.String(op.Hash), transport(op.Transport),
		keyProject.String(short(op.Project)))
	if op.Name != "" {
		attributes = append(attributes, semconv.GraphQLOperationName(short(op.Name)))
	}
	ctx, span := t.tracer.Start(around, name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attributes...), trace.WithLinks(links...))
	if op.Type == chaingql.OperationSubscription {
		span.End()
		return trace.ContextWithSpan(around, endedSpan{of: span.SpanContext(), by: span.TracerProvider()})
	}
	return context.WithValue(ctx, querySpanKey{}, span)
}

// querySpanKey is the context key of a query's span. The current span of the context may be a different one, which the
// host has started and must end.
type querySpanKey struct{}

// endedSpan is a reference to an ended span. Other spans can use it as their parent.
type endedSpan struct {
	noop.Span
	of trace.SpanContext
	by trace.TracerProvider
}

// SpanContext implements trace.Span.
func (p endedSpan) SpanContext() trace.SpanContext { return p.of }

// TracerProvider implements trace.Span.
func (p endedSpan) TracerProvider() trace.TracerProvider { return p.by }

// finished ends the span of a query. For a subscription, it creates a separate span that marks the end, in the trace of
// the span that marked the start.
func (t *traces) finished(ctx context.Context, op chaingql.Operation, out chaingql.Outcome) {
	span, ok := ctx.Value(querySpanKey{}).(trace.Span)
	if op.Type == chaingql.OperationSubscription {
		attributes := append(make([]attribute.KeyValue, 0, len(t.fixed)+6), t.fixed...)
		_, span = t.tracer.Start(ctx, "subscription end", trace.WithAttributes(append(attributes,
			operationType(op.Type), transport(op.Transport), reason(out.Reason), keyDelivered.Int64(int64(out.Blocks)),
			keyCursor.String(short(string(out.Cursor))), keyLived.Float64(out.Duration.Seconds()))...))
	} else if !ok {
		return // started has panicked
	}
	if out.Failed {
		span.SetAttributes(failure(out))
	}
	if isServiceFault(out) {
		about := ""
		if out.Err != nil {
			// If a text is not valid UTF-8, an exporter rejects the whole batch.
			about = strings.ToValidUTF8(out.Err.Error(), "\ufffd")
		}
		span.SetStatus(codes.Error, about)
	}
	span.End()
}

// reading adds the span of the query in asker to ctx, which is the context of a Blocks call. Other queries may wait for
// the same call.
func (t *traces) reading(ctx, asker context.Context) context.Context {
	if t.passOn {
		ctx = baggage.ContextWithBaggage(ctx, baggage.FromContext(asker))
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(asker))
}
