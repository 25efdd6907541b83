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

// A deaf backend is one whose calls go on until they are let go, whatever
// becomes of their context.
func deaf(letGo <-chan struct{}) (b chaingql.Backend, under *atomic.Int64) {
	under = new(atomic.Int64)
	wait := func() {
		under.Add(1)
		<-letGo
		under.Add(-1)
	}
	return altered{Backend: memchain.New(),
		balance: func(context.Context, chaingql.Address) (*big.Int, error) { wait(); return big.NewInt(7), nil },
		blocks: func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if q.First > 0 { // not the log's
				wait()
			}
			return nil, nil
		},
	}, under
}

func TestNoMoreCallsThanTheBackendIsGivenAreUnderWay(t *testing.T) {
	for name, body := range map[string]func(int) string{"balances": balanceOf, "pages": pageOf} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				letGo := make(chan struct{})
				b, under := deaf(letGo)
				hits := make(chan string, 10)
				h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 3}, Window: -1,
					Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { hits <- limit }}})
				answers := make(chan *httptest.ResponseRecorder, 5)
				var all sync.WaitGroup
				for i := range cap(answers) {
					all.Go(func() { answers <- post(h, body(i)) })
					synctest.Wait()
				}
				time.Sleep(2500*time.Millisecond - 1)
				synctest.Wait()
				equal(t, "calls under way", under.Load(), 3)
				equal(t, "answers while the others wait", len(answers), 0)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				equal(t, "answers when they have waited", len(answers), 2)
				for range 2 {
					w := <-answers
					equal(t, "status", w.Code, 503)
					equal(t, "retry", w.Header().Get("Retry-After"), "1")
					r := parse(t, w.Body.String())
					equal(t, "code", r.code(), "SERVICE_UNAVAILABLE")
					equal(t, "message", r.Errors[0].Message, "Too many calls of the backend at once.")
				}
				close(letGo)
				all.Wait()
				equal(t, "calls under way", under.Load(), 0)
				for range 10 { // every turn was given back
					w := post(h, body(7))
					if equal(t, "status", w.Code, 200); strings.Contains(w.Body.String(), "errors") {
						t.Errorf("afterwards: %s", w.Body)
					}
				}
				equal(t, "limits hit", len(hits), 2)
				equal(t, "limit", <-hits, "InFlight")
			})
		})
	}
}

func TestBusyBackendIsToldHoweverItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		b, _ := deaf(letGo)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}})
		n := serve(t, h)
		var all sync.WaitGroup
		all.Go(func() { post(h, balanceOf(1)) })
		synctest.Wait()
		const document = `{blockchain{account(address:"0:` + "%064x" + `"){info{balance}}}}`
		for way, ask := range everyWay {
			began := time.Now()
			if r := parse(t, ask(t, n, fmt.Sprintf(document, 2), nil)); r.code() != "SERVICE_UNAVAILABLE" || time.Since(began) != 2500*time.Millisecond {
				t.Errorf("%s, after %v: %+v", way, time.Since(began), r)
			}
		}
		close(letGo)
		all.Wait()
		for way, ask := range everyWay {
			equal(t, way, ask(t, n, fmt.Sprintf(document, 2), nil), `{"data":{"blockchain":{"account":{"info":{"balance":"0x7"}}}}}`)
		}
	})
}

func TestSlowBackendIsToldHoweverItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, altered{Backend: memchain.New(), balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			wait := time.Second - 1 // within its time
			if a.ID[31] == 2 {      // past it
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
		for way, ask := range everyWay {
			const document = `{blockchain{account(address:"0:` + "%064x" + `"){info{balance}}}}`
			equal(t, way, ask(t, n, fmt.Sprintf(document, 1), nil), `{"data":{"blockchain":{"account":{"info":{"balance":"0x7"}}}}}`)
			if r := parse(t, ask(t, n, fmt.Sprintf(document, 2), nil)); r.code() != "TIMEOUT" {
				t.Errorf("%s: %+v", way, r)
			}
		}
	})
}

func TestCallThatWaitedForItsTurnIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		b, _ := deaf(letGo)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}})
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				equal(t, "answer", post(h, balanceOf(i)).Body.String(), `{"data":{"blockchain":{"account":{"info":{"balance":"0x7"}}}}}`)
			})
		}
		time.Sleep(2 * time.Second)
		close(letGo)
		all.Wait()
	})
}

// What a client has given up is not asked of a busy backend any more.
func TestClientThatLeavesTheQueueIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		b, under := deaf(letGo)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}})
		var all sync.WaitGroup
		all.Go(func() { post(h, balanceOf(1)) })
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(balanceOf(2))).WithContext(ctx)
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		synctest.Wait()
		leave()
		<-gone
		equal(t, "calls under way", under.Load(), 1)
		close(letGo)
		all.Wait()
	})
}

func TestQueriesOnSocketsAreRequestsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		b, _ := deaf(letGo)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Requests: 1}})
		n := serve(t, h)
		s := n.socket(t)
		s.say(`{"id":"1","type":"start","payload":` + balanceOf(1) + `}`)
		s.expect("under way")
		for way, ask := range everyWay {
			if r := parse(t, ask(t, n, "{__typename}", nil)); r.code() != "SERVICE_UNAVAILABLE" || r.Errors[0].Message != "Too many requests at once." {
				t.Errorf("%s, beyond the limit: %+v", way, r)
			}
		}
		close(letGo)
		s.expect("answered", data("1", `{"blockchain":{"account":{"info":{"balance":"0x7"}}}}`), `{"type":"complete","id":"1","payload":null}`)
		for way, ask := range everyWay {
			synctest.Wait() // until what was answered before is no request any more
			equal(t, way, ask(t, n, "{__typename}", nil), `{"data":{"__typename":"Query"}}`)
		}
	})
}

// manyBalances asks for the balances of n accounts.
func manyBalances(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(fmt.Sprintf(`a%d:account(address:"0:%064x"){info{balance}} `, i, i))
	}
	return "{blockchain{" + all.String() + "}}"
}

func TestQueryOfManyCallsDoesNotGoAheadOfOneOfFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 20 * time.Millisecond
		h, _ := newHandler(t, altered{Backend: memchain.New(), balance: func(context.Context, chaingql.Address) (*big.Int, error) {
			time.Sleep(each)
			return big.NewInt(7), nil
		}}, chaingql.Options{Limits: chaingql.Limits{InFlight: 2}})
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
				t.Errorf("took %v", took)
			}
		}
		all.Wait()
	})
}

func TestBusyBackendIsWaitedForOnceInARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		b, _ := deaf(letGo)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}, QueryFields: graphql.Fields{"own": {Type: graphql.Int}}})
		var all sync.WaitGroup
		all.Go(func() { post(h, balanceOf(1)) })
		synctest.Wait()
		for _, document := range []string{manyBalances(50), `{a:own b:own c:own}`, `{blockchain{a:blocks(first:1){__typename} b:blocks(first:2){__typename}} info{version}}`} {
			began := time.Now()
			w := post(h, body(document, nil))
			equal(t, "status", w.Code, 503)
			equal(t, "time", time.Since(began), 2500*time.Millisecond)
		}
		close(letGo)
		all.Wait()
	})
}
