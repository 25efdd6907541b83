package otelchaingql

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Options configure the telemetry. The zero value is safe in production.
type Options struct {
	// TracerProvider creates the spans. Default: otel.GetTracerProvider(), even if it is set after
	// the call of Hooks.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. Default: otel.GetMeterProvider(), even if it is set after
	// the call of Hooks.
	MeterProvider metric.MeterProvider

	// Propagator reads the trace context that a client sends. Clients send the fields of W3C Trace
	// Context and Baggage, so use propagation.TraceContext or a composite with it. Default:
	// otel.GetTextMapPropagator(), which reads nothing until it is set.
	Propagator propagation.TextMapPropagator

	// TrustRemoteParent continues the trace of the client. Clients then choose trace ids and, by
	// the sampled flag, which operations are sampled. Set it only if all clients are your own.
	// Default: an operation only links to its client's trace and belongs to a trace of the host.
	// For the span of the HTTP request, otelhttp needs WithPublicEndpointFn to do the same.
	TrustRemoteParent bool

	// Baggage passes the client's baggage to the Backend, if Propagator reads it. Every
	// instrumented client that the Backend calls with its context sends it on, so set this only if
	// all clients are your own. Default: baggage is dropped.
	Baggage bool

	// OperationNames lists the operation names that may appear in graphql.operation.name of metrics
	// and in span names. Metrics show any other name as "_OTHER". Default: metrics and span names
	// contain no operation name, because clients choose the names and each would be a new time
	// series.
	OperationNames []string

	// Projects adds the project to the metrics of operations, with a set of time series for each.
	// Set it only if an Authorizer restricts the projects: otherwise any path creates one. Default:
	// false.
	Projects bool

	// Attributes are added to all spans and metrics, to distinguish several Handlers in one
	// process. Hooks copies them.
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
