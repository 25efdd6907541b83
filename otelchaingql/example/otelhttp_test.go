package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// ended waits until spans with the given names have ended, and returns all ended spans by name.
func (tr *trial) ended(names ...string) map[string]sdktrace.ReadOnlySpan {
	tr.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		spans := map[string]sdktrace.ReadOnlySpan{}
		for _, s := range tr.spans.Ended() {
			spans[s.Name()] = s
		}
		missing := ""
		for _, name := range names {
			if spans[name] == nil {
				missing = name
			}
		}
		if missing == "" {
			return spans
		}
		if time.Now().After(end) {
			tr.t.Fatalf("no span %q has ended; %d other spans have", missing, len(spans))
		}
	}
}

// in checks that span is in the client's trace and has the given parent.
func (tr *trial) in(span sdktrace.ReadOnlySpan, parent string) {
	tr.t.Helper()
	if got := span.SpanContext().TraceID().String(); got != traceID {
		tr.t.Errorf("%s is in trace %s, want the client's", span.Name(), got)
	}
	if got := span.Parent().SpanID().String(); got != parent {
		tr.t.Errorf("%s has parent %s, want %s", span.Name(), got, parent)
	}
}

func attributeOf(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func TestQuerySpanIsChildOfRequestSpan(t *testing.T) {
	tr := start(t)
	tr.ask(balance, `"balance"`, "traceparent", traceparent)
	spans := tr.ended("query", "POST /{project}/graphql")
	request, query := spans["POST /{project}/graphql"], spans["query"]
	tr.in(request, remote)
	tr.in(query, request.SpanContext().SpanID().String())
	if got := tr.source.asked.Load(); got.SpanID() != query.SpanContext().SpanID() {
		t.Errorf("the Backend was called with span %v, want the query's span", got.SpanID())
	}
	if got := attributeOf(request, "http.route"); got != "/{project}/graphql" {
		t.Errorf("the request span has the route %q, want /{project}/graphql", got)
	}
}

func TestSocketOperationsAreChildrenOfHandshakeSpan(t *testing.T) {
	for protocol, typ := range map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"} {
		t.Run(protocol, func(t *testing.T) {
			tr := start(t)
			block := tr.block(1)
			c := tr.socket(protocol, http.Header{"Traceparent": {traceparent}},
				`{"id":"1","type":"`+typ+`","payload":`+balance+`}`, `{"id":"2","type":"`+typ+`","payload":`+live+`}`)
			tr.hear(c, block)
			tr.hear(c, tr.block(2))
			spans := tr.ended("query", "subscription", "GET /{project}/graphql") // the socket is still open
			handshake := spans["GET /{project}/graphql"]
			tr.in(handshake, remote)
			tr.in(spans["query"], handshake.SpanContext().SpanID().String())
			tr.in(spans["subscription"], handshake.SpanContext().SpanID().String())
			_ = c.Close(websocket.StatusNormalClosure, "")
			spans = tr.ended("subscription end")
			tr.in(spans["subscription end"], spans["subscription"].SpanContext().SpanID().String())
		})
	}
}

func TestEventStreamIsFlushedThroughOtelhttp(t *testing.T) {
	tr := start(t)
	first := tr.block(1)
	events, leave := tr.follow("traceparent", traceparent)
	tr.event(events, first)
	tr.event(events, tr.block(2)) // arrives at once only if otelhttp does not buffer it
	begun := tr.ended("subscription")["subscription"]
	leave()
	spans := tr.ended("subscription end", "POST /{project}/graphql")
	tr.in(spans["POST /{project}/graphql"], remote)
	tr.in(begun, spans["POST /{project}/graphql"].SpanContext().SpanID().String())
	tr.in(spans["subscription end"], begun.SpanContext().SpanID().String())
}
