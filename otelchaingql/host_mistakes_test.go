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

// panickingProcessor panics when a span of this package starts.
type panickingProcessor struct{ sdktrace.SpanProcessor }

// OnStart implements sdktrace.SpanProcessor.
func (panickingProcessor) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.InstrumentationScope().Name == otelchaingql.Scope {
		panic("s3cret")
	}
}

func TestOperationFinishedNeverEndsSpansOfHost(t *testing.T) {
	for what, row := range map[string]struct {
		processor sdktrace.SpanProcessor
		inner     bool   // the host starts a span inside the operation's span
		want      string // name of the span that must have ended
	}{
		"span of the host inside":     {nil, true, "query"},
		"panic in the span processor": {panickingProcessor{tracetest.NewSpanRecorder()}, false, ""},
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
			defer func() { _ = recover() }() // the Handler recovers panics of hooks too
			in = m.OperationStarted(ctx, queryMine)
		}()
		if row.inner {
			in, _ = provider.Tracer("host").Start(in, "inner")
		}
		m.OperationFinished(in, queryMine, chaingql.Outcome{})
		var ended []string
		for _, span := range spans.Ended() {
			ended = append(ended, span.Name())
		}
		equal(t, what+": names of the ended spans", strings.Join(ended, " "), row.want)
		equal(t, what+": the span of the host around the Handler is recording", around.IsRecording(), true)
		const query = "{chaingql.transport=http,graphql.operation.type=query}"
		equal(t, what+": number of active operations", m.read()["chaingql.operations.active"+query], "0")
		equal(t, what+": number of started operations", m.read()["chaingql.operations.started"+query], "1")
	}
}

func TestSpansAndMetricsAreValidUTF8(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	m := metered(t, otelchaingql.Options{TracerProvider: provider, Projects: true})
	op := queryMine
	op.Project = "demo\xff"
	m.run(op, chaingql.Outcome{Failed: true, Err: errors.New("lost \xff")})
	equal(t, "status description", spans.Ended()[0].Status().Description, "lost \ufffd")
	for series := range m.read() {
		if strings.ContainsRune(series, utf8.RuneError) {
			t.Errorf("the attributes of series %q are not valid UTF-8", series)
		}
	}
}
