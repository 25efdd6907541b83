package chaingql_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// An events is an event stream as a client reads it.
type events struct {
	t     *testing.T
	res   *http.Response
	lines chan string
}

// stream opens an event stream by GET. Of pairs, each first is the name of a
// header, each second its value.
func (n *network) stream(t *testing.T, document string, pairs ...string) *events {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, "GET", "http://api.example/demo/graphql?query="+url.QueryEscape(document), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	res, err := n.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, res, leave)
}

// listen reads the events of a response until the test ends.
func listen(t *testing.T, res *http.Response, leave context.CancelFunc) *events {
	e := &events{t, res, make(chan string, 1000)}
	go func() {
		defer close(e.lines)
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			if line := sc.Text(); line != "" {
				e.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		leave()
		_ = res.Body.Close()
		for range e.lines { // until the reader is gone
		}
	})
	return e
}

// marks are the suffixes of cursors that clients were sent back to. Those that expect compare frames leave them out.
var marks = regexp.MustCompile(`![0-9a-z]+\.[0-9a-z]{15}`)

// expect waits for all to be quiet and compares what has come since.
func (e *events) expect(what string, want ...string) {
	e.t.Helper()
	synctest.Wait()
	var got []string
	for {
		select {
		case line, ok := <-e.lines:
			if ok {
				got = append(got, line)
				continue
			}
			got = append(got, "END")
		default:
		}
		break
	}
	equal(e.t, what, marks.ReplaceAllString(strings.Join(got, "\n"), ""), strings.Join(want, "\n"))
}

func next(b chaingql.Block) []string {
	return []string{"event: next", "id: " + string(b.Cursor), fmt.Sprintf(`data: {"data":{"blocks":{"chain_order":%q}}}`, b.Cursor)}
}

func nexts(blocks []chaingql.Block) (lines []string) {
	for _, b := range blocks {
		lines = append(lines, next(b)...)
	}
	return lines
}

const allBlocks = "subscription{blocks{chain_order}}"

func TestAnEventStreamHasEachNewBlockUnderItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(3, 20)
		_, chain, n := live(t, chaingql.Options{})
		commit(t, chain, blocks[:10]...)
		e := n.stream(t, allBlocks)
		equal(t, "status", e.res.StatusCode, 200)
		equal(t, "type", e.res.Header.Get("Content-Type"), "text/event-stream; charset=utf-8")
		e.expect("before any block", ":")
		commit(t, chain, blocks[10:]...)
		e.expect("new blocks", nexts(blocks[10:])...)
		time.Sleep(chaingql.DefaultKeepAlive)
		e.expect("a heartbeat", ":")
	})
}

func TestAnEventStreamGoesOnBehindTheLastEventItsClientHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(4, 300)
		_, chain, n := live(t, chaingql.Options{})
		commit(t, chain, blocks[:250]...)
		e := n.stream(t, `subscription{blocks(after:"`+string(blocks[200].Cursor)+`"){chain_order}}`, "Last-Event-ID", string(blocks[20].Cursor))
		time.Sleep(time.Second)
		e.expect("what was missed, by Last-Event-ID", append([]string{":"}, nexts(blocks[21:250])...)...)
		commit(t, chain, blocks[250:]...)
		e.expect("and then what is new", nexts(blocks[250:])...)
	})
}

func TestASubscriptionStartsBehindACursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(5, 400)
		_, chain, n := live(t, chaingql.Options{Window: 16})
		commit(t, chain, blocks[:350]...)
		for _, after := range []int{-1, 0, 120, 348, 349} {
			cursor := ""
			if after >= 0 {
				cursor = string(blocks[after].Cursor)
			}
			s := n.socket(t)
			s.say(start("1", `subscription{blocks(after:"`+cursor+`"){chain_order}}`))
			time.Sleep(time.Second)
			var want []string
			for _, b := range blocks[after+1 : 350] {
				want = append(want, data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
			}
			s.expect("stored blocks after "+cursor, want...)
		}
		s := n.socket(t)
		s.say(start("1", `subscription{blocks(after:"`+string(blocks[380].Cursor)+`"){chain_order}}`))
		commit(t, chain, blocks[350:]...)
		var want []string
		for _, b := range blocks[381:] {
			want = append(want, data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
		}
		time.Sleep(time.Second)
		s.expect("a cursor past the newest block waits", want...)
	})
}

func TestACursorThatCannotBeServedIsToldAndFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 100)
		_, chain, n := live(t, chaingql.Options{})
		commit(t, chain, blocks...)
		chain.Prune(blocks[50].Cursor)
		tooOld := `{"message":"The blocks after this cursor are no longer kept.","extensions":{"code":"CURSOR_TOO_OLD","cursor":"150","oldest":"` + string(blocks[50].Cursor) + `"}}`
		e := n.stream(t, allBlocks, "Last-Event-ID", string(blocks[7].Cursor))
		time.Sleep(time.Second)
		e.expect("too old", ":", "event: next", `data: {"errors":[`+tooOld+`]}`, "event: complete", "data:", "END")
		e = n.stream(t, allBlocks, "Last-Event-ID", "ZZZ")
		time.Sleep(time.Second)
		e.expect("foreign", ":", "event: next", `data: {"errors":[{"message":"Invalid cursor","extensions":{"code":"BAD_USER_INPUT"}}]}`, "event: complete", "data:", "END")
		s := n.socket(t)
		s.say(start("1", `subscription{blocks(after:"`+string(blocks[7].Cursor)+`"){chain_order}}`))
		time.Sleep(time.Second)
		s.expect("too old, on a socket", `{"type":"error","id":"1","payload":`+tooOld+`}`)
		s.say(startVersion)
		s.expect("the socket lives on", dataVersion, complete)
	})
}

func TestEventsAloneAreAnsweredInEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := live(t, chaingql.Options{})
		n.stream(t, "{info{version}}").expect("a query", ":", "event: next", `data: {"data":{"info":{"version":"0.1.0"}}}`, "event: complete", "data:", "END")
		n.stream(t, "{nope}").expect("an invalid document", ":", "event: next",
			`data: {"errors":[{"message":"Cannot query field \"nope\" on type \"Query\".","locations":[{"line":1,"column":2}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`,
			"event: complete", "data:", "END")
		n.stream(t, "subscription{blocks(filter:{shard:{in:null}}){id}}").expect("a bad filter", ":", "event: next",
			`data: {"errors":[{"message":"shard: \"in\" must not be null","extensions":{"code":"BAD_USER_INPUT"}}]}`, "event: complete", "data:", "END")
	})
}

func TestQueriesAreAnsweredInJSONWhereBothAreWelcome(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	const urql = "application/graphql-response+json, application/graphql+json, application/json, text/event-stream, multipart/mixed"
	res := post(h, `{"query":"{info{version}}"}`, "Accept", urql)
	equal(t, "answer", res.Body.String(), `{"data":{"info":{"version":"0.1.0"}}}`)
	equal(t, "type", res.Header().Get("Content-Type"), "application/graphql-response+json; charset=utf-8")
	res = post(h, `{"query":"subscription{blocks{id}}"}`, "Accept", "application/json")
	equal(t, "a subscription that cannot be streamed", res.Code, 406)
}

func TestShutdownEndsEventStreamsSoThatTheirClientsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := live(t, chaingql.Options{})
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
		e.expect("told, without complete", "event: next", "id: "+string(blocks[0].Cursor), `data: {"errors":[{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"`+string(blocks[0].Cursor)+`"}}]}`, "END")
	})
}

// A client that had no event yet must not come back at a later place.
func TestAStreamThatHadNoEventNamesThePlaceItReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := live(t, chaingql.Options{})
		blocks := randomBlocks(8, 3)
		e := n.stream(t, `subscription{blocks(filter:{workchain_id:{eq:99}}){chain_order}}`)
		synctest.Wait()
		commit(t, chain, blocks...)
		e.expect("nothing matches", ":")
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		e.expect("told, with the place", "event: next", "id: "+string(blocks[2].Cursor), `data: {"errors":[{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"`+string(blocks[2].Cursor)+`"}}]}`, "END")
	})
}

// The body of a HEAD is thrown away: no write would tell that its client left.
func TestHeadOfAStreamEndsAtOnce(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	res := do(h, "HEAD", "/demo/graphql?query="+url.QueryEscape(allBlocks), "", "Accept", "text/event-stream")
	equal(t, "status", res.Code, 200)
	equal(t, "type", res.Header().Get("Content-Type"), "text/event-stream; charset=utf-8")
	equal(t, "evaluations", h.Feeds(), 0)
}

func TestExpiredCredentialsEndAnEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := live(t, chaingql.Options{Authorizer: expiresIn(50 * time.Second)})
		commit(t, chain, weave("m")...)
		e := n.stream(t, allBlocks)
		time.Sleep(time.Minute)
		e.expect("heartbeats until the end, which names the place", ":", ":", ":", ":", "event: next", "id: 01",
			`data: {"errors":[{"message":"Session expired","extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"01"}}]}`, "END")
	})
}

// expiresIn admits everybody for a while.
type expiresIn time.Duration

func (d expiresIn) Authorize(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d))
	context.AfterFunc(ctx, cancel)
	return ctx, nil
}

// The time that a body has must not be the time that its stream has.
func TestAnEventStreamByPostOutlivesItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(10, 1)
		_, chain, n := live(t, chaingql.Options{Limits: chaingql.Limits{BodyTimeout: time.Second}})
		w := n.wire(t)
		body := `{"query":"` + allBlocks + `"}`
		w.say("/demo/graphql", body, len(body), "Accept: text/event-stream")
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
			t.Errorf("an hour later the stream had not the block: %.300q", text)
		}
	})
}

func TestEventStreamsHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := live(t, chaingql.Options{Limits: chaingql.Limits{Sockets: 1}})
		n.stream(t, allBlocks)
		res := n.stream(t, allBlocks).res
		equal(t, "status", res.StatusCode, 503)
		equal(t, "retry", res.Header.Get("Retry-After"), "1")
	})
}

func TestAResponseWriterThatCannotStreamIsA500(t *testing.T) {
	h, log := newHandler(t, referenceChain(t), chaingql.Options{})
	hidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
	res := do(hidden, "GET", "/demo/graphql?query="+url.QueryEscape(allBlocks), "", "Accept", "text/event-stream")
	equal(t, "status", res.Code, 500)
	if !strings.Contains(log.String(), "cannot flush") {
		t.Errorf("the log does not say why: %s", log)
	}
}

// A client that went away in mid-stream frees its place.
func TestAnEventStreamWhoseClientLeftIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := live(t, chaingql.Options{})
		e := n.stream(t, allBlocks)
		synctest.Wait()
		equal(t, "evaluations", h.Feeds(), 1)
		_ = e.res.Body.Close()
		for {
			if _, err := e.res.Body.Read(make([]byte, 1)); err != nil {
				if errors.Is(err, io.EOF) {
					t.Error("the stream ended by itself")
				}
				break
			}
		}
		time.Sleep(2 * chaingql.DefaultKeepAlive)
		equal(t, "evaluations", h.Feeds(), 0)
	})
}
