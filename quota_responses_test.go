package chaingql_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// fillBudget calls use and passes it the function fill, which starts a query whose response is complete only after use
// has returned. The result is the number of bytes that count against PendingResponseBytes after fill. If it is passed
// as limit to a second call, fill uses up the whole budget.
func fillBudget(
	t *testing.T, limit int, use func(t *testing.T, n *network, chain *memchain.Chain, fill func()),
) (held int) {
	const query = `query fill{blockchain{blocks(last:50)` +
		`{edges{node{id hash seq_no shard chain_order gen_utime workchain_id}}}}}`
	synctest.Test(t, func(t *testing.T) {
		chain := chainOf(t, randomBlocks(31, 100))
		proceed := make(chan struct{})
		h, _ := newHandler(t, chain, chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: limit},
			Hooks: chaingql.Hooks{
				OperationFinished: func(_ context.Context, op chaingql.Operation, _ chaingql.Outcome) {
					if op.Name == "fill" {
						<-proceed
					}
				},
			},
		})
		answered := make(chan int, 1)
		use(t, serve(t, h), chain, func() {
			synctest.Wait()
			go func() { answered <- post(h, `{"query":"`+query+`"}`).Code }()
			synctest.Wait()
			_, held = h.Pending()
		})
		close(proceed)
		<-answered
	})
	return held
}

// Responses that are being produced can fill PendingResponseBytes, and cannot be ended to make room. Meanwhile, a
// subscriber that reads its blocks at once must not be disconnected.
func TestEventStreamContinuesWhileResponsesFillTheirBudget(t *testing.T) {
	limit := fillBudget(t, 1<<20, func(_ *testing.T, _ *network, _ *memchain.Chain, fill func()) { fill() })
	held := fillBudget(t, limit, func(t *testing.T, n *network, chain *memchain.Chain, fill func()) {
		ask, err := http.NewRequest("POST", "http://api.example/demo/graphql",
			strings.NewReader(`{"query":"subscription{blocks{seq_no}}"}`))
		if err != nil {
			t.Fatal(err)
		}
		ask.Header.Set("Content-Type", "application/json")
		ask.Header.Set("Accept", "text/event-stream")
		stream, err := n.client().Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Body.Close() }()
		fill()
		readBlock(t, chain, randomBlocks(31, 101)[100], stream.Body)
	})
	equal(t, "bytes held for the response", held, limit)
}

func readBlock(t *testing.T, chain *memchain.Chain, b chaingql.Block, stream io.Reader) {
	t.Helper()
	if err := chain.Append(b); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 200)
	got := ""
	for !strings.Contains(got, "seq_no") {
		n, err := stream.Read(text)
		if err != nil {
			t.Fatalf("the stream ended after %q: %v", got, err)
		}
		got += string(text[:n])
	}
}

// A refusal needs as much memory as a small response, so a small response is not refused.
func TestSmallResponsesAreSentWhileResponsesFillTheBudget(t *testing.T) {
	limit := fillBudget(t, 1<<20, func(_ *testing.T, _ *network, _ *memchain.Chain, fill func()) { fill() })
	held := fillBudget(t, limit, func(t *testing.T, n *network, _ *memchain.Chain, fill func()) {
		fill()
		for _, accept := range []string{"application/graphql-response+json", "text/event-stream"} {
			if res := n.ask(t, "POST", "{info{version}}", nil, accept); !strings.Contains(res, `{"data":{`) {
				t.Errorf("%s: %s", accept, res)
			}
		}
	})
	equal(t, "bytes held for the response", held, limit)
}

// While the budget is full, a query on a socket is refused, but the subscriptions of the socket continue.
func TestSocketContinuesWhileResponsesFillTheBudget(t *testing.T) {
	limit := fillBudget(t, 1<<20, func(_ *testing.T, _ *network, _ *memchain.Chain, fill func()) { fill() })
	held := fillBudget(t, limit, func(t *testing.T, n *network, chain *memchain.Chain, fill func()) {
		s := n.socket(t)
		s.send(start("1", "subscription{blocks{seq_no}}"))
		fill()
		s.send(start("2", "{info{version}}"))
		s.expect("without room", `{"type":"data","id":"2","payload":{"errors":[{"message":"Too many answers at once.",`+
			`"extensions":{"code":"SERVICE_UNAVAILABLE"}}]}}`, `{"type":"complete","id":"2","payload":null}`)
		b := randomBlocks(31, 101)[100]
		if err := chain.Append(b); err != nil {
			t.Fatal(err)
		}
		s.expect("a block", data("1", fmt.Sprintf(`{"blocks":{"seq_no":%d}}`, b.SeqNo)))
	})
	equal(t, "bytes held for the response", held, limit)
}

