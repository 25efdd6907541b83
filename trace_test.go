package chaingql_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestHooksLearnTheTraceOfAnOperationFromTheNearestPlace(t *testing.T) {
	const question = `"query":"{info{version}}"`
	said := func(place string) string { return `{"traceparent":"` + place + `","tracestate":"of ` + place + `"}` }
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
						OperationStarted: func(_ context.Context, op chaingql.Operation) context.Context { got = op.Trace; return nil },
					}})
					n := serve(t, mounted(h))
					header := http.Header{"Content-Type": {"application/json"}}
					if row.header != "" {
						header.Set("Traceparent", row.header)
						header.Set("Tracestate", "of "+row.header)
					}
					asked, init := "{"+question+"}", `{"type":"connection_init"}`
					if row.extensions != "" {
						asked = "{" + question + `,"extensions":` + said(row.extensions) + "}"
					}
					if row.init != "" {
						init = `{"type":"connection_init","payload":` + said(row.init) + `}`
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
						talk(t, n, row.protocol, header, init, `{"id":"1","type":"`+map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[row.protocol]+`","payload":`+asked+`}`)
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

// talk opens a socket and sends frames on it, until they are answered.
func talk(t *testing.T, n *network, protocol string, header http.Header, frames ...string) {
	t.Helper()
	client := n.client()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://api.example/demo/graphql", &websocket.DialOptions{HTTPClient: client, HTTPHeader: header, Subprotocols: []string{protocol}})
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
