package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestTraceContextComesFromTheMostSpecificSource(t *testing.T) {
	const question = `"query":"{info{version}}"`
	output := func(place string) string { return `{"traceparent":"` + place + `","tracestate":"of ` + place + `"}` }
	long := strings.Repeat("x", 2000)
	for _, row := range []struct{ name, protocol, header, init, extensions, want string }{
		{"nothing", "", "", "", "", ""},
		{"a header", "", "header", "", "", "header"},
		{"extensions before a header", "", "header", "", "extensions", "extensions"},
		{"a handshake", "graphql-ws", "header", "", "", "header"},
		{"connection_init before the handshake", "graphql-ws", "header", "init", "", "init"},
		{"extensions before all", "graphql-ws", "header", "init", "extensions", "extensions"},
		{"the other protocol's connection_init", "graphql-transport-ws", "", "init", "", "init"},
		{"the other protocol's extensions", "graphql-transport-ws", "header", "", "extensions", "extensions"},
		{"one that is too long", "", long, "", "", ""},
		{"one that is too long to be kept", "graphql-ws", "", long, "", ""},
	} {
		for _, auth := range []chaingql.Authorizer{nil, chaingql.StaticProjects{"demo": {}}} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var got chaingql.Trace
					h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: auth, Hooks: chaingql.Hooks{
						OperationStarted: func(_ context.Context, op chaingql.Operation) context.Context {
							got = op.Trace
							return nil
						},
					}})
					n := serve(t, mounted(h))
					header := http.Header{"Content-Type": {"application/json"}}
					if row.header != "" {
						header.Set("Traceparent", row.header)
						header.Set("Tracestate", "of "+row.header)
					}
					asked, init := "{"+question+"}", `{"type":"connection_init"}`
					if row.extensions != "" {
						asked = "{" + question + `,"extensions":` + output(row.extensions) + "}"
					}
					if row.init != "" {
						init = `{"type":"connection_init","payload":` + output(row.init) + `}`
					}
					if row.protocol == "" {
						r, err := http.NewRequest("POST", "http://api.example/demo/graphql", strings.NewReader(asked))
						if err != nil {
							t.Fatal(err)
						}
						r.Header = header
						res, err := n.client().Do(r)
						if err != nil {
							t.Fatal(err)
						}
						_ = res.Body.Close()
					} else {
						kind := map[string]string{
							"graphql-ws": "start", "graphql-transport-ws": "subscribe",
						}[row.protocol]
						sendFrames(t, n, row.protocol, header, init, `{"id":"1","type":"`+kind+`","payload":`+asked+`}`)
					}
					want := chaingql.Trace{Parent: row.want}
					if row.want != "" {
						want.State = "of " + row.want
					}
					equal(t, "trace", got, want)
				})
			})
		}
	}
}

func TestBlockDeliveredReceivesTheTraceOfItsOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got chaingql.Trace
		chain := chainOf(t, randomBlocks(17, 1))
		h, _ := newHandler(t, chain, chaingql.Options{Hooks: chaingql.Hooks{
			BlockDelivered: func(_ context.Context, d chaingql.Delivery) { got = d.Operation.Trace },
		}})
		s := serve(t, mounted(h)).socket(t)
		s.send(`{"type":"connection_init","payload":{"traceparent":"init"}}`)
		s.send(start("1", `subscription{blocks(after:""){id}}`))
		synctest.Wait()
		equal(t, "trace", got, chaingql.Trace{Parent: "init"})
	})
}

func TestTraceContextOfALargePayloadIsIgnored(t *testing.T) {
	for size, want := range map[int]string{8 << 10: "init", 8<<10 + 1: ""} {
		synctest.Test(t, func(t *testing.T) {
			got := chaingql.Trace{Parent: "none"}
			h, _ := newHandler(t, memchain.New(), chaingql.Options{Hooks: chaingql.Hooks{
				OperationFinished: func(_ context.Context, o chaingql.Operation, _ chaingql.Outcome) { got = o.Trace },
			}})
			s := serve(t, mounted(h)).socket(t)
			payload := `{"traceparent":"init","x":""}`
			payload = strings.Replace(payload, `""`, `"`+strings.Repeat("x", size-len(payload))+`"`, 1)
			s.send(`{"type":"connection_init","payload":` + payload + `}`)
			s.send(start("1", `{__typename}`))
			synctest.Wait()
			equal(t, "trace", got, chaingql.Trace{Parent: want})
		})
	}
}

