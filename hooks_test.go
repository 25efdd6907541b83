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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A diary takes down what hooks are told.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// since is what was taken down since it was last read.
func (d *diary) since() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := d.since(); !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// expectBoth is expect for what two goroutines tell, either of which may be first.
func (d *diary) expectBoth(t *testing.T, what, one, other string) {
	t.Helper()
	if got := d.since(); !slices.Equal(got, []string{one, other}) && !slices.Equal(got, []string{other, one}) {
		t.Errorf("%s:\n got %s\nwant %s\n and %s", what, strings.Join(got, "\n     "), one, other)
	}
}

type spanKey struct{}

func operation(op chaingql.Operation) string {
	return fmt.Sprintf("%s %q by %s of %s", op.Type, op.Name, op.Transport, op.Project)
}

// hooks note everything.
func (d *diary) hooks() chaingql.Hooks {
	return chaingql.Hooks{
		OperationStarted: func(ctx context.Context, op chaingql.Operation) context.Context {
			d.note("started %s", operation(op))
			return context.WithValue(ctx, spanKey{}, "span of "+op.Name)
		},
		OperationFinished: func(ctx context.Context, op chaingql.Operation, o chaingql.Outcome) {
			d.note("finished %s in %v, failed %v, reason %q, %d blocks to %q, %v", operation(op), o.Duration, o.Failed, o.Reason, o.Blocks, o.Cursor, ctx.Value(spanKey{}))
		},
		SocketOpened: func(_ context.Context, s chaingql.Socket) { d.note("opened %s of %s", s.Protocol, s.Project) },
		SocketClosed: func(_ context.Context, s chaingql.Socket, why chaingql.Reason, err error) {
			d.note("closed %s: %s (%v)", s.Protocol, why, err != nil)
		},
		BlockReceived: func(b chaingql.Block, lag time.Duration) { d.note("received %s after %v", b.Cursor, lag) },
		BlockDelivered: func(_ context.Context, del chaingql.Delivery) {
			d.note("delivered %s by %s after %v", del.Cursor, del.Operation.Transport, del.Lag)
		},
		SourceFailed: func(err error, wait time.Duration) {
			d.note("failed: %v, silent %v, gap %v, waits %v", err, errors.Is(err, chaingql.ErrSilent), errors.Is(err, chaingql.ErrGap), wait > 0)
		},
		SourceRecovered: func(down time.Duration) { d.note("recovered after %v", down.Round(time.Second)) },
		LimitHit:        func(_ context.Context, limit string) { d.note("limit %s", limit) },
	}
}

func TestHooksSeeAQueryAndItsBackendCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		h, _ := newHandler(t, altered{Backend: memchain.New(), balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
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
		if got := d.since(); len(got) != 2 || !strings.Contains(got[0], "by sse") {
			t.Error(got)
		}
	})
}

func TestHooksSeeSocketsAndTheirOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		blocks := randomBlocks(41, 8)
		chain := chainOf(t, blocks[:3])
		h, _ := newHandler(t, chain, chaingql.Options{Hooks: d.hooks()})
		n := serve(t, mounted(h))
		s := n.socket(t)
		d.expect(t, "a handshake", "opened graphql-ws of demo")
		s.say(startVersion)
		d.expect(t, "a query", `started query "" by graphql-ws of demo`,
			`finished query "" by graphql-ws of demo in 0s, failed false, reason "", 0 blocks to "", span of `)
		s.say(start("1", fmt.Sprintf(`subscription S{blocks(after:%q){id}}`, blocks[0].Cursor)))
		d.expect(t, "stored blocks", `started subscription "S" by graphql-ws of demo`,
			"delivered "+string(blocks[1].Cursor)+" by graphql-ws after 0s", "delivered "+string(blocks[2].Cursor)+" by graphql-ws after 0s")
		b := blocks[3]
		b.Time = time.Now().Add(-3 * time.Second)
		commit(t, chain, b)
		d.expectBoth(t, "a new block", "received "+string(b.Cursor)+" after 3s", "delivered "+string(b.Cursor)+" by graphql-ws after 0s")
		time.Sleep(time.Minute)
		d.since()
		s.say(`{"type":"stop","id":"1"}`)
		d.expect(t, "a stop", `finished subscription "S" by graphql-ws of demo in 1m0s, failed false, reason "client", 3 blocks to "`+string(b.Cursor)+`", span of S`)
		s.say(start("2", allBlocks))
		d.since()
		_ = s.Close(websocket.StatusNormalClosure, "")
		d.expect(t, "a close", `finished subscription "" by graphql-ws of demo in 0s, failed false, reason "client", 0 blocks to "`+string(b.Cursor)+`", span of `,
			"closed graphql-ws: client (false)")
	})
}

func TestHooksSeeWhyStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		chain := chainOf(t, randomBlocks(42, 3))
		hooks := d.hooks()
		hooks.OperationStarted = nil
		h, _ := newHandler(t, chain, chaingql.Options{Hooks: hooks})
		n := serve(t, mounted(h))
		s, e := n.socket(t), n.stream(t, allBlocks)
		s.say(start("1", allBlocks))
		d.since()
		shut := make(chan error)
		go func() { shut <- h.Shutdown(t.Context()) }()
		if err := <-shut; err != nil {
			t.Error(err)
		}
		got := d.since()
		slices.Sort(got)
		for i, want := range []string{"closed graphql-ws: shutdown", `finished subscription "" by graphql-ws of demo in 0s, failed true, reason "shutdown"`,
			`finished subscription "" by sse of demo in 0s, failed true, reason "shutdown"`} {
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Errorf("got %q, want %s", got, want)
			}
		}
		s.hear()
		e.res.Body.Close()
	})
}

func TestHooksSeeTheSourceFailAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		blocks := randomBlocks(43, 8)
		chain := chainOf(t, blocks[:1])
		hooks := d.hooks()
		hooks.BlockReceived, hooks.BlockDelivered, hooks.OperationStarted, hooks.OperationFinished = nil, nil, nil, nil
		h, log := newHandler(t, chain, chaingql.Options{Hooks: hooks, Silence: 20 * time.Second})
		waken(t, h, chain, blocks[1])
		d.expect(t, "a good start")
		chain.Interrupt(errors.New("line cut"))
		d.expect(t, "a failure", "failed: line cut, silent false, gap false, waits true")
		time.Sleep(3 * time.Second)
		d.expect(t, "the wait for a block")
		commit(t, chain, blocks[2])
		d.expect(t, "a block", "recovered after 3s")
		time.Sleep(20 * time.Second)
		if got := d.since(); len(got) != 1 || !strings.HasPrefix(got[0], "failed: ") || !strings.HasSuffix(got[0], "silent true, gap false, waits false") {
			t.Errorf("a silence: %q", got)
		}
		time.Sleep(time.Minute)
		d.expect(t, "more of it")
		commit(t, chain, blocks[3])
		if got := d.since(); len(got) != 1 || !strings.HasPrefix(got[0], "recovered after 1m") {
			t.Errorf("the end of the silence: %q", got)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 3 { // also: no Authorizer
			t.Errorf("%d warnings: %s", n, log)
		}
	})
}

