package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

func TestHooksReportAQueryAndItsBackendCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		h, _ := newHandler(t, stubBackend{Backend: memchain.New(),
			balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
				time.Sleep(time.Second)
				d.note("asked under %v", ctx.Value(spanKey{}))
				return nil, errors.New("s3cret")
			}}, chaingql.Options{Hooks: d.hooks()})
		balance := strings.Replace(askBalance, `"{blockchain`, `"query Mine{blockchain`, 1)
		post(h, balance)
		d.expect(t, "a balance", `started query "Mine" by http of demo`, "asked under span of Mine",
			`finished query "Mine" by http of demo in 1s, failed true, reason "", 0 blocks to "", span of Mine`)
		query(h, "{info{version}}", nil)
		d.expect(t, "a query that succeeds", `started query "" by http of demo`,
			`finished query "" by http of demo in 0s, failed false, reason "", 0 blocks to "", span of `)
		query(h, "{nope}", nil)
		d.expect(t, "a query that is not run")
		post(h, `{"query":"{info{version}}"}`, "Accept", "text/event-stream")
		if got := d.drain(); len(got) != 2 || !strings.Contains(got[0], "by sse") {
			t.Errorf("for a query on an event stream, hooks reported %q", got)
		}
	})
}

func TestHooksReportSocketsAndTheirOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		blocks := randomBlocks(41, 8)
		chain := chainOf(t, blocks[:3])
		h, _ := newHandler(t, chain, chaingql.Options{Hooks: d.hooks()})
		n := serve(t, mounted(h))
		s := n.socket(t)
		d.expect(t, "a handshake", "opened graphql-ws of demo")
		s.send(startVersion)
		d.expect(t, "a query", `started query "" by graphql-ws of demo`,
			`finished query "" by graphql-ws of demo in 0s, failed false, reason "", 0 blocks to "", span of `)
		s.send(start("1", fmt.Sprintf(`subscription S{blocks(after:%q){id}}`, blocks[0].Cursor)))
		d.expect(t, "stored blocks", `started subscription "S" by graphql-ws of demo`,
			"delivered "+string(blocks[1].Cursor)+" by graphql-ws after 0s",
			"delivered "+string(blocks[2].Cursor)+" by graphql-ws after 0s")
		b := blocks[3]
		b.Time = time.Now().Add(-3 * time.Second)
		commit(t, chain, b)
		const at = " by graphql-ws after 0s"
		d.expectBoth(t, "a new block",
			"received "+string(b.Cursor)+" after 3s", "delivered "+string(b.Cursor)+at)
		time.Sleep(time.Minute)
		d.drain()
		s.send(`{"type":"stop","id":"1"}`)
		d.expect(t, "a stop", `finished subscription "S" by graphql-ws of demo in 1m0s, failed false, `+
			`reason "client", 3 blocks to "`+string(b.Cursor)+`", span of S`)
		s.send(start("2", allBlocks))
		d.drain()
		_ = s.Close(websocket.StatusNormalClosure, "")
		d.expect(t, "a close", `finished subscription "" by graphql-ws of demo in 0s, failed false, `+
			`reason "client", 0 blocks to "`+string(b.Cursor)+`", span of `,
			"closed graphql-ws: client (false)")
	})
}

func TestHooksReportWhySubscriptionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		chain := chainOf(t, randomBlocks(42, 3))
		hooks := d.hooks()
		hooks.OperationStarted = nil
		h, _ := newHandler(t, chain, chaingql.Options{Hooks: hooks})
		n := serve(t, mounted(h))
		s, e := n.socket(t), n.stream(t, allBlocks)
		s.send(start("1", allBlocks))
		d.drain()
		shut := make(chan error)
		go func() { shut <- h.Shutdown(t.Context()) }()
		if err := <-shut; err != nil {
			t.Error(err)
		}
		got := d.drain()
		slices.Sort(got)
		for i, want := range []string{
			"closed graphql-ws: shutdown",
			`finished subscription "" by graphql-ws of demo in 0s, failed true, reason "shutdown"`,
			`finished subscription "" by sse of demo in 0s, failed true, reason "shutdown"`,
		} {
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Errorf("hooks reported %q, want %s", got, want)
			}
		}
		s.receive()
		e.res.Body.Close()
	})
}

func TestHooksReportSourceFailureAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		blocks := randomBlocks(43, 8)
		chain := chainOf(t, blocks[:1])
		hooks := d.hooks()
		hooks.BlockReceived, hooks.BlockDelivered, hooks.OperationStarted, hooks.OperationFinished = nil, nil, nil, nil
		h, log := newHandler(t, chain, chaingql.Options{Hooks: hooks, StallTimeout: 20 * time.Second})
		startStream(t, h, chain, blocks[1])
		d.expect(t, "a good start")
		chain.Interrupt(errors.New("connection lost"))
		d.expect(t, "a failure", "failed: connection lost, silent false, gap false, waits true")
		time.Sleep(3 * time.Second)
		d.expect(t, "the wait for a block")
		commit(t, chain, blocks[2])
		d.expect(t, "a block", "recovered after 3s")
		time.Sleep(20 * time.Second)
		got := d.drain()
		if len(got) != 1 || !strings.HasPrefix(got[0], "failed: ") ||
			!strings.HasSuffix(got[0], "silent true, gap false, waits false") {
			t.Errorf("after a stall, hooks reported %q", got)
		}
		time.Sleep(time.Minute)
		d.expect(t, "while the stall continues")
		commit(t, chain, blocks[3])
		if got := d.drain(); len(got) != 1 || !strings.HasPrefix(got[0], "recovered after 1m") {
			t.Errorf("at the end of the stall, hooks reported %q", got)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 3 { // also: no Authorizer
			t.Errorf("the log has %d warnings, want 3: %s", n, log)
		}
	})
}

// LimitHit must receive the name of the field of Limits.
func TestLimitHitReceivesTheNameOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		l := chaingql.Limits{
			BodyBytes: 2000, DocumentBytes: 500, Tokens: 200, Depth: 4, Fields: 20, Aliases: 3, Directives: 2,
			FieldRepeats: 2, Operations: 2, Fragments: 2, Variables: 2, ListItems: 2, ResponseBytes: 100,
			MessageBytes: 3000, MessageRate: 5, SocketSubscriptions: 1, Connections: 2, Requests: -1,
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Hooks: d.limitHook(), Limits: l})
		const v = "{info{version}}"
		for limit, document := range map[string]string{
			"DocumentBytes": v + strings.Repeat(" ", 500),
			"Tokens":        v + strings.Repeat("#\n", 200),
			"Depth":         "{blockchain{blocks{edges{node{id}}}}}",
			"Fields":        "{" + strings.Repeat("...{...{info{version}}}", 11) + "}",
			"Aliases":       "{a:info{version}b:info{version}c:info{version}d:info{version}}",
			"Directives":    "{info @skip(if:false) @include(if:true){version @skip(if:false)}}",
			"FieldRepeats":  "{info{version version version}}",
			"Operations":    "query A" + v + "query B" + v + "query C" + v,
			"Fragments": "{...A...B...C}fragment A on Query{__typename}" +
				"fragment B on Query{__typename}fragment C on Query{__typename}",
			"Variables":     "query($a:Int,$b:Int,$c:Int){info{version}}",
			"ResponseBytes": "{__schema{types{name}}}",
		} {
			query(h, document, nil)
			d.expect(t, limit, limit)
		}
		post(h, `{"query":"`+strings.Repeat("x", 2000)+`"}`)
		d.expect(t, "a body", "BodyBytes")
		post(h, `{"query":"{info{version}}","variables":[[[[[[1]]]]]]}`)
		d.expect(t, "nested JSON", "Depth")
		query(h, "query($f:[String]){info{version}}", map[string]any{"f": []string{"a", "b", "c"}})
		d.drain()

		n := serve(t, mounted(h))
		s := n.socket(t)
		s.send(start("1", allBlocks))
		s.send(start("2", allBlocks))
		d.expect(t, "subscriptions on a socket", "SocketSubscriptions")
		s.send(`{"type":"stop","id":"1"}`)
		s.send(start("3", strings.Repeat("x", 600)))
		d.expect(t, "a document on a socket", "DocumentBytes")
		s.send(strings.Repeat(" ", 3001))
		d.expect(t, "a message", "MessageBytes")
		s = n.socket(t)
		for range 20 {
			_ = s.Write(t.Context(), websocket.MessageText, []byte(`{"type":"stop","id":"x"}`))
		}
		d.expect(t, "messages", "MessageRate")
		synctest.Wait()
		n.socket(t)
		n.socket(t)
		if _, res, err := n.open(t, "/demo/graphql"); err == nil {
			t.Error("a third socket was accepted")
		} else {
			equal(t, "status", res.StatusCode, http.StatusServiceUnavailable)
		}
		d.expect(t, "sockets", "Connections")
	})
	for _, name := range []string{
		"DocumentBytes", "BodyBytes", "Depth", "SocketSubscriptions",
		"SocketQueries", "MessageBytes", "MessageRate", "Connections", "ResponseBytes",
	} {
		if _, ok := reflect.TypeFor[chaingql.Limits]().FieldByName(name); !ok {
			t.Errorf("Limits has no field %s", name)
		}
	}
}

