package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A ticker is a subscription field of a host's, and what became of those who
// subscribed.
type ticker struct {
	yielded, open atomic.Int64
	events        func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool)
}

func (k *ticker) field() chaingql.SubscriptionField {
	return chaingql.SubscriptionField{
		Field: &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{"to": {Type: graphql.Int, DefaultValue: 1_000_000}, "note": {Type: whatever}},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				if p.Info.RootValue != p.Source { // as in graphql-go
					return nil, fmt.Errorf("the root is %v, the source %v", p.Info.RootValue, p.Source)
				}
				return p.Source, nil
			}},
		Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
			return func(yield func(any, error) bool) {
				k.open.Add(1)
				defer k.open.Add(-1)
				if k.events != nil {
					k.events(ctx, p, yield)
					return
				}
				for n := range p.Args["to"].(int) {
					k.yielded.Add(1)
					if !yield(n, nil) {
						return
					}
				}
			}
		},
	}
}

func ticking(t *testing.T, k *ticker, opts chaingql.Options) (*chaingql.Handler, *network) {
	opts.SubscriptionFields = map[string]chaingql.SubscriptionField{"tick": k.field()}
	h, _ := newHandler(t, memchain.New(), opts)
	return h, serve(t, mounted(h))
}

// waits yields nothing until its context is done.
func waits(ctx context.Context, _ graphql.ResolveParams, _ func(any, error) bool) { <-ctx.Done() }

// The client reads nothing for a while: the source waits, and nothing is lost.
func TestSourceWaitsForASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &ticker{}
		_, n := ticking(t, k, chaingql.Options{KeepAlive: -1})
		w := n.wire(t)
		w.say("/demo/graphql", body(`subscription{tick(to:1000)}`, nil), len(body(`subscription{tick(to:1000)}`, nil)), "Accept: text/event-stream")
		time.Sleep(time.Second)
		synctest.Wait()
		before := k.yielded.Load()
		if before >= 999 {
			t.Fatalf("%d events were taken for a client that reads nothing", before)
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
				t.Fatalf("event %d is lost, or out of order", n)
			}
			at += i
		}
		if !strings.HasSuffix(string(all), "event: complete\ndata:\n\n") {
			t.Errorf("ends with %q", all[len(all)-50:])
		}
	})
}

func TestSourceWaitsForASlowSocket(t *testing.T) {
	for _, protocol := range []string{"graphql-ws", "graphql-transport-ws"} {
		synctest.Test(t, func(t *testing.T) {
			k := &ticker{}
			_, n := ticking(t, k, chaingql.Options{KeepAlive: -1})
			client := n.client()
			defer client.CloseIdleConnections()
			ctx := t.Context()
			conn, _, err := websocket.Dial(ctx, "ws://api.example/demo/graphql", &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{protocol}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.CloseNow() }()
			event, ask := "data", "start"
			if protocol == "graphql-transport-ws" {
				event, ask = "next", "subscribe"
			}
			for _, frame := range []string{`{"type":"connection_init"}`, `{"id":"1","type":"` + ask + `","payload":` + body(`subscription{tick(to:1000)}`, nil) + `}`} {
				if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			if before := k.yielded.Load(); before >= 999 {
				t.Fatalf("%s: %d events were taken for a client that reads nothing", protocol, before)
			}
			for next := 0; next < 1000; {
				_, frame, err := conn.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(frame), `"`+event+`"`) {
					continue // what it is greeted with
				}
				if want := fmt.Sprintf(`{"data":{"tick":%d}}`, next); !strings.Contains(string(frame), want) {
					t.Fatalf("%s: heard %s, want %s", protocol, frame, want)
				}
				next++
			}
		})
	}
}

func TestEndOfAClientEndsTheHostsSequence(t *testing.T) {
	for how, end := range map[string]func(s *socket, stream *events, h *chaingql.Handler){
		"stop": func(s *socket, stream *events, _ *chaingql.Handler) {
			s.say(`{"id":"1","type":"stop"}`)
			_ = stream.res.Body.Close()
		},
		"terminate": func(s *socket, stream *events, _ *chaingql.Handler) {
			s.say(`{"type":"connection_terminate"}`)
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
				k := &ticker{events: waits}
				h, n := ticking(t, k, chaingql.Options{})
				s := n.socket(t)
				s.say(start("1", `subscription{tick}`))
				stream := n.stream(t, `subscription{tick}`)
				s.hear()
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

// What has ended for its client is still counted while the host's function has
// not returned: it could be asked for again and again.
func TestSubscriptionCountsUntilTheHostHasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		k := &ticker{events: func(context.Context, graphql.ResolveParams, func(any, error) bool) { <-letGo }}
		h, n := ticking(t, k, chaingql.Options{Limits: chaingql.Limits{Subscriptions: 2}})
		s := n.socket(t)
		for range 3 {
			s.say(start("1", `subscription{tick}`))
			s.say(`{"id":"1","type":"stop"}`)
		}
		if got := fmt.Sprint(s.hear()); strings.Count(got, "There are 2 subscriptions already") != 1 {
			t.Errorf("heard %s", got)
		}
		equal(t, "open", k.open.Load(), 2)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v while the host's functions run", err)
		}
		close(letGo)
		synctest.Wait()
		count, _ := h.Retained()
		equal(t, "kept", count, 0)
	})
}

