package chaingql_test

import (
	"context"
	"errors"
	"fmt"
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

// patient answers a balance when it is let, whatever its context says.
type patient struct {
	chaingql.Backend
	asked chan struct{}
	let   chan struct{}
}

func newPatient() patient {
	return patient{memchain.New(), make(chan struct{}, 100), make(chan struct{})}
}

func (p patient) Balance(context.Context, chaingql.Address) (*big.Int, error) {
	p.asked <- struct{}{}
	<-p.let
	return big.NewInt(7), nil
}

func TestRequestsAtOnceAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newPatient()
		h, _ := newHandler(t, backend, chaingql.Options{Limits: chaingql.Limits{Requests: 2}})
		answers := make(chan string, 2)
		for range 2 {
			go func() { answers <- post(h, askBalance).Body.String() }()
		}
		synctest.Wait()
		w := post(h, ask802)
		equal(t, "status", w.Code, 503)
		equal(t, "body", w.Body.String(), refusalBody("Too many requests at once.", "SERVICE_UNAVAILABLE"))
		equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
		backend.let <- struct{}{}
		equal(t, "running answer", <-answers, balanceAnswer("7"))
		synctest.Wait()
		equal(t, "status with room again", post(h, ask802).Code, 200)
		close(backend.let)
		equal(t, "running answer", <-answers, balanceAnswer("7"))
	})
}

func TestPanicsGiveTheirPlaceBack(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Limits:     chaingql.Limits{Requests: 1},
		Authorizer: authorizer(func(context.Context, chaingql.Credentials) (context.Context, error) { panic("x") }),
	})
	for range 3 {
		equal(t, "status", post(h, ask802).Code, 500)
	}
}

func TestSocketsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{Sockets: 1}})
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
		n.socket(t).say(startVersion)
	})
}

func refused(t *testing.T, res *http.Response, status int, message, code string) {
	t.Helper()
	body, _ := io.ReadAll(res.Body)
	equal(t, "status", res.StatusCode, status)
	equal(t, "content type", res.Header.Get("Content-Type"), jsonType)
	equal(t, "body", string(body), refusalBody(message, code))
}

func TestHandshakesThatAreWrongAreRefusedInJSON(t *testing.T) {
	const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	const proto = "Sec-WebSocket-Protocol: graphql-ws\r\n"
	for what, c := range map[string]struct{ header, status, message string }{
		"no subprotocol":      {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" + key, "400", "The subprotocol must be graphql-transport-ws or graphql-ws."},
		"unknown subprotocol": {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n" + key, "400", "The subprotocol must be graphql-transport-ws or graphql-ws."},
		"no key":              {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" + proto, "400", "The WebSocket handshake is malformed."},
		"old version":         {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n" + proto + key, "400", "The WebSocket handshake is malformed."},
		"no Connection":       {"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" + proto + key, "400", "The WebSocket handshake is malformed."},
		"another upgrade":     {"Connection: Upgrade\r\nUpgrade: h2c\r\n", "400", "Must provide query string."},
		"one of several":      {"Connection: keep-alive, Upgrade\r\nUpgrade: h2c, WebSocket\r\nSec-WebSocket-Version: 13\r\n" + key, "400", "The subprotocol must be graphql-transport-ws or graphql-ws."},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{})
				w := serve(t, h).wire(t)
				if _, err := io.WriteString(w, "GET /demo/graphql HTTP/1.1\r\nHost: x\r\n"+c.header+"\r\n"); err != nil {
					t.Fatal(err)
				}
				status, body := w.hear()
				equal(t, "status", fmt.Sprint(status), c.status)
				equal(t, "body", body, refusalBody(c.message, "BAD_REQUEST"))
			})
		})
	}
}

func TestHandshakeThroughAWriterThatCannotBeHijackedIsMasked(t *testing.T) {
	h, log := newHandler(t, memchain.New(), chaingql.Options{})
	w := do(h, "GET", "/demo/graphql", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "graphql-ws")
	equal(t, "status", w.Code, 500)
	masked(t, w.Body.String(), log, "cannot be taken over")
}

