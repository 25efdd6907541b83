package otelchaingql_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/otelchaingql"
)

// globalsSet reports that the test has already set the global providers of this process.
var globalsSet bool

// A host may set up OpenTelemetry after it has created its Handlers, so the global providers must be looked up late.
func TestGlobalProvidersCanBeSetAfterHooks(t *testing.T) {
	if globalsSet {
		t.Log("runs only once per process, because existing instruments keep the first global provider")
		return
	}
	globalsSet = true
	m := &meter{Hooks: otelchaingql.Hooks(nil), t: t, reader: sdkmetric.NewManualReader()}
	m.run(queryMine, chaingql.Outcome{}) // not recorded, but must not panic
	spans := tracetest.NewSpanRecorder()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(w3c)
	op := queryMine
	op.Trace.Parent = parent(traceA)
	m.OperationFinished(m.OperationStarted(context.Background(), op), op, chaingql.Outcome{})
	started := m.read()["chaingql.operations.started{chaingql.transport=http,graphql.operation.type=query}"]
	equal(t, "operations", started, "1")
	equal(t, "spans", len(spans.Ended()), 1)
	equal(t, "link", spans.Ended()[0].Links()[0].SpanContext.TraceID().String(), traceA)
}
