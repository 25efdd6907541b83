package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
)

// While the client does not read, the sequence waits, and no event is lost.
func TestHostSequenceWaitsForASlowEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tickSource{}
		_, n := newTickHandler(t, k, chaingql.Options{KeepAliveInterval: -1})
		w := n.wire(t)
		text := body(`subscription{tick(to:1000)}`, nil)
		w.post("/demo/graphql", text, len(text), "Accept: text/event-stream")
		time.Sleep(time.Second)
		synctest.Wait()
		before := k.yielded.Load()
		if before >= 999 {
			t.Fatalf("%d events were yielded to a client that reads nothing", before)
		}
		res, err := http.ReadResponse(w.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for n := range 1000 {
			event := fmt.Sprintf("event: next\ndata: {\"data\":{\"tick\":%d}}\n\n", n)
			i := strings.Index(string(all)[at:], event)
			if i < 0 {
				t.Fatalf("event %d is lost or out of order", n)
			}
			at += i
		}
		if !strings.HasSuffix(string(all), "event: complete\ndata:\n\n") {
			t.Errorf("the stream ends with %q, want complete", all[len(all)-50:])
		}
	})
}

func TestHostSequenceWaitsForASlowSocket(t *testing.T) {
	for _, protocol := range []string{"graphql-ws", "graphql-transport-ws"} {
		synctest.Test(t, func(t *testing.T) {
			k := &tickSource{}
			_, n := newTickHandler(t, k, chaingql.Options{KeepAliveInterval: -1})
			client := n.client()
			defer client.CloseIdleConnections()
			ctx := t.Context()
			conn, _, err := websocket.Dial(ctx, "ws://api.example/demo/graphql", &websocket.DialOptions{
				HTTPClient: client, Subprotocols: []string{protocol},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.CloseNow() }()
			event, ask := "data", "start"
			if protocol == "graphql-transport-ws" {
				event, ask = "next", "subscribe"
			}
			for _, frame := range []string{
				`{"type":"connection_init"}`,
				`{"id":"1","type":"` + ask + `","payload":` + body(`subscription{tick(to:1000)}`, nil) + `}`,
			} {
				if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			if before := k.yielded.Load(); before >= 999 {
				t.Fatalf("%s: %d events were yielded to a client that reads nothing", protocol, before)
			}
			for next := 0; next < 1000; {
				_, frame, err := conn.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(frame), `"`+event+`"`) {
					continue // connection_ack or ka
				}
				if want := fmt.Sprintf(`{"data":{"tick":%d}}`, next); !strings.Contains(string(frame), want) {
					t.Fatalf("%s: received %s, want %s", protocol, frame, want)
				}
				next++
			}
		})
	}
}

func TestHostSequenceEndsWhenItsSubscriptionEnds(t *testing.T) {
	for how, end := range map[string]func(s *socket, stream *events, h *chaingql.Handler){
		"stop": func(s *socket, stream *events, _ *chaingql.Handler) {
			s.send(`{"id":"1","type":"stop"}`)
			_ = stream.res.Body.Close()
		},
		"terminate": func(s *socket, stream *events, _ *chaingql.Handler) {
			s.send(`{"type":"connection_terminate"}`)
			_ = stream.res.Body.Close()
		},
		"gone": func(s *socket, stream *events, _ *chaingql.Handler) {
			_ = s.CloseNow()
			_ = stream.res.Body.Close()
		},
		"shutdown": func(_ *socket, _ *events, h *chaingql.Handler) {
			if err := h.Shutdown(context.Background()); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &tickSource{events: untilDone}
				h, n := newTickHandler(t, k, chaingql.Options{})
				s := n.socket(t)
				s.send(start("1", `subscription{tick}`))
				stream := n.stream(t, `subscription{tick}`)
				s.receive()
				equal(t, "open", k.open.Load(), 2)
				count, _ := h.Retained()
				equal(t, "kept", count, 2)
				end(s, stream, h)
				synctest.Wait()
				equal(t, "open at the end", k.open.Load(), 0)
				count, bytes := h.Retained()
				equal(t, "kept at the end", fmt.Sprint(count, bytes), "0 0")
			})
		})
	}
}

// A subscription that the client has stopped counts until the host's function has returned. Otherwise a client could
// start any number of such functions.
func TestHostSubscriptionCountsUntilItsSequenceHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		k := &tickSource{events: func(context.Context, graphql.ResolveParams, func(any, error) bool) { <-release }}
		h, n := newTickHandler(t, k, chaingql.Options{Limits: chaingql.Limits{Subscriptions: 2}})
		s := n.socket(t)
		for range 3 {
			s.send(start("1", `subscription{tick}`))
			s.send(`{"id":"1","type":"stop"}`)
		}
		if got := fmt.Sprint(s.receive()); strings.Count(got, "There are 2 subscriptions already") != 1 {
			t.Errorf("the socket received %s, want one refusal", got)
		}
		equal(t, "open", k.open.Load(), 2)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown returned %v while the host's functions ran, want context.DeadlineExceeded", err)
		}
		close(release)
		synctest.Wait()
		count, _ := h.Retained()
		equal(t, "kept", count, 0)
	})
}