func TestSubscriptionsOfAHostEndAsTheySay(t *testing.T) {
	for what, row := range map[string]struct {
		events func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool)
		want   []string // parts of the frames, and of the events
	}{
		"at once":    {func(context.Context, graphql.ResolveParams, func(any, error) bool) {}, []string{"complete"}},
		"behind one": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) { yield(1, nil) }, []string{`{"data":{"tick":1}}`, "complete"}},
		"with trouble": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(nil, errors.New("s3cret"))
		}, []string{`"code":"INTERNAL_SERVER_ERROR"`}},
		"with an error that is told": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(nil, failure{"no more", map[string]any{"code": "DRY", "n": 1}})
		}, []string{`"message":"no more","extensions":{"code":"DRY","n":1}`}},
		"with an error that panics": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(nil, bomb("Extensions"))
		}, []string{`"code":"INTERNAL_SERVER_ERROR"`}},
		"with an extension that panics": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) { yield(nil, bomb("")) }, []string{`"code":"INTERNAL_SERVER_ERROR"`}},
		"with a panic":                  {func(context.Context, graphql.ResolveParams, func(any, error) bool) { panic("s3cret") }, []string{`"code":"INTERNAL_SERVER_ERROR"`}},
		"with the goroutine":            {func(context.Context, graphql.ResolveParams, func(any, error) bool) { runtime.Goexit() }, []string{`"code":"INTERNAL_SERVER_ERROR"`}},
		"with its context's, though it is": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(nil, context.Canceled)
		}, []string{`"code":"INTERNAL_SERVER_ERROR"`}},
		"behind an event that fails": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield("s3cret", nil)
			yield(2, nil)
		},
			[]string{`{"data":{"tick":null},"errors":[{"message":"Internal server error","locations":[{"line":1,"column":14}],"path":["tick"]`, `{"data":{"tick":2}}`, "complete"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, n := ticking(t, &ticker{events: row.events}, chaingql.Options{})
				check := func(way, got string) {
					t.Helper()
					at := 0
					for _, part := range row.want {
						i := strings.Index(got[at:], part)
						if i < 0 {
							t.Errorf("%s: %s\nlacks %s", way, got, part)
							return
						}
						at += i + len(part)
					}
					if strings.Contains(got, "s3cret") {
						t.Errorf("%s: %s", way, got)
					}
				}
				s := n.socket(t)
				s.say(start("1", `subscription{tick}`))
				check("graphql-ws", lines(s.hear()))
				check("events by POST", n.ask(t, "POST", `subscription{tick}`, nil, "text/event-stream"))
				check("events by GET", n.ask(t, "GET", `subscription{tick}`, nil, "text/event-stream"))
				if what != "at once" {
					check("graphql-transport-ws", n.askSocket(t, "graphql-transport-ws", "subscribe", `subscription{tick}`, nil)+strings.Join(row.want[1:], " "))
				}
				synctest.Wait()
				count, bytes := h.Retained()
				equal(t, "kept", fmt.Sprint(count, bytes), "0 0")
			})
		})
	}
}

func TestSubscriptionOfAHostIsAskedAsAQueryIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told string
		k := &ticker{}
		k.events = func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool) {
			told = fmt.Sprintf("%v; %v", seen(p), ctx.Value(tenantKey{}))
			yield(ctx.Value(tenantKey{}), nil)
		}
		d := &diary{}
		h, n := ticking(t, k, chaingql.Options{Authorizer: authorizer(func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
			return context.WithValue(ctx, tenantKey{}, 42), nil
		}), Hooks: chaingql.Hooks{OperationFinished: func(_ context.Context, op chaingql.Operation, out chaingql.Outcome) {
			d.note("%s: %d events, %s", operation(op), out.Blocks, out.Reason)
		}}})
		const document = `subscription S($t:Int=5){...F} fragment F on Subscription{alias:tick(to:$t,note:{a:1})}`
		for _, way := range []string{"events", "graphql-ws", "graphql-transport-ws"} {
			equal(t, way, everyWay[way](t, n, document, map[string]any{"t": 6}), `{"data":{"alias":42}}`)
			want := `tick of Subscription at [alias]: Int; source map[string]interface {}(nil), root map[string]interface {}(nil); args map[note:map[a:1] to:6], variables map[t:6]; fields ["alias: tick(to: $t, note: {a: 1})"]`
			if !strings.HasPrefix(told, want) || !strings.HasSuffix(told, "; 42") {
				t.Errorf("%s is told\n     %s\nwant %s", way, told, want)
			}
		}
		d.since()
		equal(t, "events", strings.Count(n.ask(t, "GET", `subscription{tick}`, nil, "text/event-stream"), "event: next"), 1)
		s := n.socket(t)
		s.say(start("1", `subscription S{tick}`))
		s.expect("on a socket", data("1", `{"tick":42}`), complete)
		d.expect(t, "hooks", `subscription "" by sse of demo: 1 events, client`, `subscription "S" by graphql-ws of demo: 1 events, client`)
		for document, want := range map[string]string{
			`subscription{a:tick b:tick}`: "GRAPHQL_VALIDATION_FAILED", `subscription{tick blocks{id}}`: "GRAPHQL_VALIDATION_FAILED", `subscription{tick @skip(if:true)}`: "GRAPHQL_VALIDATION_FAILED",
			`subscription($t:Int){tick(to:$t,none:1)}`: "GRAPHQL_VALIDATION_FAILED", `subscription($t:Int!){tick(to:$t)}`: "BAD_USER_INPUT",
		} {
			told = ""
			for _, way := range []string{"events", "graphql-ws", "graphql-transport-ws"} {
				if got := parse(t, everyWay[way](t, n, document, nil)); got.code() != want || told != "" {
					t.Errorf("%s: %s: %+v, told %s", way, document, got.Errors, told)
				}
			}
		}
		r, err := http.NewRequest("HEAD", "http://api.example/demo/graphql?query=subscription{tick}", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		res, err := n.client().Do(r)
		if err != nil || res.StatusCode != 200 || told != "" {
			t.Errorf("HEAD: %v %v %s", res, err, told)
		}
		count, _ := h.Retained()
		equal(t, "kept", count, 0)
	})
}
