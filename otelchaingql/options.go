package otelchaingql

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Options say what is told, and to whom. The zero value is safe in production.
type Options struct {
	// TracerProvider makes the spans. Default: otel.GetTracerProvider(), also
	// where it is set after Hooks was called.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. Default: otel.GetMeterProvider(), also
	// where it is set after Hooks was called.
	MeterProvider metric.MeterProvider

	// Propagator reads what a client says of its trace. Clients' fields are
	// those of W3C Trace Context and Baggage, so it should be
	// propagation.TraceContext or a composite with it. Default:
	// otel.GetTextMapPropagator(), which reads nothing until it is set.
	Propagator propagation.TextMapPropagator

	// TrustRemoteParent continues the trace that a client names. Clients then
	// choose trace ids and, by the sampled flag, which operations are sampled:
	// set it only if all clients are your own. Default: an operation links to
	// its client's trace and stays in a trace of the host. otelhttp needs
	// WithPublicEndpointFn to do the same for the span of the HTTP request.
	TrustRemoteParent bool

	// Baggage passes on the baggage that clients send with a trace, where
	// Propagator reads it. Every instrumented client that the Backend calls on
	// with its context sends it further: set this only where all clients are
	// your own. Default: it is left behind.
	Baggage bool

	// OperationNames are the names of operations that metrics have in
	// graphql.operation.name, and spans in their names; every other one is
	// "_OTHER" in metrics. Default: metrics and span names are without, for
	// clients choose names, and each would be a time series.
	OperationNames []string

	// Projects has the metrics of operations tell projects apart, each a set of
	// time series. Set it only where an Authorizer says which projects there
	// are, or any path makes one. Default: they do not.
	Projects bool

	// Attributes are put on all spans and metrics, to tell the Handlers of
	// several chains in one process apart. Hooks copies them.
	Attributes []attribute.KeyValue
}

func (o *Options) withDefaults() Options {
	var in Options
	if o != nil {
		in = *o
	}
	if in.TracerProvider == nil {
		in.TracerProvider = otel.GetTracerProvider()
	}
	if in.MeterProvider == nil {
		in.MeterProvider = otel.GetMeterProvider()
	}
	if in.Propagator == nil {
		in.Propagator = otel.GetTextMapPropagator()
	}
	return in
}
