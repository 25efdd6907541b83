package chaingql_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// Clients that do not read an error response must not delay others.
func TestUnreadErrorResponsesDoNotBlockQueries(t *testing.T) {
	for name, body := range map[string]string{"no JSON": "{", "no document": "{}", "a list": "[]"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
				n := serve(t, h)
				for range 4 * runtime.GOMAXPROCS(0) {
					n.wire(t).post("/demo/graphql", body, len(body))
				}
				synctest.Wait()
				begun := time.Now()
				w := n.wire(t)
				w.post("/demo/graphql", request802, len(request802))
				status, _ := w.response()
				equal(t, "status of an honest query", status, 200)
				equal(t, "time it took", time.Since(begun), 0)
			})
		})
	}
}

var (
	largeVariables = map[string]any{"a": strings.Repeat("a", 100_000)}
	// heldRequest is the body of a request that exceeds the alias limit of a Handler from heldPreparation.
	heldRequest = body("{a:info{version}b:info{version}}", largeVariables)
)

// heldPreparation returns a Handler with the given Limits.Requests. The preparation of a heldRequest does not end
// until release is closed.
func heldPreparation(t *testing.T, requests int) (h *chaingql.Handler, release chan struct{}) {
	release = make(chan struct{})
	h, _ = newHandler(t, referenceChain(t), chaingql.Options{
		Limits: chaingql.Limits{Requests: requests, Aliases: 1},
		Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) {
			if limit == "Aliases" {
				<-release
			}
		}},
	})
	return h, release
}

// Requests that wait for preparation keep their bodies in memory, so they count as requests.
func TestRequestsThatWaitForPreparationAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, most, more = 100, 6, 200 // most is the number of large requests that are prepared or wait
		h, release := heldPreparation(t, requests)
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, heldRequest) })
		}
		synctest.Wait()
		var busy atomic.Int32
		large := body(`{info{version}}`, largeVariables)
		for range more {
			all.Go(func() {
				if post(h, large).Code == 503 {
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		equal(t, "requests that are refused at once", int(busy.Load()), more+runtime.GOMAXPROCS(0)-most)
		close(release)
		all.Wait()
		equal(t, "requests that are refused", int(busy.Load()), more+runtime.GOMAXPROCS(0)-most)
	})
}

// There may be many sockets, so only as many of their large messages as of large bodies may wait for preparation.
func TestLargeMessagesThatWaitForPreparationAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, most, sockets = 100, 6, 60
		h, release := heldPreparation(t, requests)
		n := serve(t, h)
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, heldRequest) })
		}
		synctest.Wait()
		start := `{"id":"1","type":"start","payload":` +
			body(`{info{version}}`, map[string]any{"a": strings.Repeat("a", 50_000)}) + `}`
		refused, answered := 0, 0
		var waiting []*socket
		for range sockets {
			s := n.socket(t)
			s.send(start)
			frames := s.receive()
			if len(frames) == 0 {
				waiting = append(waiting, s)
				continue
			}
			refused++
			equal(t, "response to a refused message", frames[0], `{"type":"error","id":"1","payload":{"message":`+
				`"Too many requests at once.","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`)
			s.send(startVersion)
			s.expect("response to a small message afterwards", dataVersion, complete)
		}
		equal(t, "messages that are refused at once", refused, sockets+runtime.GOMAXPROCS(0)-most)
		close(release)
		all.Wait()
		for _, s := range waiting {
			if fmt.Sprint(s.receive()) == fmt.Sprint([]string{dataVersion, complete}) {
				answered++
			}
		}
		equal(t, "messages that are answered", answered, sockets-refused)
	})
}

func TestSmallRequestsDoNotWaitForLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, release := heldPreparation(t, 0)
		var all sync.WaitGroup
		for range 2 * runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, heldRequest) })
		}
		synctest.Wait()
		equal(t, "status of a small query", post(h, request802).Code, 200)
		close(release)
		all.Wait()
	})
}

// Requests whose documents are being compiled, wait for compilation or are refused must not delay requests whose
// documents are compiled already.
func TestCompiledQueriesDoNotWaitForCompilations(t *testing.T) {
	held := body("{a:info{version}b:info{version}}", nil)
	for name, n := range map[string]int{"a few": 2 * runtime.GOMAXPROCS(0), "more than there may be": 200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, release := heldPreparation(t, 100)
				// A subscription is refused with 406 after it has been prepared.
				const subscribe = `{"query":"subscription{blocks{id}}"}`
				equal(t, "status of the first query", post(h, request802).Code, 200)
				equal(t, "status of the first subscription", post(h, subscribe).Code, 406)
				var all sync.WaitGroup
				for range n {
					all.Go(func() { post(h, held) })
					all.Go(func() { post(h, heldRequest) })
				}
				synctest.Wait()
				equal(t, "status of a known query", post(h, request802).Code, 200)
				var status atomic.Int32
				all.Go(func() { status.Store(int32(post(h, subscribe).Code)) })
				synctest.Wait()
				equal(t, "status of a known subscription", status.Load(), 406)
				other := strings.Replace(request802, "last:1", "last:2", 1)
				equal(t, "status of a query with another literal", post(h, other).Code, 200)
				close(release)
				all.Wait()
			})
		})
	}
}

