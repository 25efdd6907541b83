package otelchaingql_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coder/websocket"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/otelchaingql"
)

// These are ids of traces and of a span that clients send.
const (
	traceA, traceB, traceC = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c",
		"2af7651916cd43dd8448eb211c80319c"
	remote = "b7ad6b7169203331"
)

// parent returns a traceparent header with the given trace id.
func parent(of string) string { return "00-" + of + "-" + remote + "-01" }

// saying returns a JSON object that names a trace, for the extensions of an operation or the payload of
// connection_init.
func saying(of string) string {
	return fmt.Sprintf(`{"traceparent":%q,"tracestate":"shop=1","baggage":"user=7"}`, parent(of))
}

func extensions(of string) string { return `,"extensions":` + saying(of) }

func TestBackendIsCalledInTrustedClientTrace(t *testing.T) {
	for _, row := range []struct{ name, protocol, header, init, extensions, want string }{
		{"header", "", traceA, "", "", traceA},
		{"extensions", "", "", "", traceC, traceC},
		{"extensions before a header", "", traceA, "", traceC, traceC},
		{"handshake", "graphql-ws", traceA, "", "", traceA},
		{"connection_init", "graphql-ws", traceA, traceB, "", traceB},
		{"extensions on a socket", "graphql-ws", traceA, traceB, traceC, traceC},
		{"connection_init of the other protocol", "graphql-transport-ws", "", traceB, "", traceB},
		{"extensions of the other protocol", "graphql-transport-ws", "", traceB, traceC, traceC},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := open(t, otelchaingql.Options{TrustRemoteParent: true}, nil)
			var header []string
			if row.header != "" {
				header = []string{"traceparent", parent(row.header), "tracestate", "shop=1", "baggage", "user=7"}
			}
			init, asked := "", fmt.Sprintf(balance, "")
			if row.init != "" {
				init = saying(row.init)
			}
			if row.extensions != "" {
				asked = fmt.Sprintf(balance, extensions(row.extensions))
			}
			if row.protocol == "" {
				h.post(asked, header...)
			} else {
				s := h.socket(row.protocol, init, header...)
				s.start("1", asked)
				s.hear(`"balance"`)
			}
			span := h.ended(1)[0]
			got, bags := h.asked()
			equal(t, "the backend's span is ours", got.SpanID(), span.SpanContext().SpanID())
			equal(t, "trace", got.TraceID().String(), row.want)
			equal(t, "parent", span.Parent().SpanID().String(), remote)
			equal(t, "parent is remote", span.Parent().IsRemote(), true)
			equal(t, "sampled", got.IsSampled(), true)
			equal(t, "state", got.TraceState().String(), "shop=1")
			equal(t, "client's baggage", bags, "")
		})
	}
}

func TestQuerySpanFollowsSemanticConventions(t *testing.T) {
	h := open(t, otelchaingql.Options{Attributes: []attribute.KeyValue{attribute.String("chain", "test")}}, nil)
	h.post(fmt.Sprintf(balance, ""))
	span := h.ended(1)[0]
	equal(t, "name", span.Name(), "query") // without the client's operation name
	equal(t, "kind", span.SpanKind(), trace.SpanKindServer)
	equal(t, "status", span.Status().Code, codes.Unset)
	equal(t, "scope", span.InstrumentationScope().Name, otelchaingql.Scope)
	equal(t, "schema", span.InstrumentationScope().SchemaURL, "https://opentelemetry.io/schemas/1.43.0")
	got := attributesOf(span)
	hash, _ := got["chaingql.document.hash"].(string)
	equal(t, "length of the hash", len(hash), 64)
	delete(got, "chaingql.document.hash")
	equal(t, "attributes", fmt.Sprint(got), fmt.Sprint(map[attribute.Key]any{
		"chain": "test", "chaingql.project": "demo", "chaingql.transport": "http", "graphql.operation.name": "Mine",
		"graphql.operation.type": "query",
	}))
}

func TestSpanNamesContainListedOperationNames(t *testing.T) {
	h := open(t, otelchaingql.Options{OperationNames: []string{"Mine"}}, nil)
	h.post(fmt.Sprintf(balance, ""))
	equal(t, "listed", h.ended(1)[0].Name(), "query Mine")
	h.post(`{"query":"query ` + strings.Repeat("x", 1000) + `{info{version}}"}`)
	span := h.ended(2)[1]
	equal(t, "another", span.Name(), "query")
	equal(t, "length", len(attributesOf(span)["graphql.operation.name"].(string)), 100)
}