// Clients that request as many responses per second as fit in the budget, and read none, must not keep the budget full.
func TestUnreadResponsesDoNotBlockSmallQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPagesHandler(t, 16<<20)
		n := serve(t, h)
		sized := func(aliases int) string {
			var b strings.Builder
			for i := range aliases {
				fmt.Fprintf(&b, "a%d:blocks(last:50){edges{node{id hash shard chain_order}}}", i)
			}
			return body("{blockchain{"+b.String()+"}}", nil)
		}
		served, refused, bytes, ticks := 0, 0, 0, 40
		if raceEnabled {
			ticks = 20
		}
		for tick := range ticks {
			for i := range 130 {
				aliases := 0
				for _, kind := range []struct{ n, aliases int }{{6, 40}, {30, 5}, {20, 2}, {20, 1}} {
					if i < kind.n {
						aliases = kind.aliases
						break
					}
					i -= kind.n
				}
				text := sized(aliases)
				if aliases == 0 {
					text = request802
				}
				n.wire(t).post("/demo/graphql", text, len(text))
				bytes += len(text)
				synctest.Wait()
			}
			if tick >= 10 {
				if post(h, request802).Code == 200 {
					served++
				} else {
					refused++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%d small queries were served, %d refused; the other clients sent %d bytes per second",
			served, refused, bytes*10/ticks)
		if refused > 0 {
			t.Error("small queries were refused")
		}
	})
}

// A panickingReader is a request body that panics when it is read, as that of a host's middleware may.
type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("middleware") }

// If a body still counted after its Read has panicked, the budget would later refuse other bodies.
func TestBodyMemoryIsFreedIfReadingTheBodyPanics(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	r := httptest.NewRequest("POST", "/demo/graphql", panickingReader{})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	equal(t, "status", w.Code, 500)
	bodies, _ := h.Pending()
	equal(t, "bytes of bodies", bodies, 0)
}

// A new response over HTTP does not end responses that are less than a second behind. A response on a socket ends them,
// because otherwise the socket itself would have to be cut.
func TestSocketResponseEndsUnreadHTTPResponsesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPagesHandler(t, 4<<20)
		n := serve(t, h)
		large := pages()
		for range 7 {
			n.wire(t).post("/demo/graphql", large, len(large))
			synctest.Wait()
		}
		equal(t, "status over HTTP", post(h, large).Code, 503)
		s := n.socket(t)
		s.SetReadLimit(-1)
		s.send(`{"id":"1","type":"start","payload":` + large + `}`)
		got := s.receive()
		if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"data","id":"1","payload":{"data":{`) {
			t.Errorf("the socket received %.200s", got)
		}
	})
}

// manyLocations is a request with an invalid document of 16 kB, whose errors have about 1,350 locations each.
func manyLocations() string {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "subscription A%d{...F}", i)
	}
	b.WriteString("fragment F on Subscription{blocks{id}")
	b.WriteString(strings.Repeat("...{"+strings.Repeat("__typename ", 8)+"}", 168))
	return `{"query":"` + b.String() + `}"}`
}

func TestUnreadErrorsCountTowardPendingResponseBytes(t *testing.T) {
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const budget = 2 << 20
				h, _ := newHandler(t, memchain.New(), chaingql.Options{
					Limits: chaingql.Limits{PendingResponseBytes: budget},
				})
				n := serve(t, h)
				body := manyLocations()
				unread := n.wire(t)
				unread.post("/demo/graphql", body, len(body), "Accept: "+accept)
				synctest.Wait()
				if _, held := h.Pending(); held < 300<<10 {
					t.Errorf("%d bytes are counted for an unread response with many errors", held)
				}
				for range 20 {
					n.wire(t).post("/demo/graphql", body, len(body), "Accept: "+accept)
					synctest.Wait()
				}
				_, held := h.Pending()
				if held > budget {
					t.Errorf("%d bytes are counted, more than the budget", held)
				}
				w := n.wire(t)
				w.post("/demo/graphql", body, len(body))
				status, _ := w.response()
				equal(t, "status if the budget is full", status, 503)
			})
		})
	}
}

// Otherwise a client would keep the error as the response with that ETag.
func TestRefusalForMissingMemoryHasNoETag(t *testing.T) {
	limits := chaingql.Limits{PendingResponseBytes: 20 << 10}
	cached(t, chaingql.Options{Limits: limits}, func(t *testing.T, h *chaingql.Handler, _ *callCounter, _ func()) {
		const query = "{blockchain{blocks(last:50){edges{node{hash seq_no}}}}}"
		request := func() *http.Request {
			return httptest.NewRequest("GET", "/demo/graphql?query="+url.QueryEscape(query), nil)
		}
		stuck, free := make(chan struct{}, 4), make(chan struct{})
		var unread sync.WaitGroup
		for range 4 {
			unread.Go(func() { h.ServeHTTP(stuckWriter{httptest.NewRecorder(), stuck, free}, request()) })
		}
		synctest.Wait()
		refused := httptest.NewRecorder()
		h.ServeHTTP(refused, request())
		equal(t, "status", refused.Code, 503)
		equal(t, "ETag", refused.Header().Get("ETag"), "")
		close(free)
		unread.Wait()
	})
}
