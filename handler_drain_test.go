package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
)

// Clients retry after a refused or dropped connection, but the networks' SDK passes status 503 on to the application. A
// query must not receive status 503 because the Handler still waits for a socket that does not read.
func TestNoQueryReceivesStatus503WhileAHostShutsDown(t *testing.T) {
	realTime(t, "an http.Server shuts down its TCP connections")
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			shutDownDuringQueries(t)
		})
	}
}

func shutDownDuringQueries(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	slow := slowMiddleware{mounted(h), make(chan struct{}), make(chan struct{})}
	server := &http.Server{Handler: slow}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = server.Serve(listener) })
	defer server.Close()
	address := listener.Addr().String()

	nonReader, _, err := websocket.Dial(t.Context(), "ws://"+address+"/demo/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer nonReader.CloseNow()
	if err := nonReader.Write(t.Context(), websocket.MessageText, []byte(start("1", allBlocks))); err != nil {
		t.Fatal(err)
	}

	clientsEnd, end := context.WithCancel(t.Context())
	defer end()
	clients := []*queryClient{{}, {}, {}, {}}
	for i, c := range clients {
		running.Go(func() { c.run(t, address, i%2 == 0, clientsEnd.Done()) })
	}
	held := make(chan int, 1)
	running.Go(func() { held <- statusOf(address + "/demo/graphql/") })
	<-slow.reached
	for _, c := range clients {
		until(t, "each client is answered", func() bool { return c.answered.Load() >= 10 })
	}

	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	drained, closed := make(chan error, 1), make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- h.Shutdown(ctx) })
	go func() { closed <- server.Shutdown(ctx) }()
	until(t, "sockets are refused", func() bool { return openedSocket(h) == http.StatusServiceUnavailable })
	until(t, "streams are refused", func() bool {
		w := post(h, `{"query":"subscription{blocks{id}}"}`, "Accept", "text/event-stream")
		return w.Code == http.StatusServiceUnavailable
	})
	close(slow.proceed)
	equal(t, "status of a query that reaches the Handler during the shutdown", <-held, 200)
	for _, c := range clients {
		until(t, "each client is refused", func() bool { return c.refused.Load() >= 3 })
	}

	enough()
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown returned %v, want context.Canceled, because a socket does not read", err)
	}
	<-closed
	equal(t, "status of a query after the shutdown", post(h, request802).Code, 503)
}

// A slowMiddleware delays requests for a path that ends in a slash until proceed is closed.
type slowMiddleware struct {
	http.Handler
	reached, proceed chan struct{}
}

func (m slowMiddleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/") {
		close(m.reached)
		select {
		case <-m.proceed:
		case <-r.Context().Done():
		}
	}
	m.Handler.ServeHTTP(w, r)
}

func statusOf(address string) int {
	res, err := http.Post("http://"+address, "application/json", strings.NewReader(request802))
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// openedSocket returns the status of a handshake on a connection that cannot be hijacked.
func openedSocket(h http.Handler) int {
	return do(h, "GET", "/demo/graphql", "",
		"Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "graphql-ws").Code
}

// A queryClient sends queries sequentially.
type queryClient struct{ answered, refused atomic.Int64 }

func (c *queryClient) run(t *testing.T, address string, keepAlive bool, ended <-chan struct{}) {
	transport := &http.Transport{DisableKeepAlives: !keepAlive}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for {
		select {
		case <-ended:
			return
		default:
		}
		res, err := client.Post("http://"+address+"/demo/graphql", "application/json", strings.NewReader(request802))
		if err != nil {
			c.refused.Add(1)
			time.Sleep(time.Millisecond) // the SDK waits at least as long
			continue
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch {
		case res.StatusCode != http.StatusOK:
			t.Errorf("a query with keep-alive %t received status %d: %s", keepAlive, res.StatusCode, body)
			return
		case err == nil:
			c.answered.Add(1)
		}
	}
}

// until polls until done returns true. It fails the test after 20 seconds.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within 20 s: %s", what)
		}
	}
}
