package otelchaingql

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Options configures [Hooks]. The zero value is safe in production.
type Options struct {
	// TracerProvider creates the spans. Default: otel.GetTracerProvider(), even if it is set after
	// the call of Hooks.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. Default: otel.GetMeterProvider(), even if it is set after
	// the call of Hooks.
	MeterProvider metric.MeterProvider

	// Propagator reads the trace context that a client sends. Clients send the fields of W3C Trace
	// Context and W3C Baggage, so use propagation.TraceContext or a composite propagator that
	// contains it. Default: otel.GetTextMapPropagator(), which reads nothing until the host sets
	// the global propagator.
	Propagator propagation.TextMapPropagator

	// TrustRemoteParent makes an operation part of the trace that its client names. Clients then
	// choose the trace ids. With the sampled flag, they also choose which operations are sampled.
	// Set it only if all clients are your own. Default: an operation belongs to a trace of the
	// host and only has a link to the client's trace.
	//
	// The span of the HTTP request belongs to otelhttp, which continues the client's trace by
	// default. To change this, set its option WithPublicEndpointFn.
	TrustRemoteParent bool

	// Baggage adds the baggage of the client to the context of Backend calls, if Propagator reads
	// baggage. Instrumented clients that the Backend uses send this baggage to their servers, so
	// set it only if all clients are your own. Default: baggage is dropped.
	Baggage bool

	// OperationNames lists the operation names that may appear in span names and in the attribute
	// graphql.operation.name of metrics. Metrics show any other name as "_OTHER". Default: span
	// names and metrics contain no operation name, because clients choose the names and each name
	// would be a new time series.
	OperationNames []string

	// Projects adds the project to the metrics of operations, so that each project has its own time
	// series. Set it only if an Authorizer restricts the projects. Otherwise a client can create
	// new time series with any URL path. Default: false.
	Projects bool

	// Attributes are added to all spans and metrics, for example to distinguish several Handlers in
	// one process. Hooks copies the slice.
	Attributes []attribute.KeyValue
}

// withDefaults returns a copy of o with defaults for the fields that are not set. o may be nil.
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
