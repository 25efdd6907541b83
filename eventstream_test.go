package chaingql_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

func TestEventStreamSendsNewBlocksWithCursorIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(3, 20)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:10]...)
		e := n.stream(t, allBlocks)
		equal(t, "status", e.res.StatusCode, 200)
		equal(t, "type", e.res.Header.Get("Content-Type"), "text/event-stream; charset=utf-8")
		e.expect("before any block", ":")
		commit(t, chain, blocks[10:]...)
		e.expect("new blocks", nexts(blocks[10:])...)
		time.Sleep(chaingql.DefaultKeepAliveInterval)
		e.expect("a keep-alive comment", ":")
		equal(t, "its position", e.position.Load(), any(string(blocks[19].Cursor)))
	})
}

// A browser that was disconnected before it received an event must not miss the blocks in between.
func TestEventStreamResumesFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(3, 20)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:10]...)
		n.stream(t, allBlocks).expect("a stream, which makes the Handler read the newest block", ":")
		e := n.stream(t, allBlocks)
		e.expect("the beginning", ":")
		_ = e.res.Body.Close()
		commit(t, chain, blocks[10:]...)
		e = n.stream(t, allBlocks, "Last-Event-ID", fmt.Sprint(e.position.Load()))
		e.expect("the blocks in between", append([]string{":"}, nexts(blocks[10:])...)...)
	})
}

// A browser that is disconnected while the server searches stored blocks must not start the search again.
func TestEventStreamThatSearchesSendsItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(4, 500)
		chain := chainOf(t, blocks)
		slow := stubBackend{Backend: chain, blocks: func(
			ctx context.Context, q chaingql.BlocksQuery,
		) ([]chaingql.Block, error) {
			if q.After != "" {
				time.Sleep(4 * time.Second)
			}
			return chain.Blocks(ctx, q)
		}}
		h, _ := newHandler(t, slow, chaingql.Options{WindowSize: 5})
		n := serve(t, h)
		none := `subscription{blocks(after:"` + string(blocks[0].Cursor) + `",filter:{seq_no:{eq:0}}){chain_order}}`
		e := n.stream(t, none)
		e.expect("the beginning", ":")
		equal(t, "its position", e.position.Load(), nil)
		time.Sleep(chaingql.DefaultKeepAliveInterval)
		e.expect("a keep-alive comment", ":")
		equal(t, "its position", e.position.Load(), any(string(blocks[300].Cursor)))
	})
}

func TestEventStreamResumesAfterLastEventID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(4, 300)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:250]...)
		document := `subscription{blocks(after:"` + string(blocks[200].Cursor) + `"){chain_order}}`
		e := n.stream(t, document, "Last-Event-ID", string(blocks[20].Cursor))
		time.Sleep(time.Second)
		e.expect("missed blocks, by Last-Event-ID", append([]string{":"}, nexts(blocks[21:250])...)...)
		commit(t, chain, blocks[250:]...)
		e.expect("new blocks", nexts(blocks[250:])...)
	})
}

func TestSubscriptionStartsAfterACursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(5, 400)
		_, chain, n := serveChain(t, chaingql.Options{WindowSize: 16})
		commit(t, chain, blocks[:350]...)
		for _, after := range []int{-1, 0, 120, 348, 349} {
			cursor := ""
			if after >= 0 {
				cursor = string(blocks[after].Cursor)
			}
			s := n.socket(t)
			s.send(start("1", `subscription{blocks(after:"`+cursor+`"){chain_order}}`))
			time.Sleep(time.Second)
			var want []string
			for _, b := range blocks[after+1 : 350] {
				want = append(want, data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
			}
			s.expect("stored blocks after "+cursor, want...)
		}
		s := n.socket(t)
		s.send(start("1", `subscription{blocks(after:"`+string(blocks[380].Cursor)+`"){chain_order}}`))
		commit(t, chain, blocks[350:]...)
		var want []string
		for _, b := range blocks[381:] {
			want = append(want, data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
		}
		time.Sleep(time.Second)
		s.expect("blocks after a cursor that was after the newest block", want...)
	})
}

func TestTooOldOrForeignCursorEndsTheSubscriptionWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 100)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks...)
		chain.Prune(blocks[50].Cursor)
		tooOld := `{"message":"The blocks after this cursor are no longer kept.",` +
			`"extensions":{"code":"CURSOR_TOO_OLD","cursor":"150","oldest":"` +
			string(blocks[50].Cursor) + `"}}`
		e := n.stream(t, allBlocks, "Last-Event-ID", string(blocks[7].Cursor))
		time.Sleep(time.Second)
		e.expect("too old", ":", "event: next", `data: {"errors":[`+tooOld+`]}`, "event: complete", "data:", "END")
		e = n.stream(t, allBlocks, "Last-Event-ID", "ZZZ")
		time.Sleep(time.Second)
		e.expect("foreign", ":",
			"event: next",
			`data: {"errors":[{"message":"Invalid cursor","extensions":{"code":"BAD_USER_INPUT"}}]}`,
			"event: complete", "data:", "END")
		s := n.socket(t)
		s.send(start("1", `subscription{blocks(after:"`+string(blocks[7].Cursor)+`"){chain_order}}`))
		time.Sleep(time.Second)
		s.expect("too old, on a socket", `{"type":"error","id":"1","payload":`+tooOld+`}`)
		s.send(startVersion)
		s.expect("the socket still works", dataVersion, complete)
	})
}