// Every name is one of Limits' fields: a host finds what to change.
func TestHooksSeeEachLimitByTheNameOfItsField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		l := chaingql.Limits{BodyBytes: 2000, DocumentBytes: 500, Tokens: 200, Depth: 4, Fields: 20, Aliases: 3, Directives: 2, SameName: 2,
			Operations: 2, Fragments: 2, Variables: 2, ListItems: 2, AnswerBytes: 100, MessageBytes: 3000, MessageRate: 5, SocketSubscriptions: 1, Sockets: 2, Requests: -1}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { d.note("%s", limit) }}, Limits: l})
		const v = "{info{version}}"
		for limit, document := range map[string]string{
			"DocumentBytes": v + strings.Repeat(" ", 500),
			"Tokens":        v + strings.Repeat("#\n", 200),
			"Depth":         "{blockchain{blocks{edges{node{id}}}}}",
			"Fields":        "{" + strings.Repeat("...{...{info{version}}}", 11) + "}",
			"Aliases":       "{a:info{version}b:info{version}c:info{version}d:info{version}}",
			"Directives":    "{info @skip(if:false) @include(if:true){version @skip(if:false)}}",
			"SameName":      "{info{version version version}}",
			"Operations":    "query A" + v + "query B" + v + "query C" + v,
			"Fragments":     "{...A...B...C}" + strings.NewReplacer("*", "A").Replace("fragment * on Query{__typename}") + "fragment B on Query{__typename}fragment C on Query{__typename}",
			"Variables":     "query($a:Int,$b:Int,$c:Int){info{version}}",
			"AnswerBytes":   "{__schema{types{name}}}",
		} {
			query(h, document, nil)
			d.expect(t, limit, limit)
		}
		post(h, `{"query":"`+strings.Repeat("x", 2000)+`"}`)
		d.expect(t, "a body", "BodyBytes")
		post(h, `{"query":"{info{version}}","variables":[[[[[[1]]]]]]}`)
		d.expect(t, "nested JSON", "Depth")
		query(h, "query($f:[String]){info{version}}", map[string]any{"f": []string{"a", "b", "c"}})
		d.since()

		n := serve(t, mounted(h))
		s := n.socket(t)
		s.say(start("1", allBlocks))
		s.say(start("2", allBlocks))
		d.expect(t, "subscriptions on a socket", "SocketSubscriptions")
		s.say(`{"type":"stop","id":"1"}`)
		s.say(start("3", strings.Repeat("x", 600)))
		d.expect(t, "a document on a socket", "DocumentBytes")
		s.say(strings.Repeat(" ", 3001))
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
			t.Error("a third socket")
		} else {
			equal(t, "status", res.StatusCode, http.StatusServiceUnavailable)
		}
		d.expect(t, "sockets", "Sockets")
	})
	for _, name := range []string{"DocumentBytes", "BodyBytes", "Depth", "SocketSubscriptions", "SocketQueries", "MessageBytes", "MessageRate", "Sockets", "AnswerBytes"} {
		if _, ok := reflect.TypeFor[chaingql.Limits]().FieldByName(name); !ok {
			t.Errorf("Limits has no field %s", name)
		}
	}
}

func TestHookThatPanicsHarmsNothing(t *testing.T) {
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
		s.say(startVersion)
		s.expect("a query", dataVersion, complete)
		s.say(start("1", allBlocks))
		synctest.Wait()
		commit(t, chain, blocks[0])
		s.expect("a block", data("1", `{"blocks":{"chain_order":"`+string(blocks[0].Cursor)+`"}}`))
		chain.Interrupt(nil)
		time.Sleep(time.Second)
		commit(t, chain, blocks[1])
		s.expect("the next", data("1", `{"blocks":{"chain_order":"`+string(blocks[1].Cursor)+`"}}`))
		if got := query(h, "{"+strings.Repeat("a:", 1)+strings.Repeat("x", 40_000)+"}", nil); !strings.Contains(got, "LIMIT_EXCEEDED") {
			t.Error(got)
		}
		_ = s.CloseNow()
		synctest.Wait()
		for _, hook := range []string{"OperationStarted", "OperationFinished", "SocketOpened", "SocketClosed", "BlockReceived", "BlockDelivered", "SourceFailed", "SourceRecovered", "LimitHit"} {
			if !strings.Contains(log.String(), "hook="+hook+" panic=boom") {
				t.Errorf("the log does not have %s: %s", hook, log)
			}
		}
	})
}

func TestHooksThatAreNilCostNothing(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	equal(t, "answer", query(h, "{info{version}}", nil), `{"data":{"info":{"version":"0.1.0"}}}`)
	h, _ = newHandler(t, memchain.New(), chaingql.Options{Hooks: chaingql.Hooks{
		OperationStarted: func(context.Context, chaingql.Operation) context.Context { return nil },
	}})
	equal(t, "answer under a hook that returns no context", query(h, "{info{version}}", nil), `{"data":{"info":{"version":"0.1.0"}}}`)
}

func TestTheLogHasWhatHooksAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logbook{}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		n := serve(t, mounted(h))
		s := n.socket(t)
		s.say(start("1", "subscription Mine{blocks{id}}"))
		synctest.Wait()
		_ = s.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		query(h, "{"+strings.Repeat("x", 40_000)+"}", nil)
		for _, line := range []string{
			`msg="chaingql: socket opened" protocol=graphql-ws project=demo`,
			`msg="chaingql: operation finished" type=subscription operation=Mine transport=graphql-ws project=demo duration=0s failed=false reason=client blocks=0`,
			`msg="chaingql: socket closed" protocol=graphql-ws project=demo`,
			`msg="chaingql: limit hit" limit=DocumentBytes`,
		} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log does not have %s:\n%s", line, log)
			}
		}
	})
}
