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

// globalsSet reports whether the test below has run in this process.
var globalsSet bool

// A host may set up OpenTelemetry after it has created its Handlers, so the hooks must use the
// global providers that are set at the time of a call.
func TestHooksUseGlobalProvidersThatAreSetLater(t *testing.T) {
	if globalsSet {
		t.Log("the test can run only once per process, because instruments keep the first global provider")
		return
	}
	globalsSet = true
	m := &meter{Hooks: otelchaingql.Hooks(nil), t: t, reader: sdkmetric.NewManualReader()}
	m.run(queryMine, chaingql.Outcome{}) // before the providers are set, nothing is recorded
	spans := tracetest.NewSpanRecorder()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(w3c)
	op := queryMine
	op.Trace.Parent = parent(traceA)
	m.OperationFinished(m.OperationStarted(context.Background(), op), op, chaingql.Outcome{})
	started := m.read()["chaingql.operations.started{chaingql.transport=http,graphql.operation.type=query}"]
	equal(t, "number of started operations", started, "1")
	equal(t, "number of spans", len(spans.Ended()), 1)
	equal(t, "trace of the link", spans.Ended()[0].Links()[0].SpanContext.TraceID().String(), traceA)
}
