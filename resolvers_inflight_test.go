package chaingql_test

import (
	"context"
	"fmt"
	"math/big"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func balanceOf(i int) string {
	return fmt.Sprintf(`{"query":"{blockchain{account(address:\"0:%064x\"){info{balance}}}}"}`, i)
}

func pageOf(i int) string {
	return fmt.Sprintf(`{"query":"{blockchain{blocks(first:%d){__typename}}}"}`, i+1)
}

// newUnresponsiveBackend returns a Backend whose calls ignore their context and wait until release is closed. running
// is the number of these calls.
func newUnresponsiveBackend(release <-chan struct{}) (b chaingql.Backend, running *atomic.Int64) {
	running = new(atomic.Int64)
	wait := func() {
		running.Add(1)
		<-release
		running.Add(-1)
	}
	return stubBackend{Backend: memchain.New(),
		balance: func(context.Context, chaingql.Address) (*big.Int, error) { wait(); return big.NewInt(7), nil },
		blocks: func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if q.First > 0 { // not a call of the block stream
				wait()
			}
			return nil, nil
		},
	}, running
}

func TestBackendCallsInFlightAreLimited(t *testing.T) {
	for name, body := range map[string]func(int) string{"balances": balanceOf, "pages": pageOf} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				b, running := newUnresponsiveBackend(release)
				hits := make(chan string, 10)
				h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 3}, WindowSize: -1,
					Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { hits <- limit }}})
				responses := make(chan *httptest.ResponseRecorder, 5)
				var all sync.WaitGroup
				for i := range cap(responses) {
					all.Go(func() { responses <- postFrom(h, clientAt(i), body(i)) })
					synctest.Wait()
				}
				time.Sleep(2500*time.Millisecond - 1)
				synctest.Wait()
				equal(t, "calls in flight", running.Load(), 3)
				equal(t, "responses while the others wait", len(responses), 0)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				equal(t, "responses after the wait", len(responses), 2)
				for range 2 {
					w := <-responses
					equal(t, "status", w.Code, 503)
					equal(t, "retry", w.Header().Get("Retry-After"), "1")
					r := parse(t, w.Body.String())
					equal(t, "code", r.code(), "SERVICE_UNAVAILABLE")
					equal(t, "message", r.Errors[0].Message, "Too many calls of the backend at once.")
				}
				close(release)
				all.Wait()
				equal(t, "calls in flight", running.Load(), 0)
				for range 10 { // all semaphore slots are free
					w := post(h, body(7))
					if equal(t, "status", w.Code, 200); strings.Contains(w.Body.String(), "errors") {
						t.Errorf("a query after all slots became free received %s", w.Body)
					}
				}
				equal(t, "limits hit", len(hits), 2)
				equal(t, "limit", <-hits, "InFlight")
			})
		})
	}
}

// newBusyHandler returns a Handler with InFlight 1, and the number of running Backend calls. One call takes the
// only slot until free is called.
func newBusyHandler(t *testing.T, schema chaingql.SchemaExtension) (
	h *chaingql.Handler, running *atomic.Int64, free func(),
) {
	release := make(chan struct{})
	b, running := newUnresponsiveBackend(release)
	h, _ = newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}, Schema: schema})
	var first sync.WaitGroup
	first.Go(func() { post(h, balanceOf(1)) })
	synctest.Wait()
	return h, running, func() {
		close(release)
		first.Wait()
	}
}

// response7 is the response to balanceOf from newUnresponsiveBackend.
const response7 = `{"data":{"blockchain":{"account":{"info":{"balance":"0x7"}}}}}`

func TestBusyBackendIsReportedOnEveryTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, free := newBusyHandler(t, chaingql.SchemaExtension{})
		n := serve(t, h)
		document := fmt.Sprintf(`{blockchain{account(address:"0:%064x"){info{balance}}}}`, 2)
		for transport, ask := range allTransports {
			began := time.Now()
			r := parse(t, ask(t, n, document, nil))
			equal(t, transport+": code", r.code(), "SERVICE_UNAVAILABLE")
			equal(t, transport+": time", time.Since(began), 2500*time.Millisecond)
		}
		free()
		for transport, ask := range allTransports {
			equal(t, transport, ask(t, n, document, nil), response7)
		}
	})
}

func TestBackendTimeoutIsAnErrorOnEveryTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, stubBackend{Backend: memchain.New(),
			balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
				wait := time.Second - 1 // less than BackendTimeout
				if a.ID[31] == 2 {      // more than BackendTimeout
					wait += 2
				}
				select {
				case <-time.After(wait):
					return big.NewInt(7), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}}, chaingql.Options{Limits: chaingql.Limits{BackendTimeout: time.Second}})
		n := serve(t, h)
		for transport, ask := range allTransports {
			const document = `{blockchain{account(address:"0:` + "%064x" + `"){info{balance}}}}`
			equal(t, transport, ask(t, n, fmt.Sprintf(document, 1), nil), response7)
			if r := parse(t, ask(t, n, fmt.Sprintf(document, 2), nil)); r.code() != "TIMEOUT" {
				t.Errorf("%s: a call that took too long received %+v, want TIMEOUT", transport, r)
			}
		}
	})
}