func TestClientTextInSpansIsTruncated(t *testing.T) {
	h := open(t, otelchaingql.Options{TrustRemoteParent: true}, nil)
	h.url = strings.Replace(h.url, "demo", strings.Repeat("%C3%BC", 60)+"%FF", 1)
	cursor := "a" + strings.Repeat("7", chaingql.MaxCursor-1)
	s := h.socket("graphql-transport-ws", "")
	s.start("1", `{"query":"subscription{blocks(after:\"`+cursor+`\"){id}}"}`)
	s.hear(`"id":"1"`)
	for _, span := range h.ended(2) {
		for key, value := range attributesOf(span) {
			text, ok := value.(string)
			if ok && (len(text) > 100 || !utf8.ValidString(text)) {
				t.Errorf("attribute %s of span %s has %d bytes, want at most 100 bytes of UTF-8: %q",
					key, span.Name(), len(text), text)
			}
		}
	}
}

func TestSpanStatusIsErrorOnlyIfServiceFailed(t *testing.T) {
	h := open(t, otelchaingql.Options{TrustRemoteParent: true}, nil)
	fail := func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.fails = err
	}
	h.post(`{"query":"{blockchain{account(address:\"zzz\"){info{balance}}}}"}`)
	h.chain.Replace("e1")
	h.post(`{"query":"{blockchain{blocks(first:1,after:\"01m~e0\"){edges{node{id}}}}}"}`)
	fail(chaingql.ErrLookupNotSupported)
	h.post(`{"query":"{blockchain{block(hash:\"` + strings.Repeat("ab", 32) + `\"){id}}}"}`)
	fail(errors.New("s3cret"))
	h.post(fmt.Sprintf(balance, ""))
	h.post(page)
	spans := h.ended(5)
	for i, want := range []struct {
		errorType string
		code      codes.Code
	}{
		{"BAD_USER_INPUT", codes.Unset}, {"EPOCH_CHANGED", codes.Unset}, {"LOOKUP_NOT_SUPPORTED", codes.Unset},
		{"INTERNAL_SERVER_ERROR", codes.Error}, {"INTERNAL_SERVER_ERROR", codes.Error},
	} {
		equal(t, "error.type", attributesOf(spans[i])["error.type"], any(want.errorType))
		equal(t, "status", spans[i].Status().Code, want.code)
	}
}

func TestSharedPageIsReadInTraceOfFirstQuery(t *testing.T) {
	h := open(t, otelchaingql.Options{Baggage: true, TrustRemoteParent: true}, nil)
	h.append(1)
	h.post(page, "traceparent", parent(traceA), "baggage", "user=7")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ctx := range h.called { // the Handler also reads pages that belong to no query
		if got := trace.SpanContextFromContext(ctx); got.IsValid() {
			equal(t, "trace", got.TraceID().String(), traceA)
			if got.SpanID().String() == remote {
				t.Error("the context of the Backend has the client's span, want the operation's")
			}
			return
		}
	}
	t.Errorf("none of %d Backend calls has a trace, want one in the trace of the query", len(h.called))
}

// A span is exported only when it ends, so a subscription must not be one long span.
func TestSubscriptionHasTwoShortSpansInOneTrace(t *testing.T) {
	for _, protocol := range []string{"graphql-ws", "graphql-transport-ws", "sse"} {
		t.Run(protocol, func(t *testing.T) {
			h := open(t, otelchaingql.Options{TrustRemoteParent: true}, nil)
			h.append(1)
			asked := fmt.Sprintf(newBlocks, extensions(traceA))
			var leave func()
			if protocol == "sse" {
				res := h.send(asked, "Accept", "text/event-stream")
				defer res.Body.Close()
				nextEvent(t, bufio.NewReader(res.Body))
				leave = func() { _ = res.Body.Close() }
			} else {
				s := h.socket(protocol, "")
				s.start("1", asked)
				s.hear("blocks")
				leave = func() { _ = s.Close(websocket.StatusNormalClosure, "") }
			}
			begun := h.ended(1)[0]
			equal(t, "name", begun.Name(), "subscription")
			equal(t, "kind", begun.SpanKind(), trace.SpanKindServer)
			equal(t, "trace", begun.SpanContext().TraceID().String(), traceA)
			leave()
			end := h.ended(2)[1]
			equal(t, "name", end.Name(), "subscription end")
			equal(t, "trace of the end", end.SpanContext().TraceID().String(), traceA)
			equal(t, "parent of the end", end.Parent().SpanID(), begun.SpanContext().SpanID())
			got := attributesOf(end)
			equal(t, "reason", got["chaingql.reason"], any("client"))
			equal(t, "blocks", got["chaingql.blocks.delivered"], any(int64(1)))
			equal(t, "transport", got["chaingql.transport"], any(protocol))
			equal(t, "status", end.Status().Code, codes.Unset)
		})
	}
}

// within returns a middleware that starts a span around a handler, as otelhttp does. It stores the identity of the span
// in *id.
func within(provider trace.TracerProvider, id *trace.SpanContext) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, span := provider.Tracer("host").Start(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)),
				"around")
			defer span.End()
			*id = span.SpanContext()
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

