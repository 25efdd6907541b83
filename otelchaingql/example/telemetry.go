package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	prometheusexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// telemetry holds the providers for the host and the registry from which Prometheus reads the metrics.
type telemetry struct {
	registry   *prometheus.Registry
	meters     *sdkmetric.MeterProvider
	tracers    *sdktrace.TracerProvider
	propagator propagation.TextMapPropagator
}

// openTelemetry creates the telemetry. traces is the name of the exporter for spans: none, stdout or otlp.
func openTelemetry(ctx context.Context, traces string, stdout io.Writer,
	more ...sdktrace.TracerProviderOption) (*telemetry, error) {
	t := &telemetry{registry: prometheus.NewRegistry(), propagator: propagation.TraceContext{}}
	t.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics, err := prometheusexporter.New(prometheusexporter.WithRegisterer(t.registry))
	if err != nil {
		return nil, err
	}
	about, err := resource.Merge(resource.Default(), resource.NewSchemaless(attribute.String("service.name",
		"chaingql-example")))
	if err != nil {
		return nil, err
	}
	var exporter sdktrace.SpanExporter
	switch traces {
	case "none":
	case "stdout":
		exporter, err = stdouttrace.New(stdouttrace.WithWriter(stdout), stdouttrace.WithPrettyPrint())
	case "otlp":
		exporter, err = otlptracehttp.New(ctx)
	default:
		err = fmt.Errorf("-traces must be none, stdout or otlp, not %q", traces)
	}
	if err != nil {
		return nil, err
	}
	options := append([]sdktrace.TracerProviderOption{sdktrace.WithResource(about)}, more...)
	if exporter != nil {
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	t.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics), sdkmetric.WithResource(about))
	t.tracers = sdktrace.NewTracerProvider(options...)
	return t, nil
}

// shutdown exports the remaining spans and stops the providers.
func (t *telemetry) shutdown(ctx context.Context) error {
	return errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx))
}