// Bodies that take a millisecond to decode must not delay queries whose documents are compiled.
func TestCompiledQueriesDoNotWaitForBodiesWithManyValues(t *testing.T) {
	values := strings.Repeat(`{"":1},`, 1500) + `1`
	for name, slow := range map[string]string{
		"extensions": `{"query":"{info{version}}","extensions":{"x":[` + values + `]}}`,
		"variables":  `{"query":"{info{version}}","variables":{"x":[` + values + `]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const requests = 64
				h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{Requests: requests}})
				equal(t, "status of the first query", post(h, `{"query":"{info{version}}"}`).Code, 200)
				release := h.HoldPreparations()
				responses := postAll(h, 2*requests, func(int) string { return slow })
				begun := time.Now()
				equal(t, "status of a known query", post(h, `{"query":"{info{version}}"}`).Code, 200)
				equal(t, "time it took", time.Since(begun), 0)
				equal(t, "slow bodies that are refused at once", len(responses), 2*requests-8+runtime.GOMAXPROCS(0))
				release()
				synctest.Wait()
				equal(t, "responses", len(responses), 2*requests)
			})
		})
	}
}

// heldDocument is the body of a small request that exceeds the alias limit of a Handler from heldPreparation.
var heldDocument = body("{a:info{version}b:info{version}}", nil)

func TestRequestThatWaitsTooLongForPreparationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, release := heldPreparation(t, 100)
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, heldDocument) })
		}
		synctest.Wait()
		begun := time.Now()
		w := post(h, request802)
		equal(t, "status", w.Code, 503)
		equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
		equal(t, "time it waited", time.Since(begun), 5*time.Second)
		close(release)
		all.Wait()
		equal(t, "status with a free slot", post(h, request802).Code, 200)
	})
}

// Otherwise a client could send many requests, over one connection at a time, and leave.
func TestRequestsOfClientsThatHaveLeftAreNotPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checked atomic.Int32
		release := make(chan struct{})
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{
			Limits: chaingql.Limits{Aliases: 1},
			Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) {
				if limit == "Aliases" {
					checked.Add(1)
					<-release
				}
			}},
		})
		ctx, leave := context.WithCancel(t.Context())
		slots := runtime.GOMAXPROCS(0)
		var all sync.WaitGroup
		for range slots + 5 {
			all.Go(func() {
				r := httptest.NewRequestWithContext(ctx, "POST", "/demo/graphql", strings.NewReader(heldDocument))
				r.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		synctest.Wait()
		leave()
		close(release)
		all.Wait()
		equal(t, "documents that were checked", int(checked.Load()), slots)
	})
}

// If an operation failed with an error of its own, clients would not send it again on the next socket.
func TestClientsWhoseCredentialsExpireBeforePreparationMayTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const expired = `{"message":"Session expired","extensions":{"code":"SERVICE_UNAVAILABLE"}}`
		var closed atomic.Int32
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{
			Authorizer: authorizer(func(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				t.Cleanup(cancel)
				return ctx, nil
			}),
			Hooks: chaingql.Hooks{
				SocketClosed: func(_ context.Context, _ chaingql.Socket, why chaingql.Reason, _ error) {
					equal(t, "reason of the end of a socket", why, chaingql.ReasonExpired)
					closed.Add(1)
				},
			},
		})
		defer h.HoldPreparations()()
		n := serve(t, h)
		legacy := n.socket(t)
		legacy.send(startVersion)
		modern, _, err := n.openWith(t, "graphql-transport-ws", "/demo/graphql")
		if err != nil {
			t.Fatal(err)
		}
		modern.send(`{"type":"connection_init"}`)
		modern.send(`{"id":"1","type":"subscribe","payload":{"query":"{info{version}}"}}`)
		modern.expect("response to connection_init", ack)
		time.Sleep(time.Second)
		legacy.expect("graphql-ws", `{"type":"connection_error","id":null,"payload":`+expired+`}`, "CLOSE 1001")
		modern.expect("graphql-transport-ws", "CLOSE 1001")
		equal(t, "sockets that were closed", int(closed.Load()), 2)
	})
}

func TestMessagesAndRequestsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, release := heldPreparation(t, 100)
		n := serve(t, h)
		var all sync.WaitGroup
		for range 2 * runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, heldDocument) })
		}
		synctest.Wait()
		s := n.socket(t)
		begun := time.Now()
		s.send(startVersion)
		s.expect("response to a message", dataVersion, complete)
		equal(t, "time it took", time.Since(begun), 0)
		close(release)
		all.Wait()
	})
}

// A document that is cached only by its fingerprint must be compiled before it is available by its hash. It waits for
// other compilations; known queries do not.
func TestDocumentIsCompiledBeforeItIsPersisted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, release := heldPreparation(t, 100)
		document := func(last int) string { return fmt.Sprintf(`{blockchain{blocks(last:%d){edges{node{id}}}}}`, last) }
		persist := func(text string) int {
			sum := sha256.Sum256([]byte(text))
			const request = `{"query":%q,"extensions":{"persistedQuery":{"version":1,"sha256Hash":"%x"}}}`
			return post(h, fmt.Sprintf(request, text, sum)).Code
		}
		equal(t, "status of the first document", persist(document(1)), 200)
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, body("{a:info{version}b:info{version}}", nil)) })
		}
		synctest.Wait()
		equal(t, "status of the same document again", persist(document(1)), 200)
		var done atomic.Bool
		all.Go(func() {
			equal(t, "status of a document with another literal", persist(document(2)), 200)
			done.Store(true)
		})
		synctest.Wait()
		equal(t, "it was compiled while other compilations occupied all slots", done.Load(), false)
		close(release)
		all.Wait()
	})
}
