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

func subscriptionOf(transport chaingql.Transport) chaingql.Operation {
	return chaingql.Operation{Type: "subscription", Name: "Live", Hash: "c0ffee", Transport: transport, Project: "demo"}
}

// delivering returns the BlockDelivered hook and arguments for a call.
func delivering() (hook func(context.Context, chaingql.Delivery), ctx context.Context, d chaingql.Delivery) {
	hooks := otelchaingql.Hooks(&otelchaingql.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		TracerProvider: sdktrace.NewTracerProvider(),
		Projects:       true, OperationNames: []string{"Live"},
		Attributes: []attribute.KeyValue{attribute.String("chain", "test")},
	})
	op := subscriptionOf("graphql-transport-ws")
	return hooks.BlockDelivered, hooks.OperationStarted(context.Background(), op),
		chaingql.Delivery{Operation: op, Cursor: "1m", Lag: time.Millisecond, Source: "live"}
}

func TestBlockDeliveredAllocatesNothing(t *testing.T) {
	hook, ctx, d := delivering()
	if n := testing.AllocsPerRun(1000, func() { hook(ctx, d) }); n > 0 {
		t.Errorf("%v allocations per block and subscriber, want 0", n)
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

// BenchmarkQuery measures the hooks of a query, with recorded spans and without spans.
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
				hooks.OperationFinished(hooks.OperationStarted(context.Background(), op), op,
					chaingql.Outcome{Duration: time.Millisecond})
			}
		})
	}
}