func TestQueryResponseIsAnEventStreamIfOnlyEventsAreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{})
		n.stream(t, "{info{version}}").expect("a query",
			":",
			"event: next", `data: {"data":{"info":{"version":"0.1.0"}}}`,
			"event: complete", "data:", "END")
		n.stream(t, "{nope}").expect("an invalid document", ":", "event: next",
			`data: {"errors":[{"message":"Cannot query field \"nope\" on type \"Query\".",`+
				`"locations":[{"line":1,"column":2}],`+
				`"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`,
			"event: complete", "data:", "END")
		n.stream(t, "subscription{blocks(filter:{shard:{in:null}}){id}}").expect("a bad filter", ":", "event: next",
			`data: {"errors":[{"message":"shard: \"in\" must not be null","extensions":{"code":"BAD_USER_INPUT"}}]}`,
			"event: complete", "data:", "END")
	})
}

func TestQueryResponseIsJSONIfJSONAndEventsAreAccepted(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	const urql = "application/graphql-response+json, application/graphql+json, application/json, " +
		"text/event-stream, multipart/mixed"
	res := post(h, `{"query":"{info{version}}"}`, "Accept", urql)
	equal(t, "response", res.Body.String(), `{"data":{"info":{"version":"0.1.0"}}}`)
	equal(t, "type", res.Header().Get("Content-Type"), "application/graphql-response+json; charset=utf-8")
	res = post(h, `{"query":"subscription{blocks{id}}"}`, "Accept", "application/json")
	equal(t, "a subscription that cannot be streamed", res.Code, 406)
}

func TestShutdownEndsEventStreamsWithACursorAndNoComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := serveChain(t, chaingql.Options{})
		e := n.stream(t, allBlocks)
		blocks := randomBlocks(8, 1)
		synctest.Wait()
		commit(t, chain, blocks...)
		e.expect("a block", append([]string{":"}, nexts(blocks)...)...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		e.expect("an error without complete", streamEnd("Service is shutting down", blocks[0].Cursor)...)
	})
}

// A client that has received no event has no Last-Event-ID. The final error must contain the position, so that the
// client does not miss blocks.
func TestEventStreamWithoutBlocksEndsWithItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := serveChain(t, chaingql.Options{})
		blocks := randomBlocks(8, 3)
		e := n.stream(t, `subscription{blocks(filter:{workchain_id:{eq:99}}){chain_order}}`)
		synctest.Wait()
		commit(t, chain, blocks...)
		e.expect("nothing matches", ":")
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		e.expect("an error with the cursor", streamEnd("Service is shutting down", blocks[2].Cursor)...)
	})
}

// The response to a HEAD request has no body, so no write would fail after the client has disconnected.
func TestHeadRequestForAnEventStreamEndsAtOnce(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	res := do(h, "HEAD", "/demo/graphql?query="+url.QueryEscape(allBlocks), "", "Accept", "text/event-stream")
	equal(t, "status", res.Code, 200)
	equal(t, "type", res.Header().Get("Content-Type"), "text/event-stream; charset=utf-8")
	equal(t, "evaluations", h.ShareGroups(), 0)
}

func TestExpiredCredentialsEndAnEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := serveChain(t, chaingql.Options{Authorizer: expiresIn(50 * time.Second)})
		commit(t, chain, weave("m")...)
		e := n.stream(t, allBlocks)
		time.Sleep(time.Minute)
		e.expect("keep-alive comments, then an error with the cursor",
			append([]string{":", ":", ":", ":"}, streamEnd("Session expired", "01")...)...)
	})
}

// An expiresIn is an Authorizer that admits every client, with credentials that expire after this duration.
type expiresIn time.Duration

func (d expiresIn) Authorize(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d))
	context.AfterFunc(ctx, cancel)
	return ctx, nil
}

// BodyTimeout applies to the request's body, not to the stream.
func TestPostedEventStreamOutlivesBodyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(10, 1)
		_, chain, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{BodyTimeout: time.Second}})
		w := n.wire(t)
		body := `{"query":"` + allBlocks + `"}`
		w.post("/demo/graphql", body, len(body), "Accept: text/event-stream")
		lines := make(chan string, 10_000)
		go func() {
			defer close(lines)
			for sc := bufio.NewScanner(w.in); sc.Scan(); {
				lines <- sc.Text()
			}
		}()
		time.Sleep(time.Hour)
		commit(t, chain, blocks...)
		synctest.Wait()
		_ = w.Close()
		var all []string
		for line := range lines {
			all = append(all, line)
		}
		if text := strings.Join(all, "\n"); !strings.Contains(text, next(blocks[0])[2]) {
			t.Errorf("a block that was committed after an hour is missing: %.300q", text)
		}
	})
}

func TestEventStreamsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{Connections: 1}})
		n.stream(t, allBlocks)
		res := n.stream(t, allBlocks).res
		equal(t, "status", res.StatusCode, 503)
		equal(t, "retry", res.Header.Get("Retry-After"), "1")
	})
}

func TestEventStreamWithoutFlusherReceivesStatus500(t *testing.T) {
	h, log := newHandler(t, referenceChain(t), chaingql.Options{})
	hidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
	res := do(hidden, "GET", "/demo/graphql?query="+url.QueryEscape(allBlocks), "", "Accept", "text/event-stream")
	equal(t, "status", res.Code, 500)
	if !strings.Contains(log.String(), "cannot flush") {
		t.Errorf("the log lacks the reason: %s", log)
	}
}

func TestDisconnectedEventStreamIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := serveChain(t, chaingql.Options{})
		e := n.stream(t, allBlocks)
		synctest.Wait()
		equal(t, "evaluations", h.ShareGroups(), 1)
		_ = e.res.Body.Close()
		for {
			if _, err := e.res.Body.Read(make([]byte, 1)); err != nil {
				if errors.Is(err, io.EOF) {
					t.Error("the stream ended by itself")
				}
				break
			}
		}
		time.Sleep(2 * chaingql.DefaultKeepAliveInterval)
		equal(t, "evaluations", h.ShareGroups(), 0)
	})
}