func TestClientReceivesTheEndOfAHostSubscription(t *testing.T) {
	internal := []string{`"code":"INTERNAL_SERVER_ERROR"`}
	for what, row := range map[string]struct {
		events eventsFunc
		want   []string // parts of the frames or events, in order
	}{
		"at once": {
			func(context.Context, graphql.ResolveParams, func(any, error) bool) {},
			[]string{"complete"},
		},
		"after one":     {yields(1, nil), []string{`{"data":{"tick":1}}`, "complete"}},
		"with an error": {yields(nil, errors.New("s3cret")), internal},
		"with an error with extensions": {
			yields(nil, failure{"no more", map[string]any{"code": "DRY", "n": 1}}),
			[]string{`"message":"no more","extensions":{"code":"DRY","n":1}`},
		},
		"with an error that panics":     {yields(nil, panickingError("Extensions")), internal},
		"with an extension that panics": {yields(nil, panickingError("")), internal},
		"with a panic": {
			func(context.Context, graphql.ResolveParams, func(any, error) bool) { panic("s3cret") },
			internal,
		},
		"with Goexit": {
			func(context.Context, graphql.ResolveParams, func(any, error) bool) { runtime.Goexit() },
			internal,
		},
		"with context.Canceled of its own": {yields(nil, context.Canceled), internal},
		"after an event that fails": {
			func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
				yield("s3cret", nil)
				yield(2, nil)
			},
			[]string{
				`{"data":{"tick":null},"errors":[{"message":"Internal server error",` +
					`"locations":[{"line":1,"column":14}],"path":["tick"]`,
				`{"data":{"tick":2}}`, "complete",
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, n := newTickHandler(t, &tickSource{events: row.events}, chaingql.Options{})
				check := func(transport, got string) {
					t.Helper()
					at := 0
					for _, part := range row.want {
						i := strings.Index(got[at:], part)
						if i < 0 {
							t.Errorf("the client of %s received %s\nwithout %s", transport, got, part)
							return
						}
						at += i + len(part)
					}
					if strings.Contains(got, "s3cret") {
						t.Errorf("the client of %s received the internal error: %s", transport, got)
					}
				}
				s := n.socket(t)
				s.send(start("1", `subscription{tick}`))
				check("graphql-ws", lines(s.receive()))
				check("events by POST", n.ask(t, "POST", `subscription{tick}`, nil, "text/event-stream"))
				check("events by GET", n.ask(t, "GET", `subscription{tick}`, nil, "text/event-stream"))
				if what != "at once" {
					got := n.askSocket(t, "graphql-transport-ws", "subscribe", `subscription{tick}`, nil)
					check("graphql-transport-ws", got+strings.Join(row.want[1:], " "))
				}
				synctest.Wait()
				count, bytes := h.Retained()
				equal(t, "kept", fmt.Sprint(count, bytes), "0 0")
			})
		})
	}
}

func TestHostSubscriptionReceivesResolveParams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var params string
		k := &tickSource{}
		k.events = func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool) {
			params = fmt.Sprintf("%v; %v", describeParams(p), ctx.Value(tenantKey{}))
			yield(ctx.Value(tenantKey{}), nil)
		}
		d := &hookRecorder{}
		h, n := newTickHandler(t, k, chaingql.Options{
			Authorizer: authorizer(func(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
				return context.WithValue(ctx, tenantKey{}, 42), nil
			}),
			Hooks: chaingql.Hooks{
				OperationFinished: func(_ context.Context, op chaingql.Operation, out chaingql.Outcome) {
					d.note("%s: %d events, %s", operation(op), out.Blocks, out.Reason)
				},
			},
		})
		const document = `subscription S($t:Int=5){...F} fragment F on Subscription{alias:tick(to:$t,note:{a:1})}`
		for _, transport := range []string{"events", "graphql-ws", "graphql-transport-ws"} {
			got := allTransports[transport](t, n, document, map[string]any{"t": 6})
			equal(t, transport, got, `{"data":{"alias":42}}`)
			want := `tick of Subscription at [alias]: Int; source map[string]interface {}(nil), ` +
				`root map[string]interface {}(nil); args map[note:map[a:1] to:6], variables map[t:6]; ` +
				`fields ["alias: tick(to: $t, note: {a: 1})"]`
			if !strings.HasPrefix(params, want) || !strings.HasSuffix(params, "; 42") {
				t.Errorf("%s: Subscribe received\n     %s\nwant %s", transport, params, want)
			}
		}
		d.drain()
		events := n.ask(t, "GET", `subscription{tick}`, nil, "text/event-stream")
		equal(t, "events", strings.Count(events, "event: next"), 1)
		s := n.socket(t)
		s.send(start("1", `subscription S{tick}`))
		s.expect("on a socket", data("1", `{"tick":42}`), complete)
		d.expect(t, "hooks",
			`subscription "" by sse of demo: 1 events, client`,
			`subscription "S" by graphql-ws of demo: 1 events, client`)
		for document, want := range map[string]string{
			`subscription{a:tick b:tick}`:              "GRAPHQL_VALIDATION_FAILED",
			`subscription{tick blocks{id}}`:            "GRAPHQL_VALIDATION_FAILED",
			`subscription{tick @skip(if:true)}`:        "GRAPHQL_VALIDATION_FAILED",
			`subscription($t:Int){tick(to:$t,none:1)}`: "GRAPHQL_VALIDATION_FAILED",
			`subscription($t:Int!){tick(to:$t)}`:       "BAD_USER_INPUT",
		} {
			params = ""
			for _, transport := range []string{"events", "graphql-ws", "graphql-transport-ws"} {
				if got := parse(t, allTransports[transport](t, n, document, nil)); got.code() != want || params != "" {
					t.Errorf("%s: %s received %+v, and Subscribe received %q", transport, document, got.Errors, params)
				}
			}
		}
		r, err := http.NewRequest("HEAD", "http://api.example/demo/graphql?query=subscription{tick}", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		res, err := n.client().Do(r)
		if err != nil || res.StatusCode != 200 || params != "" {
			t.Errorf("a HEAD request received %v, %v; Subscribe received %q", res, err, params)
		}
		count, _ := h.Retained()
		equal(t, "kept", count, 0)
	})
}
