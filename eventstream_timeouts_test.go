package chaingql_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// The README's server sets ReadTimeout, and some hosts set WriteTimeout. Neither these timeouts nor those of the
// Handler may end an event stream on which no blocks are sent.
func TestQuietEventStreamsOutliveTheServersTimeouts(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(method+" over "+version, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					blocks := randomBlocks(3, 20)
					chain := chainOf(t, blocks[:10])
					h, _ := newHandler(t, chain, chaingql.Options{})
					protocols := new(http.Protocols)
					protocols.SetHTTP1(version == "HTTP/1.1")
					protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
					n := serveBy(t, &http.Server{
						Handler: mounted(h), Protocols: protocols,
						ReadHeaderTimeout: time.Second, ReadTimeout: time.Second,
						WriteTimeout: time.Second, IdleTimeout: time.Second,
					})
					ctx, leave := context.WithCancel(t.Context())
					r, err := http.NewRequestWithContext(ctx, method, "http://api.example/demo/graphql", nil)
					if method == "GET" {
						r.URL.RawQuery = "query=" + allBlocks
					} else {
						text := body(allBlocks, nil)
						r, err = http.NewRequestWithContext(ctx, method, r.URL.String(), strings.NewReader(text))
						r.Header.Set("Content-Type", "application/json")
					}
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Accept", "text/event-stream")
					dial := func(context.Context, string, string) (net.Conn, error) { return n.dial() }
					transport := &http.Transport{DialContext: dial, Protocols: protocols}
					res, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					defer transport.CloseIdleConnections()
					equal(t, "protocol", res.Proto, version)
					e := listen(t, res, leave)
					time.Sleep(time.Hour)
					synctest.Wait()
					for range len(e.lines) {
						equal(t, "line of an hour without blocks", <-e.lines, ":")
					}
					commit(t, chain, blocks[10:]...)
					e.expect("blocks after an hour", nexts(blocks[10:])...)
				})
			})
		}
	}
}

func TestQuietSocketsOutliveTheServersTimeouts(t *testing.T) {
	for _, protocol := range []string{"graphql-ws", "graphql-transport-ws"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := randomBlocks(3, 20)
				chain := chainOf(t, blocks[:10])
				h, _ := newHandler(t, chain, chaingql.Options{})
				n := serveBy(t, &http.Server{
					Handler: mounted(h), ReadHeaderTimeout: time.Second,
					ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second,
				})
				s, _, err := n.openWith(t, protocol, "/demo/graphql")
				if err != nil {
					t.Fatal(err)
				}
				s.send(`{"type":"connection_init"}`)
				start := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[protocol]
				s.send(`{"id":"1","type":"` + start + `","payload":` + body(allBlocks, nil) + `}`)
				synctest.Wait()
				time.Sleep(time.Hour)
				s.receive()
				commit(t, chain, blocks[10:]...)
				frames := s.receive()
				equal(t, "blocks after an hour", len(frames), 10)
			})
		})
	}
}