// expectServed expects that a query and a subscription are served on s, and a page over HTTP, although hooks fail. It
// adds b, the next block, to the chain.
func expectServed(t *testing.T, h http.Handler, s *socket, chain *memchain.Chain, b chaingql.Block) {
	t.Helper()
	s.send(startVersion)
	s.expect("a query", dataVersion, complete)
	s.send(start("1", allBlocks))
	synctest.Wait()
	commit(t, chain, b)
	s.expect("a block", data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
	equal(t, "status of a page", post(h, askBlocks).Code, 200)
}

func TestPanickingHookIsOnlyLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := memchain.New()
		boom := func() { panic("boom") }
		h, log := newHandler(t, chain, chaingql.Options{Hooks: chaingql.Hooks{
			OperationStarted:  func(context.Context, chaingql.Operation) context.Context { boom(); return nil },
			OperationFinished: func(context.Context, chaingql.Operation, chaingql.Outcome) { boom() },
			SocketOpened:      func(context.Context, chaingql.Socket) { boom() },
			SocketClosed:      func(context.Context, chaingql.Socket, chaingql.Reason, error) { boom() },
			BlockReceived:     func(chaingql.Block, time.Duration) { boom() },
			BlockDelivered:    func(context.Context, chaingql.Delivery) { boom() },
			SourceFailed:      func(error, time.Duration) { boom() },
			SourceRecovered:   func(time.Duration) { boom() },
			LimitHit:          func(context.Context, string) { boom() },
		}})
		n := serve(t, mounted(h))
		blocks := randomBlocks(44, 4)
		s := n.socket(t)
		expectServed(t, h, s, chain, blocks[0])
		chain.Interrupt(nil)
		time.Sleep(time.Second)
		commit(t, chain, blocks[1])
		s.expect("the next", data("1", `{"blocks":{"chain_order":"`+string(blocks[1].Cursor)+`"}}`))
		if got := query(h, "{a:"+strings.Repeat("x", 40_000)+"}", nil); !strings.Contains(got, "LIMIT_EXCEEDED") {
			t.Errorf("the response to a document that exceeds a limit is %s", got)
		}
		_ = s.CloseNow()
		synctest.Wait()
		for _, hook := range []string{
			"OperationStarted", "OperationFinished", "SocketOpened", "SocketClosed",
			"BlockReceived", "BlockDelivered", "SourceFailed", "SourceRecovered", "LimitHit",
		} {
			if !strings.Contains(log.String(), "hook="+hook+` error="panic: boom"`) {
				t.Errorf("the log lacks the panic of %s: %s", hook, log)
			}
		}
	})
}

func TestNilHooksAreNotCalled(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	equal(t, "response", query(h, "{info{version}}", nil), `{"data":{"info":{"version":"0.1.0"}}}`)
	h, _ = newHandler(t, memchain.New(), chaingql.Options{Hooks: chaingql.Hooks{
		OperationStarted: func(context.Context, chaingql.Operation) context.Context { return nil },
	}})
	equal(t, "response", query(h, "{info{version}}", nil), `{"data":{"info":{"version":"0.1.0"}}}`)
}

func TestDebugLogContainsTheEventsOfHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Buffer{}
		debug := slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Logger: slog.New(debug)})
		n := serve(t, mounted(h))
		s := n.socket(t)
		s.send(start("1", "subscription Mine{blocks{id}}"))
		synctest.Wait()
		_ = s.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		query(h, "{"+strings.Repeat("x", 40_000)+"}", nil)
		for _, line := range []string{
			`msg="chaingql: socket opened" protocol=graphql-ws project=demo`,
			`msg="chaingql: operation finished" type=subscription operation=Mine transport=graphql-ws project=demo ` +
				`duration_ms=0 failed=false reason=client blocks=0`,
			`msg="chaingql: socket closed" protocol=graphql-ws project=demo`,
			`msg="chaingql: limit hit; a request was refused or a connection ended" limit=DocumentBytes`,
		} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log lacks %s:\n%s", line, log)
			}
		}
	})
}