// sendFrames opens a socket, sends frames on it, and waits until the bubble is idle.
func sendFrames(t *testing.T, n *network, protocol string, header http.Header, frames ...string) {
	t.Helper()
	client := n.client()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://api.example/demo/graphql", &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: header, Subprotocols: []string{protocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, frame := range frames {
		if err := c.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// A shared call of Blocks has its own context. This context has only those values of the first caller's context that
// ReadStarted copies.
func TestReadStartedPassesTheSpanToBlocks(t *testing.T) {
	type key struct{}
	for what, hook := range map[string]func(ctx, asker context.Context) context.Context{
		"span of Mine": func(ctx, asker context.Context) context.Context {
			return context.WithValue(ctx, key{}, asker.Value(spanKey{}))
		},
		"<nil>": func(context.Context, context.Context) context.Context { return nil },
		"none":  func(context.Context, context.Context) context.Context { panic("boom") },
	} {
		var got []any
		chain := memchain.New()
		hooks := (&hookRecorder{}).hooks()
		hooks.ReadStarted = hook
		h, log := newHandler(t, stubBackend{Backend: chain,
			blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				if q.After == "01m" { // not a call of the block stream
					got = append(got, ctx.Value(key{}))
					if ctx.Value(spanKey{}) != nil {
						t.Error("the call's context has a value of the caller's context that ReadStarted did not copy")
					}
				}
				return chain.Blocks(ctx, q)
			}}, chaingql.Options{Hooks: hooks})
		query(h, `query Mine{blockchain{blocks(first:1,after:"01m"){edges{cursor}}}}`, nil)
		want := "[" + strings.Replace(what, "none", "<nil>", 1) + "]"
		equal(t, "value in the call's context", fmt.Sprint(got), want)
		logged := strings.Contains(log.String(), `hook=ReadStarted error="panic: boom"`)
		equal(t, "panic in the log", logged, what == "none")
	}
}

func TestOutcomeHasTheCodeOfTheFirstError(t *testing.T) {
	const bad = `x:blockchain{account(address:"zzz"){info{balance}}}`
	const failing = `y:blockchain{account(address:"0:` +
		`abababababababababababababababababababababababababababababababab"){info{balance}}}`
	for document, want := range map[string]string{
		"{info{version}}":         "",
		"{" + bad + "}":           "BAD_USER_INPUT",
		"{" + failing + "}":       "INTERNAL_SERVER_ERROR",
		"{" + bad + failing + "}": "BAD_USER_INPUT",
		"{" + failing + bad + "}": "INTERNAL_SERVER_ERROR",
		// In these documents, the data has keys like those of errors.
		"{extensions:info{code:version}" + bad + "}": "BAD_USER_INPUT",
		"{extensions:info{code:version}}":            "",
		"{blockchain{blocks{pageInfo{startCursor}errors:edges{cursor}}}" +
			"info{version}extensions:info{code:version}" + failing + "}": "INTERNAL_SERVER_ERROR",
		"{blockchain{errors:blocks{errors:edges{cursor}}}" + failing + "}": "INTERNAL_SERVER_ERROR",
	} {
		var got []chaingql.Outcome
		h, _ := newHandler(t, stubBackend{Backend: memchain.New(),
			balance: func(context.Context, chaingql.Address) (*big.Int, error) {
				return nil, errors.New(`,"errors":[{"extensions":{"code":"S3CRET"}}]}`)
			}}, chaingql.Options{ShowCost: true, Hooks: chaingql.Hooks{
			OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) {
				got = append(got, o)
			},
		}})
		response := query(h, document, nil)
		if len(got) != 1 {
			t.Fatalf("%s: OperationFinished was called %d times, want once: %s", document, len(got), response)
		}
		equal(t, "code of "+response, got[0].Code, want)
		equal(t, "failed", got[0].Failed, want != "")
	}
}
