package otelchaingql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/otelchaingql"
)

// panickingProcessor is a span processor that panics when this package starts a span.
type panickingProcessor struct{ sdktrace.SpanProcessor }

func (panickingProcessor) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.InstrumentationScope().Name == otelchaingql.Scope {
		panic("s3cret")
	}
}

func TestOperationFinishedEndsOnlyItsOwnSpan(t *testing.T) {
	for what, row := range map[string]struct {
		processor sdktrace.SpanProcessor
		front     bool // the host starts a span inside the operation's span
		want      string
	}{
		"in front":           {nil, true, "query"},
		"processor panicked": {panickingProcessor{tracetest.NewSpanRecorder()}, false, ""},
	} {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		if row.processor != nil {
			provider.RegisterSpanProcessor(row.processor)
		}
		m := metered(t, otelchaingql.Options{TracerProvider: provider})
		ctx, around := provider.Tracer("host").Start(context.Background(), "around")
		in := ctx
		func() {
			defer func() { _ = recover() }() // as the Handler does
			in = m.OperationStarted(ctx, queryMine)
		}()
		if row.front {
			in, _ = provider.Tracer("host").Start(in, "front")
		}
		m.OperationFinished(in, queryMine, chaingql.Outcome{})
		var ended []string
		for _, span := range spans.Ended() {
			ended = append(ended, span.Name())
		}
		equal(t, what+": names of the ended spans", strings.Join(ended, " "), row.want)
		equal(t, what+": the host's span is recording", around.IsRecording(), true)
		equal(t, what+": active operations",
			m.read()["chaingql.operations.active{chaingql.transport=http,graphql.operation.type=query}"], "0")
		equal(t, what+": started operations",
			m.read()["chaingql.operations.started{chaingql.transport=http,graphql.operation.type=query}"], "1")
	}
}

func TestSpansAndMetricsAreValidUTF8(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	m := metered(t, otelchaingql.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		Projects: true})
	op := queryMine
	op.Project = "demo\xff"
	m.run(op, chaingql.Outcome{Failed: true, Err: errors.New("lost \xff")})
	equal(t, "status", spans.Ended()[0].Status().Description, "lost \ufffd")
	for series := range m.read() {
		equal(t, series, strings.ContainsRune(series, utf8.RuneError), false) // the replacement for invalid bytes
	}
}
