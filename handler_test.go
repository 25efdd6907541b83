package chaingql_test

import (
	"context"
	"errors"
	"io"
	"math/big"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A blockingBackend is a Backend. Its Balance ignores its context and waits for a send on release.
type blockingBackend struct {
	chaingql.Backend
	asked   chan struct{}
	release chan struct{}
}

func newBlockingBackend() blockingBackend {
	return blockingBackend{memchain.New(), make(chan struct{}, 100), make(chan struct{})}
}

func (p blockingBackend) Balance(context.Context, chaingql.Address) (*big.Int, error) {
	p.asked <- struct{}{}
	<-p.release
	return big.NewInt(7), nil
}

func TestConcurrentRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newBlockingBackend()
		h, _ := newHandler(t, backend, chaingql.Options{Limits: chaingql.Limits{Requests: 2, InFlight: -1}})
		responses := make(chan string, 2)
		for i := range 2 {
			go func() { responses <- postFrom(h, clientAt(i), askBalance).Body.String() }()
			synctest.Wait() // at most one document is prepared at once
		}
		w := post(h, request802)
		equal(t, "status", w.Code, 503)
		equal(t, "body", w.Body.String(), refusalBody("Too many requests at once.", "SERVICE_UNAVAILABLE"))
		equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
		backend.release <- struct{}{}
		equal(t, "response of the running query", <-responses, balanceResponse("7"))
		synctest.Wait()
		equal(t, "status with room again", post(h, request802).Code, 200)
		close(backend.release)
		equal(t, "response of the running query", <-responses, balanceResponse("7"))
	})
}

// With the first requests of each processor, which need no common slot, there are no more requests than without them.
func TestReservedRequestsAreIncludedInTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64
		backend := newBlockingBackend()
		h, _ := newHandler(t, backend, chaingql.Options{Limits: chaingql.Limits{Requests: most, InFlight: -1}})
		statuses := make(chan int, 2*most)
		ask := func(i int) { statuses <- postFrom(h, clientAt(i), askBalance).Code }
		go ask(0)
		synctest.Wait() // now the document is compiled
		for i := range 2*most - 1 {
			go ask(i)
		}
		synctest.Wait()
		equal(t, "refused", len(statuses), 2*most-len(backend.asked))
		if running := len(backend.asked); running > most || running < most-most/16 {
			t.Errorf("%d queries run, want %d, or at most a sixteenth less", running, most)
		}
		close(backend.release)
		synctest.Wait()
		for range 2 * most {
			<-statuses
		}
		for range most { // all slots are free again
			<-backend.asked
			equal(t, "status", post(h, askBalance).Code, 200)
		}
	})
}

func TestPanickingAuthorizerReleasesItsRequestSlot(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Limits:     chaingql.Limits{Requests: 1},
		Authorizer: authorizer(func(context.Context, chaingql.Credentials) (context.Context, error) { panic("x") }),
	})
	for range 3 {
		equal(t, "status", post(h, request802).Code, 500)
	}
}

func TestSocketsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{Connections: 1}})
		n := serve(t, h)
		s := n.socket(t)
		_, res, err := n.open(t, "/demo/graphql")
		if err == nil {
			t.Fatal("a second socket was accepted")
		}
		refused(t, res, 503, "Too many sockets at once.", "SERVICE_UNAVAILABLE")
		equal(t, "Retry-After", res.Header.Get("Retry-After"), "1")
		_ = s.CloseNow()
		synctest.Wait()
		n.socket(t).send(startVersion)
	})
}

func refused(t *testing.T, res *http.Response, status int, message, code string) {
	t.Helper()
	body, _ := io.ReadAll(res.Body)
	equal(t, "status", res.StatusCode, status)
	equal(t, "content type", res.Header.Get("Content-Type"), jsonType)
	equal(t, "body", string(body), refusalBody(message, code))
}

func TestInvalidHandshakesAreRefusedInJSON(t *testing.T) {
	const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	const proto = "Sec-WebSocket-Protocol: graphql-ws\r\n"
	const version = "Sec-WebSocket-Version: 13\r\n"
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	const noProtocol = "The subprotocol must be graphql-transport-ws or graphql-ws."
	const malformed = "The WebSocket handshake is malformed."
	for what, c := range map[string]struct{ header, message string }{
		"no subprotocol":      {upgrade + version + key, noProtocol},
		"unknown subprotocol": {upgrade + version + "Sec-WebSocket-Protocol: mqtt\r\n" + key, noProtocol},
		"no key":              {upgrade + version + proto, malformed},
		"old version":         {upgrade + "Sec-WebSocket-Version: 8\r\n" + proto + key, malformed},
		"no Connection":       {"Upgrade: websocket\r\n" + version + proto + key, malformed},
		"another upgrade":     {"Connection: Upgrade\r\nUpgrade: h2c\r\n", "Must provide query string."},
		"one of several": {
			"Connection: keep-alive, Upgrade\r\nUpgrade: h2c, WebSocket\r\n" + version + key, noProtocol,
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{})
				w := serve(t, h).wire(t)
				head := "GET /demo/graphql HTTP/1.1\r\nHost: x\r\n" + c.header + "\r\n"
				if _, err := io.WriteString(w, head); err != nil {
					t.Fatal(err)
				}
				status, body := w.response()
				equal(t, "status", status, 400)
				equal(t, "body", body, refusalBody(c.message, "BAD_REQUEST"))
			})
		})
	}
}

