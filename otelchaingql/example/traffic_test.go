package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A trial is the host of the example, which serves until the test ends, with recorded spans.
type trial struct {
	*host
	t      *testing.T
	spans  *tracetest.SpanRecorder
	tel    *telemetry
	url    string
	source *source
}

func start(t *testing.T) *trial {
	t.Helper()
	tr := &trial{t: t, spans: tracetest.NewSpanRecorder()}
	tel, err := openTelemetry(t.Context(), "none", io.Discard, sdktrace.WithSpanProcessor(tr.spans))
	if err != nil {
		t.Fatal(err)
	}
	chain := memchain.New()
	tr.tel, tr.source = tel, &source{Chain: chain}
	tr.host = newHost(tel, chain, tr.source)
	srv := httptest.NewServer(tr.mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		if err := errors.Join(tr.handler.Shutdown(ctx), tel.shutdown(ctx)); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	tr.url = srv.URL
	return tr
}

// A source is a Backend over a chain. It yields each block twice, and it records the span of the last Balance call.
type source struct {
	*memchain.Chain
	asked atomic.Pointer[trace.SpanContext]
}

func (s *source) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range s.Chain.Follow(ctx, after) {
			if !yield(b, err) || err == nil && !yield(b, nil) {
				return
			}
		}
	}
}

func (s *source) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	sc := trace.SpanContextFromContext(ctx)
	s.asked.Store(&sc)
	return s.Chain.Balance(ctx, addr)
}

const (
	traceID, remote = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traceparent     = "00-" + traceID + "-" + remote + "-01"

	balance = `{"query":"{blockchain` +
		`{account(address:\"0:abababababababababababababababababababababababababababababababab\"){info{balance}}}}"}`
	live = `{"query":"subscription{blocks(after:\"\"){seq_no}}"}`
)

// send sends a query over HTTP. header contains names and values of header fields in turn.
func (tr *trial) send(body string, header ...string) *http.Response {
	tr.t.Helper()
	r, err := http.NewRequest("POST", tr.url+"/demo/graphql", strings.NewReader(body))
	if err != nil {
		tr.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		tr.t.Fatal(err)
	}
	return res
}

func (tr *trial) ask(body, want string, header ...string) {
	tr.t.Helper()
	res := tr.send(body, header...)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		tr.t.Fatal(err)
	}
	if !strings.Contains(string(answer), want) {
		tr.t.Errorf("the response to %s is %s, want %s in it", body, answer, want)
	}
}

// follow subscribes to blocks with an event stream. leave disconnects the client.
func (tr *trial) follow(header ...string) (events *bufio.Reader, leave func()) {
	tr.t.Helper()
	res := tr.send(live, append(header, "Accept", "text/event-stream")...)
	tr.t.Cleanup(func() { _ = res.Body.Close() })
	return bufio.NewReader(res.Body), func() { _ = res.Body.Close() }
}

func (tr *trial) event(events *bufio.Reader, want string) {
	tr.t.Helper()
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			tr.t.Fatalf("waiting for %s: %v", want, err)
		}
		if strings.Contains(line, want) {
			return
		}
	}
}

// socket opens a WebSocket and sends connection_init and the given frames.
func (tr *trial) socket(protocol string, header http.Header, frames ...string) *websocket.Conn {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c, _, err := websocket.Dial(ctx, tr.url+"/demo/graphql", &websocket.DialOptions{HTTPClient: client,
		HTTPHeader: header, Subprotocols: []string{protocol}})
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = c.CloseNow() })
	for _, frame := range append([]string{`{"type":"connection_init"}`}, frames...) {
		if err := c.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			tr.t.Fatal(err)
		}
	}
	return c
}

func (tr *trial) hear(c *websocket.Conn, want string) {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		_, frame, err := c.Read(ctx)
		if err != nil {
			tr.t.Fatalf("waiting for %s: %v", want, err)
		}
		if strings.Contains(string(frame), want) {
			return
		}
	}
}

func (tr *trial) block(seqNo uint32) string {
	tr.t.Helper()
	if err := tr.grow(seqNo); err != nil {
		tr.t.Fatal(err)
	}
	return fmt.Sprintf(`"seq_no":%d}`, seqNo)
}

// scrape returns the metrics in the format that Prometheus reads.
func (tr *trial) scrape() string {
	tr.t.Helper()
	w := httptest.NewRecorder()
	tr.metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// await waits until a scrape contains, for each of the given prefixes, a line that starts with it.
func (tr *trial) await(begins ...string) {
	tr.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(10 * time.Millisecond) {
		text, missing := "\n"+tr.scrape(), ""
		for _, line := range begins {
			if !strings.Contains(text, "\n"+line) {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			tr.t.Fatalf("no line of the metrics starts with %s:\n%s", missing, text)
		}
	}
}

// everything causes every event that the dashboard shows.
func (tr *trial) everything() {
	tr.t.Helper()
	tr.ask(balance, `"balance"`)
	tr.ask(strings.Replace(balance, "0:ab", "zzz", 1), "BAD_USER_INPUT")
	tr.ask(`{"query":"`+strings.Repeat("{a", 50)+strings.Repeat("}", 50)+`"}`, "LIMIT_EXCEEDED")
	first := tr.block(1)
	events, leave := tr.follow()
	tr.event(events, first)
	old := tr.socket("graphql-ws", nil, `{"id":"1","type":"start","payload":`+live+`}`)
	tr.hear(old, first)
	c := tr.socket("graphql-transport-ws", nil, `{"id":"1","type":"subscribe","payload":`+live+`}`)
	tr.hear(c, first)
	second := tr.block(2)
	tr.event(events, second)
	tr.hear(old, second)
	tr.hear(c, second)
	tr.chain.Interrupt(errTrouble)
	tr.await(`chaingql_source_up{chain="simulated"`,
		`chaingql_source_failures_total{chain="simulated",error_type="ended"`)
	tr.event(events, tr.block(3))
	tr.await("chaingql_source_outage_duration_seconds_count")
	leave()
	_ = old.Close(websocket.StatusNormalClosure, "")
	_ = c.Close(websocket.StatusNormalClosure, "")
	const ended = `{chain="simulated",chaingql_reason="client",chaingql_transport=`
	tr.await("chaingql_sockets_closed_total"+ended+`"graphql-ws"`,
		"chaingql_sockets_closed_total"+ended+`"graphql-transport-ws"`,
		"chaingql_subscription_duration_seconds_count"+ended+`"sse"`)
}
