package otelchaingql_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/chaingql/chaingql/otelchaingql"
)

// A host serves a chain with telemetry. It records spans and the contexts of Backend calls.
type host struct {
	t     *testing.T
	spans *tracetest.SpanRecorder
	chain *memchain.Chain
	url   string

	mu     sync.Mutex
	called []context.Context // contexts of the Backend calls
	fails  error             // if not nil, the error of all Backend calls
}

// w3c is the propagator for W3C Trace Context and Baggage.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// open starts a host that serves until the test ends. If around is not nil, it wraps the Handler.
func open(t *testing.T, opts otelchaingql.Options, around func(http.Handler) http.Handler) *host {
	t.Helper()
	h := &host{t: t, spans: tracetest.NewSpanRecorder(), chain: memchain.New()}
	if opts.TracerProvider == nil {
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h.spans))
		t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
		opts.TracerProvider = provider
	}
	if opts.Propagator == nil {
		opts.Propagator = w3c
	}
	handler := chaingql.New(backend{h.chain, h}, &chaingql.Options{Hooks: otelchaingql.Hooks(&opts),
		Logger: slog.New(slog.DiscardHandler)})
	var served http.Handler = handler
	if around != nil {
		served = around(handler)
	}
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", served)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := handler.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	h.url = srv.URL + "/demo/graphql"
	return h
}

// backend is a Backend that records the contexts of its calls in its host.
type backend struct {
	*memchain.Chain
	h *host
}

func (b backend) note(ctx context.Context) error {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	b.h.called = append(b.h.called, ctx)
	return b.h.fails
}

func (b backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if err := b.note(ctx); err != nil {
		return nil, err
	}
	return b.Chain.Balance(ctx, addr)
}

func (b backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := b.note(ctx); err != nil {
		return nil, err
	}
	return b.Chain.Blocks(ctx, q)
}

func (b backend) BlockByHash(ctx context.Context, hash chaingql.Hash) (chaingql.Block, error) {
	if err := b.note(ctx); err != nil {
		return chaingql.Block{}, err
	}
	return b.Chain.BlockByHash(ctx, hash)
}

// asked returns the span and the baggage of the last Backend call.
func (h *host) asked() (trace.SpanContext, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.called) == 0 {
		h.t.Fatal("the backend was not called")
	}
	ctx := h.called[len(h.called)-1]
	return trace.SpanContextFromContext(ctx), baggage.FromContext(ctx).String()
}

// append appends a masterchain block with the given sequence number.
func (h *host) append(seqNo uint32) {
	h.t.Helper()
	b := chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: seqNo, Time: time.Now(),
		Cursor: chaingql.ChainOrder(-1, 1<<63, seqNo, 0)}
	if err := h.chain.Append(b); err != nil {
		h.t.Fatal(err)
	}
}

const (
	balance = `{"query":"query Mine{blockchain` +
		`{account(address:\"0:abababababababababababababababababababababababababababababababab\"){info{balance}}}}"%s}`
	page      = `{"query":"{blockchain{blocks(first:3){edges{cursor}}}}"}`
	newBlocks = `{"query":"subscription Live{blocks(after:\"\"){id}}"%s}`
)

// post sends a query over HTTP and returns the response body. pairs contains names and values of headers in turn.
func (h *host) post(body string, pairs ...string) string {
	h.t.Helper()
	res := h.send(body, pairs...)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(answer)
}

func (h *host) send(body string, pairs ...string) *http.Response {
	h.t.Helper()
	r, err := http.NewRequest("POST", h.url, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header = headers(append(pairs, "Content-Type", "application/json"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	return res
}

func headers(pairs []string) http.Header {
	header := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		header.Set(pairs[i], pairs[i+1])
	}
	return header
}

// A socket is a client's WebSocket.
type socket struct {
	*websocket.Conn
	h *host
}

// socket opens a WebSocket and sends connection_init. init is the payload, or "" for an empty object.
func (h *host) socket(protocol, init string, pairs ...string) *socket {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c, _, err := websocket.Dial(ctx, h.url, &websocket.DialOptions{HTTPClient: client, HTTPHeader: headers(pairs),
		Subprotocols: []string{protocol}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.CloseNow() })
	s := &socket{c, h}
	if init == "" {
		init = "{}"
	}
	s.say(`{"type":"connection_init","payload":` + init + `}`)
	s.hear("connection_ack")
	return s
}

func (s *socket) say(frame string) {
	s.h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		s.h.t.Fatal(err)
	}
}

// hear reads messages until one contains text.
func (s *socket) hear(text string) {
	s.h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		_, frame, err := s.Read(ctx)
		if err != nil {
			s.h.t.Fatalf("reading failed before a message with %s arrived: %v", text, err)
		}
		if strings.Contains(string(frame), text) {
			return
		}
	}
}

// start sends the message that starts an operation in the socket's protocol.
func (s *socket) start(id, payload string) {
	s.h.t.Helper()
	typ := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[s.Subprotocol()]
	s.say(fmt.Sprintf(`{"id":%q,"type":%q,"payload":%s}`, id, typ, payload))
}

// nextEvent reads an event stream until the next event with data and returns that data.
func nextEvent(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data:"); ok && strings.TrimSpace(data) != "" {
			return data
		}
	}
}

// ended waits until n spans have ended and returns them.
func (h *host) ended(n int) []sdktrace.ReadOnlySpan {
	h.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		switch spans := h.spans.Ended(); {
		case len(spans) == n:
			return spans
		case len(spans) > n || time.Now().After(end):
			h.t.Fatalf("%d spans ended, want %d: %v", len(spans), n, spans)
		}
	}
}

// attributesOf returns the attributes of a span by key.
func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