func TestHandshakeWithoutHijackerReceivesStatus500(t *testing.T) {
	h, log := newHandler(t, memchain.New(), chaingql.Options{})
	w := do(h, "GET", "/demo/graphql", "",
		"Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "graphql-ws")
	equal(t, "status", w.Code, 500)
	masked(t, w.Body.String(), log, "cannot be taken over")
}

func TestShutdownFinishesQueriesAndEndsSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newBlockingBackend()
		h, _ := newHandler(t, backend, chaingql.Options{})
		n := serve(t, mounted(h))
		subscriber, asker := n.socket(t), n.socket(t)
		subscriber.send(start("1", "subscription{blocks{id}}"))
		asker.send(`{"id":"1","type":"start","payload":` + askBalance + `}`)
		response := make(chan string, 1)
		go func() { response <- post(h, askBalance).Body.String() }()
		synctest.Wait()

		done := make(chan error, 1)
		go func() { done <- h.Shutdown(context.Background()) }()
		time.Sleep(100 * time.Millisecond) // sockets are not closed at the same time
		const shuttingDown = `{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down",` +
			`"extensions":{"code":"SERVICE_UNAVAILABLE"}}}`
		subscriber.expect("closed at once, although a query runs", shuttingDown, "CLOSE 1001")
		asker.expect("not closed yet")
		select {
		case err := <-done:
			t.Fatalf("Shutdown returned %v before the query on the socket had finished", err)
		case <-time.After(time.Minute):
		}
		equal(t, "status of a query while a socket is open", post(h, `{"query":"{__typename}"}`).Code, 200)
		_, res, err := n.open(t, "/demo/graphql")
		if err == nil {
			t.Fatal("a socket was accepted during the shutdown")
		}
		refused(t, res, 503, "Service is shutting down", "SERVICE_UNAVAILABLE")

		close(backend.release)
		equal(t, "response of the running query", <-response, balanceResponse("7"))
		frame := `{"type":"data","id":"1","payload":` + balanceResponse("7") + `}`
		asker.expect("answered, then closed", frame, complete, shuttingDown, "CLOSE 1001")
		if err := <-done; err != nil {
			t.Errorf("Shutdown returned %v", err)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Errorf("a second Shutdown returned %v", err)
		}
		w := post(h, request802)
		equal(t, "status", w.Code, 503)
		equal(t, "body", w.Body.String(), refusalBody("Service is shutting down", "SERVICE_UNAVAILABLE"))
		equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
	})
}

func TestShutdownWaitsUntilTheResponseIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		w := serve(t, h).wire(t)
		w.post("/demo/graphql", request802, len(request802))
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- h.Shutdown(context.Background()) }()
		time.Sleep(time.Second)
		select {
		case err := <-done:
			t.Errorf("Shutdown returned %v before the response was read", err)
		default:
		}
		_, body := w.response()
		equal(t, "body", body, response802)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownAbortsSocketsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newBlockingBackend()
		h, _ := newHandler(t, backend, chaingql.Options{})
		n := serve(t, mounted(h))
		s := n.socket(t)
		s.send(`{"id":"1","type":"start","payload":` + askBalance + `}`)
		response := make(chan string, 1)
		go func() { response <- post(h, askBalance).Body.String() }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		if err := h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown returned %v, want context.DeadlineExceeded", err)
		}
		equal(t, "time", time.Since(begun), 3*time.Second)
		s.expect("aborted", "CUT")
		close(backend.release)
		equal(t, "response of the running query", <-response, balanceResponse("7"))
	})
}

func TestShutdownBeforeAnyRequestSucceeds(t *testing.T) {
	h := chaingql.New(memchain.New(), &chaingql.Options{Authorizer: chaingql.StaticProjects{}})
	if err := h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	equal(t, "status", post(h, request802).Code, 503)
}

func TestHandlerDoesNotReadBlocksUntilTheyAreRequested(t *testing.T) {
	var calls atomic.Int64
	h, _ := newHandler(t, stubBackend{Backend: memchain.New(),
		blocks: func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) {
			calls.Add(1)
			return nil, nil
		}}, chaingql.Options{})
	post(h, askBalance)
	post(h, `{"query":"{__schema{types{name}}}"}`)
	equal(t, "calls of Blocks", calls.Load(), 0)
	post(h, askBlocks)
	if calls.Load() == 0 {
		t.Error("a query for a page did not call Blocks")
	}
}