func TestShutdownFinishesWhatRunsAndTellsTheSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newPatient()
		h, _ := newHandler(t, backend, chaingql.Options{})
		n := serve(t, mounted(h))
		subscriber, asker := n.socket(t), n.socket(t)
		subscriber.say(start("1", "subscription{blocks{id}}"))
		asker.say(`{"id":"1","type":"start","payload":` + askBalance + `}`)
		answer := make(chan string, 1)
		go func() { answer <- post(h, askBalance).Body.String() }()
		synctest.Wait()

		done := make(chan error, 1)
		go func() { done <- h.Shutdown(context.Background()) }()
		time.Sleep(100 * time.Millisecond) // two sockets are not told at the same time
		const goodbye = `{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`
		subscriber.expect("told at once, though a query runs", goodbye, "CLOSE 1001")
		asker.expect("not yet told")
		select {
		case err := <-done:
			t.Fatalf("Shutdown did not wait: %v", err)
		case <-time.After(time.Minute):
		}
		equal(t, "status of a query while a socket is open", post(h, `{"query":"{__typename}"}`).Code, 200)
		_, res, err := n.open(t, "/demo/graphql")
		if err == nil {
			t.Fatal("a socket was accepted")
		}
		refused(t, res, 503, "Service is shutting down", "SERVICE_UNAVAILABLE")

		close(backend.let)
		equal(t, "the running answer", <-answer, balanceAnswer("7"))
		asker.expect("answered, then told", `{"type":"data","id":"1","payload":`+balanceAnswer("7")+`}`, complete, goodbye, "CLOSE 1001")
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Errorf("another Shutdown: %v", err)
		}
		w := post(h, ask802)
		equal(t, "status", w.Code, 503)
		equal(t, "body", w.Body.String(), refusalBody("Service is shutting down", "SERVICE_UNAVAILABLE"))
		equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
	})
}

func TestShutdownWaitsUntilTheAnswerIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		w := serve(t, h).wire(t)
		w.say("/demo/graphql", ask802, len(ask802))
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- h.Shutdown(context.Background()) }()
		time.Sleep(time.Second)
		select {
		case err := <-done:
			t.Errorf("Shutdown did not wait: %v", err)
		default:
		}
		_, body := w.hear()
		equal(t, "body", body, answer802)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownHonoursItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newPatient()
		h, _ := newHandler(t, backend, chaingql.Options{})
		n := serve(t, mounted(h))
		s := n.socket(t)
		s.say(`{"id":"1","type":"start","payload":` + askBalance + `}`)
		answer := make(chan string, 1)
		go func() { answer <- post(h, askBalance).Body.String() }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		if err := h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		equal(t, "time", time.Since(begun), 3*time.Second)
		s.expect("cut", "CUT")
		close(backend.let)
		equal(t, "the running answer", <-answer, balanceAnswer("7"))
	})
}

func TestShutdownBeforeAnyRequest(t *testing.T) {
	h := chaingql.New(memchain.New(), &chaingql.Options{Authorizer: chaingql.StaticProjects{}})
	if err := h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	equal(t, "status", post(h, ask802).Code, 503)
}

// Whoever does not ask for blocks does not start the stream of them.
func TestNothingIsStartedBeforeItIsNeeded(t *testing.T) {
	var calls atomic.Int64
	h, _ := newHandler(t, altered{Backend: memchain.New(), blocks: func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) {
		calls.Add(1)
		return nil, nil
	}}, chaingql.Options{})
	post(h, askBalance)
	post(h, `{"query":"{__schema{types{name}}}"}`)
	equal(t, "calls of Blocks", calls.Load(), 0)
	post(h, askBlocks)
	if calls.Load() == 0 {
		t.Error("no call of Blocks for a page")
	}
}
