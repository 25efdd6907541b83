package otelchaingql_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/otelchaingql"
)

// subscriptionOf returns a subscription over the given transport.
func subscriptionOf(transport chaingql.Transport) chaingql.Operation {
	return chaingql.Operation{Type: "subscription", Name: "Live", Hash: "c0ffee", Transport: transport, Project: "demo"}
}

// delivering returns the hook BlockDelivered and arguments for it.
func delivering() (hook func(context.Context, chaingql.Delivery), ctx context.Context, d chaingql.Delivery) {
	hooks := otelchaingql.Hooks(&otelchaingql.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		TracerProvider: sdktrace.NewTracerProvider(),
		Projects:       true, OperationNames: []string{"Live"},
		Attributes: []attribute.KeyValue{attribute.String("chain", "test")},
	})
	op := subscriptionOf("graphql-transport-ws")
	ctx = hooks.OperationStarted(context.Background(), op)
	return hooks.BlockDelivered, ctx, chaingql.Delivery{Operation: op, Cursor: "1m", Lag: time.Millisecond, Source: "live"}
}

func TestBlockDeliveredDoesNotAllocate(t *testing.T) {
	hook, ctx, d := delivering()
	if n := testing.AllocsPerRun(1000, func() { hook(ctx, d) }); n > 0 {
		t.Errorf("BlockDelivered made %v allocations per call, want 0", n)
	}
}

func BenchmarkBlockDelivered(b *testing.B) {
	hook, ctx, d := delivering()
	b.ReportAllocs()
	for b.Loop() {
		hook(ctx, d)
	}
}

func BenchmarkBlockDeliveredInParallel(b *testing.B) {
	hook, ctx, d := delivering()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hook(ctx, d)
		}
	})
}

// BenchmarkQuery measures the hooks of a query, with spans that are sampled and with spans that are not.
func BenchmarkQuery(b *testing.B) {
	for _, row := range []struct {
		name    string
		sampler sdktrace.Sampler
	}{{"sampled", sdktrace.AlwaysSample()}, {"not sampled", sdktrace.NeverSample()}} {
		b.Run(row.name, func(b *testing.B) {
			hooks := otelchaingql.Hooks(&otelchaingql.Options{
				MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
				TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(row.sampler)),
			})
			op := chaingql.Operation{Type: "query", Hash: "c0ffee", Transport: "http", Project: "demo"}
			b.ReportAllocs()
			for b.Loop() {
				ctx := hooks.OperationStarted(context.Background(), op)
				hooks.OperationFinished(ctx, op, chaingql.Outcome{Duration: time.Millisecond})
			}
		})
	}
}