func TestHostSpanIsParentOfOperationSpan(t *testing.T) {
	var around trace.SpanContext
	provider := sdktrace.NewTracerProvider()
	h := open(t, otelchaingql.Options{TrustRemoteParent: true}, within(provider, &around))
	h.post(fmt.Sprintf(balance, ""), "traceparent", parent(traceA))
	span := h.ended(1)[0]
	equal(t, "trace", span.SpanContext().TraceID().String(), traceA)
	equal(t, "parent", span.Parent().SpanID(), around.SpanID())
	equal(t, "links", len(span.Links()), 0)

	h.post(fmt.Sprintf(balance, extensions(traceC)))
	span = h.ended(2)[1]
	equal(t, "parent if the client names another trace", span.Parent().SpanID(), around.SpanID())
	equal(t, "links", len(span.Links()), 1)
	equal(t, "link", span.Links()[0].SpanContext.TraceID().String(), traceC)

	s := h.socket("graphql-ws", "", "traceparent", parent(traceA))
	s.start("1", fmt.Sprintf(balance, ""))
	s.hear(`"balance"`)
	span = h.ended(3)[2]
	equal(t, "trace on a socket", span.SpanContext().TraceID().String(), traceA)
	equal(t, "parent on a socket", span.Parent().SpanID(), around.SpanID())
	s.start("2", fmt.Sprintf(balance, extensions(traceC)))
	s.hear(`"balance"`)
	span = h.ended(4)[3]
	equal(t, "trace on a socket that an operation names", span.SpanContext().TraceID().String(), traceC)
	equal(t, "link to the handshake", span.Links()[0].SpanContext.SpanID(), around.SpanID())
}

func TestQuerySpanLinksToUntrustedClientTrace(t *testing.T) {
	h := open(t, otelchaingql.Options{}, nil)
	h.post(fmt.Sprintf(balance, ""), "traceparent", parent(traceA))
	span := h.ended(1)[0]
	if got, _ := h.asked(); got.TraceID().String() == traceA || !got.IsValid() {
		t.Errorf("the Backend was called with span %v, want a valid one outside the client's trace", got)
	}
	equal(t, "parent", span.Parent().IsValid(), false)
	equal(t, "link", span.Links()[0].SpanContext.TraceID().String(), traceA)
}

func TestBaggageReachesBackendIfEnabled(t *testing.T) {
	h := open(t, otelchaingql.Options{Baggage: true, TrustRemoteParent: true}, nil)
	h.post(fmt.Sprintf(balance, extensions(traceA)))
	_, bags := h.asked()
	equal(t, "baggage", bags, "user=7")
}

func TestInvalidTraceIsIgnored(t *testing.T) {
	h := open(t, otelchaingql.Options{TrustRemoteParent: true}, nil)
	for i, parent := range []string{"nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		parent(traceA) + "-more"} {
		h.post(fmt.Sprintf(balance, ""), "traceparent", parent)
		span := h.ended(i + 1)[i]
		equal(t, "parent of "+parent, span.Parent().IsValid(), false)
	}
}

func TestTraceContextReachesBackendWithoutTracer(t *testing.T) {
	h := open(t, otelchaingql.Options{TracerProvider: noop.NewTracerProvider(), TrustRemoteParent: true}, nil)
	h.post(fmt.Sprintf(balance, ""), "traceparent", parent(traceA))
	got, _ := h.asked()
	equal(t, "trace", got.TraceID().String(), traceA)
	equal(t, "span", got.SpanID().String(), remote)
}

func TestUnsampledClientTraceRemainsUnsampled(t *testing.T) {
	h := open(t, otelchaingql.Options{TrustRemoteParent: true}, nil)
	h.post(fmt.Sprintf(balance, ""), "traceparent", strings.TrimSuffix(parent(traceA), "1")+"0")
	got, _ := h.asked()
	equal(t, "trace", got.TraceID().String(), traceA)
	equal(t, "sampled", got.IsSampled(), false)
	equal(t, "spans", len(h.spans.Ended()), 0)
}

// The context of a subscription lives as long as the subscription, so it must not keep the memory of the ended span and
// its attributes alive.
func TestSubscriptionContextDoesNotKeepItsSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	hooks := otelchaingql.Hooks(&otelchaingql.Options{TracerProvider: provider})
	ctx := hooks.OperationStarted(context.Background(), subscriptionOf("graphql-ws"))
	left := trace.SpanFromContext(ctx)
	if _, ok := left.(sdktrace.ReadOnlySpan); ok {
		t.Error("the context keeps the span and its attributes")
	}
	equal(t, "values that are kept", strings.Count(fmt.Sprint(ctx), "WithValue"), 1)
	equal(t, "identity", left.SpanContext().Equal(spans.Ended()[0].SpanContext()), true)
	// Instrumented clients such as otelhttp.Transport find their tracer through the span.
	_, child := left.TracerProvider().Tracer("client").Start(ctx, "a call for a host field")
	child.End()
	equal(t, "parent of a call", spans.Ended()[1].Parent().SpanID(), left.SpanContext().SpanID())
}
