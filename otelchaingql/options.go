package otelchaingql

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Options configures the telemetry. The zero value is safe in production.
type Options struct {
	// TracerProvider creates the spans. Default: otel.GetTracerProvider(). This global provider may be set after the
	// call to Hooks.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. Default: otel.GetMeterProvider(). This global provider may be set after the
	// call to Hooks.
	MeterProvider metric.MeterProvider

	// Propagator reads the trace context that a client sends. Clients send the fields of W3C Trace Context and Baggage,
	// so use propagation.TraceContext or a composite propagator that contains it. Default: otel.GetTextMapPropagator(),
	// which reads nothing until the host sets it.
	Propagator propagation.TextMapPropagator

	// TrustRemoteParent lets an operation continue the trace that its client names. This applies to operations on
	// WebSockets, and to all others if the host has started no span around the Handler; otherwise the host's span is
	// the parent, and the operation only has a link to the client's trace. Clients can then choose trace ids and, with
	// the sampled flag, which operations are sampled, so set it only if all clients are your own. Default: false, which
	// only adds the link. otelhttp itself continues clients' traces unless its option WithPublicEndpointFn is used.
	TrustRemoteParent bool

	// Baggage adds the client's baggage to the context of Backend calls, if Propagator reads baggage. Every
	// instrumented library that the Backend uses then sends that baggage to other servers, so set it only if all API
	// clients are your own. Default: false, which adds no baggage. If a middleware around the Handler, such as
	// otelhttp, reads baggage with its own propagator, the context contains the baggage anyway.
	Baggage bool

	// OperationNames lists the operation names that may appear in span names and in the metric attribute
	// graphql.operation.name. Metrics show any other name as "_OTHER". Default: neither span names nor metrics contain
	// operation names, because clients choose the names and each name would create a new time series.
	OperationNames []string

	// Projects adds the project to the metrics of operations, which creates time series for each project. Set it only
	// if an Authorizer restricts the projects. Otherwise clients could create time series with arbitrary paths.
	// Default: false.
	Projects bool

	// Attributes are added to all spans and metrics. Use them to distinguish several Handlers in one process. Hooks
	// copies the slice.
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