func TestWaitingBackendCallIsMadeOnceASlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, free := newBusyHandler(t, chaingql.SchemaExtension{})
		response := make(chan string)
		go func() { response <- post(h, balanceOf(2)).Body.String() }()
		time.Sleep(2 * time.Second)
		free()
		equal(t, "response", <-response, response7)
	})
}

func TestCanceledRequestThatWaitsForASlotMakesNoBackendCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, running, free := newBusyHandler(t, chaingql.SchemaExtension{})
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(balanceOf(2))).WithContext(ctx)
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		synctest.Wait()
		cancel()
		<-returned
		equal(t, "calls in flight", running.Load(), 1)
		free()
	})
}

func TestSocketQueriesOccupyRequestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b, _ := newUnresponsiveBackend(release)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Requests: 1}})
		n := serve(t, h)
		s := n.socket(t)
		s.send(`{"id":"1","type":"start","payload":` + balanceOf(1) + `}`)
		s.expect("running")
		for transport, ask := range allTransports {
			r := parse(t, ask(t, n, "{__typename}", nil))
			if r.code() != "SERVICE_UNAVAILABLE" || r.Errors[0].Message != "Too many requests at once." {
				t.Errorf("%s: a query beyond the limit received %+v", transport, r)
			}
		}
		close(release)
		s.expect("answered", data("1", `{"blockchain":{"account":{"info":{"balance":"0x7"}}}}`), complete)
		for transport, ask := range allTransports {
			synctest.Wait() // until the previous request has ended
			equal(t, transport, ask(t, n, "{__typename}", nil), `{"data":{"__typename":"Query"}}`)
		}
	})
}

// manyBalances returns a query for the balances of n accounts.
func manyBalances(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(fmt.Sprintf(`a%d:account(address:"0:%064x"){info{balance}} `, i, i))
	}
	return "{blockchain{" + all.String() + "}}"
}

// slowBalances returns a Backend that needs the time each for a balance.
func slowBalances(each time.Duration) chaingql.Backend {
	return stubBackend{Backend: memchain.New(), balance: func(context.Context, chaingql.Address) (*big.Int, error) {
		time.Sleep(each)
		return big.NewInt(7), nil
	}}
}

func TestExpensiveQueriesDoNotDelayCheapOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 20 * time.Millisecond
		h, _ := newHandler(t, slowBalances(each), chaingql.Options{Limits: chaingql.Limits{InFlight: 2}})
		var all sync.WaitGroup
		const greedy = 8
		for range greedy {
			all.Go(func() { query(h, manyBalances(50), nil) })
		}
		time.Sleep(each / 2)
		for i := range 5 {
			began := time.Now()
			equal(t, "status", post(h, balanceOf(i)).Code, 200)
			if took := time.Since(began); took > greedy*each {
				t.Errorf("a query for one balance took %v, want at most %v", took, greedy*each)
			}
		}
		all.Wait()
	})
}

func TestQueryWaitsForAnInFlightSlotOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		own := graphql.Fields{"own": blockingField(release)}
		h, _, free := newBusyHandler(t, chaingql.SchemaExtension{Queries: own})
		var hanging sync.WaitGroup
		hanging.Go(func() { query(h, `{own(ignoreContext:true)}`, nil) })
		synctest.Wait()
		for _, document := range []string{
			manyBalances(50),
			`{a:own b:own c:own}`,
			`{blockchain{a:blocks(first:1){__typename} b:blocks(first:2){__typename}} info{version}}`,
		} {
			began := time.Now()
			w := post(h, body(document, nil))
			equal(t, "status", w.Code, 503)
			equal(t, "time", time.Since(began), 2500*time.Millisecond)
		}
		free()
		close(release)
		hanging.Wait()
	})
}

// A slowDisk needs a second for each page of a query and each call for several balances.
type slowDisk struct{ *memchain.Chain }

func (s slowDisk) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if q.First > 0 { // not a call of the block stream
		time.Sleep(time.Second)
	}
	return s.Chain.Blocks(ctx, q)
}

func (s slowDisk) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	time.Sleep(time.Second)
	return s.Chain.Balances(ctx, addrs)
}

func TestPagesAndManyBalancesDoNotDelaySingleBalances(t *testing.T) {
	for name, row := range map[string]struct {
		body            func(int) string
		inFlight, slots int
	}{
		"pages":                {pageOf, 8, 3},
		"balances":             {func(int) string { return body(manyBalances(2), nil) }, 8, 2},
		"balances, 12 at once": {func(int) string { return body(manyBalances(2), nil) }, 12, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, slowDisk{memchain.New()}, chaingql.Options{
					Limits: chaingql.Limits{InFlight: row.inFlight}, WindowSize: -1})
				statuses := make(chan int, 20)
				for i := range cap(statuses) {
					go func() { statuses <- postFrom(h, clientAt(i), row.body(i)).Code }()
				}
				synctest.Wait()
				began := time.Now()
				equal(t, "status of a balance", post(h, balanceOf(1)).Code, 200)
				equal(t, "time of a balance", time.Since(began), 0)
				succeeded := 0
				for range cap(statuses) {
					if <-statuses == 200 {
						succeeded++
					}
				}
				// As many end after one second, two and three. The others wait for 2.5 s.
				equal(t, "slow queries that succeed", succeeded, 3*row.slots)
			})
		})
	}
}
