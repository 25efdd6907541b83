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

// slowBackend returns a Backend whose balances take some time, and the number of its calls.
func slowBackend(took time.Duration) (b chaingql.Backend, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	return stubBackend{Backend: memchain.New(),
		balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
			calls.Add(1)
			select {
			case <-time.After(took):
				return big.NewInt(7), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}, calls
}

// balancesQuery returns a query for n balances, which a Backend that is no BalanceBatcher reads one after the other.
func balancesQuery(first, n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `a%d:account(address:\"0:%064x\"){info{balance}}`, i, first+i)
	}
	return `{"query":"{blockchain{` + text.String() + `}}"}`
}

// clientAt returns the network address of a client.
func clientAt(i int) string { return fmt.Sprintf("10.0.0.1:%d", 1024+i) }

// postAll posts n queries with the same document at once, each from a client of its own. The responses arrive in the
// channel.
func postAll(h *chaingql.Handler, n int, body func(i int) string) (responses chan *httptest.ResponseRecorder) {
	responses = make(chan *httptest.ResponseRecorder, n)
	for i := range n {
		go func() { responses <- postFrom(h, clientAt(i), body(i)) }()
		if i == 0 {
			synctest.Wait() // the others find the document compiled, and do not wait for its preparation
		}
	}
	synctest.Wait()
	return responses
}

func TestQueriesWithoutABackendCallAreServedWhileOthersWaitForTheBackend(t *testing.T) {
	for name, body := range map[string]func(int) string{
		"balances":  balanceOf,
		"one page":  func(int) string { return pageOf(1) }, // all share one call
		"all pages": func(i int) string { return pageOf(i % 50) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				b, _ := newUnresponsiveBackend(release)
				hits := make(chan string, 64)
				h, _ := newHandler(t, b, chaingql.Options{
					Limits: chaingql.Limits{Requests: 64, InFlight: 4}, WindowSize: -1,
					Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { hits <- limit }}})
				responses := postAll(h, 64, body)
				equal(t, "queries that are refused at once", len(responses), 20)
				equal(t, "status of one that is refused", (<-responses).Code, 503)
				equal(t, "limits hit", len(hits), 20)
				equal(t, "limit", <-hits, "InFlight")
				equal(t, "status of a query that needs no call", post(h, `{"query":"{__typename}"}`).Code, 200)
				close(release)
				synctest.Wait()
				equal(t, "responses", len(responses), 63)
				equal(t, "status afterwards", post(h, body(1)).Code, 200)
			})
		})
	}
}

// Small documents, large documents and Backend calls have separate shares of Limits.Requests.
func TestRequestsThatTakeLongLeaveRoomForAllOthers(t *testing.T) {
	const quick = `{"query":"{__typename}"}`
	slow := map[string]func(i int) string{
		"small documents": func(int) string { return heldDocument },
		"large documents": func(int) string { return heldRequest },
		"Backend calls":   balanceOf,
	}
	for _, requests := range []int{48, 96, 192} { // the small sizes in docs/operations.md
		for honest := range slow {
			t.Run(fmt.Sprintf("%s/%d", honest, requests), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					b, _ := newUnresponsiveBackend(release)
					h, _ := newHandler(t, b, chaingql.Options{
						Limits: chaingql.Limits{Requests: requests, Aliases: 1},
						Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) {
							if limit == "Aliases" { // while the document is prepared
								<-release
							}
						}},
					})
					post(h, quick)
					postAll(h, 1, balanceOf) // now both documents are compiled
					for name, body := range slow {
						if name != honest {
							postAll(h, requests, body)
						}
					}
					equal(t, "honest requests that are refused at once", len(postAll(h, 1, slow[honest])), 0)
					postAll(h, requests, slow[honest])
					equal(t, "status of a query that takes no time", post(h, quick).Code, 200)
					close(release)
				})
			})
		}
	}
}

// In the smallest size in docs/operations.md, the 32 queries of one socket do not have those of others refused.
func TestMostRequestsMayWaitForTheBackend(t *testing.T) {
	for requests, most := range map[int]int{15: 10, 31: 21, 48: 33, 96: 66, 192: 132} {
		t.Run(fmt.Sprint(requests), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				b, _ := newUnresponsiveBackend(release)
				h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Requests: requests}})
				equal(t, "queries that are refused at once", len(postAll(h, most, balanceOf)), 0)
				equal(t, "status of one more", post(h, balanceOf(most)).Code, 503)
				close(release)
			})
		})
	}
}

func TestQueriesWithManyBackendCallsGiveWayToThoseWithFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := slowBackend(100 * time.Millisecond)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Requests: 64, InFlight: 8}})
		responses := postAll(h, 44, func(i int) string { return balancesQuery(100*i, 30) })
		equal(t, "responses while there is no room for a further query", len(responses), 0)
		equal(t, "status of that query", post(h, balanceOf(1)).Code, 503)
		time.Sleep(3 * time.Second)
		for n := range 4 {
			equal(t, fmt.Sprintf("status of a query with %d calls", n+1), post(h, balancesQuery(1, n+1)).Code, 200)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "responses", len(responses), 44)
		refused := 0
		for range 44 {
			w := <-responses
			busy := strings.Contains(w.Body.String(), "SERVICE_UNAVAILABLE")
			if busy {
				refused++
			}
			if busy != (w.Code == 503) {
				t.Errorf("got status %d with %s", w.Code, w.Body)
			}
		}
		if refused < 1 || refused > 5 { // they leave one place, and each query above may need one
			t.Errorf("%d of 44 queries with 30 calls were refused, want 1 to 5", refused)
		}
	})
}

// Many clients with as many queries as they can have leave places to those without one, even for many calls.
func TestQueriesWithManyBackendCallsAreServedBesideManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		balance := func(_ context.Context, a chaingql.Address) (*big.Int, error) {
			if a.ID[31] < 100 {
				<-release
			}
			return big.NewInt(7), nil
		}
		h, _ := newHandler(t, stubBackend{Backend: memchain.New(), balance: balance}, chaingql.Options{
			Limits: chaingql.Limits{Requests: 320, InFlight: 320}}) // 220 may wait
		for i := range 60 * 20 {
			go postFrom(h, fmt.Sprintf("192.0.2.%d:80", i%60), balancesQuery(i/60, 1))
			synctest.Wait()
		}
		equal(t, "status of a query with 10 calls", postFrom(h, "192.0.2.99:80", balancesQuery(100, 10)).Code, 200)
		close(release)
	})
}

func TestAQueryWaitsForASlowBackendOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls := slowBackend(time.Minute)
		h, _ := newHandler(t, b, chaingql.Options{})
		began := time.Now()
		r := parse(t, post(h, balancesQuery(1, 3)).Body.String())
		equal(t, "time", time.Since(began), 5*time.Second)
		equal(t, "errors", len(r.Errors), 3)
		for _, err := range r.Errors {
			equal(t, "code", err.Extensions["code"], any("TIMEOUT"))
		}
		equal(t, "calls", calls.Load(), int64(1))
	})
}

func TestAQueryWaitsForASlowFieldOfTheHostOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &graphql.Field{Type: graphql.String, Resolve: func(p graphql.ResolveParams) (any, error) {
			<-p.Context.Done()
			return nil, p.Context.Err()
		}}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Schema: chaingql.SchemaExtension{Queries: graphql.Fields{"slow": slow}}})
		began := time.Now()
		r := parse(t, post(h, `{"query":"{a:slow b:slow c:slow}"}`).Body.String())
		equal(t, "time", time.Since(began), 5*time.Second)
		equal(t, "errors", len(r.Errors), 3)
	})
}

// waitingBalance returns a Backend with 100 blocks whose Balance waits until release is closed.
func waitingBalance(t *testing.T, release <-chan struct{}) chaingql.Backend {
	return stubBackend{Backend: chainOf(t, randomBlocks(31, 100)),
		balance: func(context.Context, chaingql.Address) (*big.Int, error) { <-release; return big.NewInt(7), nil }}
}

// The response of a query that waits cannot be dropped. Otherwise a few hundred queries could have most others refused.
func TestQueriesThatWaitForTheBackendHoldHalfOfTheMemoryForResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, fields = 2 << 20, `{edges{node{id hash seq_no shard chain_order gen_utime}}}`
		const page = `new:blocks(last:50)` + fields + `old:blocks(first:50)` + fields
		release, hits := make(chan struct{}), make(chan string, 64)
		released := sync.OnceFunc(func() { close(release) })
		defer released()
		h, _ := newHandler(t, waitingBalance(t, release), chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: budget},
			Hooks:  chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { hits <- limit }}})
		responses := postAll(h, 64, func(i int) string {
			return strings.Replace(balanceOf(i), "account", page+"account", 1)
		})
		if _, held := h.Pending(); held < budget*2/5 || held > budget/2 {
			t.Errorf("%d bytes are held, want a little less than half of %d", held, budget)
		}
		refused := len(responses)
		if refused == 0 {
			t.Fatal("no query was refused")
		}
		equal(t, "limits hit", len(hits), refused)
		equal(t, "limit", <-hits, "PendingResponseBytes")
		for range refused {
			equal(t, "status of a refused query", (<-responses).Code, 503)
		}
		equal(t, "status of a query that does not wait", post(h, `{"query":"{blockchain{`+page+`}}"}`).Code, 200)
		balance := postAll(h, 1, balanceOf)
		equal(t, "queries that are refused although they hold nothing", len(balance), 0)
		released()
		equal(t, "status afterwards", (<-balance).Code, 200)
		for range 64 - refused {
			equal(t, "status of a query that has waited", (<-responses).Code, 200)
		}
		_, held := h.Pending()
		equal(t, "bytes afterwards", held, 0)
	})
}

// The values of a host's list take a hundred times as much memory as their JSON, but only until the field is complete.
func TestQueriesThatWaitForTheBackendDoNotHoldTheValuesOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		released := sync.OnceFunc(func() { close(release) })
		defer released()
		h, _ := newHandler(t, waitingBalance(t, release), chaingql.Options{Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{"list": constField(graphql.NewList(graphql.Int), make([]int, 2_500))}}})
		responses := postAll(h, 40, func(i int) string {
			return strings.Replace(balanceOf(i), "blockchain", "list blockchain", 1)
		})
		if refused := len(responses); refused > 0 {
			t.Fatalf("%d of 40 queries are refused", refused)
		}
		if _, held := h.Pending(); held > 40*(48<<10) {
			t.Errorf("%d bytes are held for 40 responses of 5 kB", held)
		}
		released()
		for range 40 {
			equal(t, "status", (<-responses).Code, 200)
		}
	})
}

// docs/limits.md has these numbers: the half for queries that wait does not bound the values within a host's field.
func TestListsOfTheHostThatWaitFillTheMemoryForResponses(t *testing.T) {
	for items, fit := range map[int]int{200: 64, 1_000: 31} { // 64 is InFlight
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			fields := graphql.Fields{"owner": constField(graphql.Int, func() (any, error) { <-release; return 7, nil })}
			for _, name := range strings.Split("abcde", "") {
				fields[name] = constField(graphql.Int, 1)
			}
			item := graphql.NewObject(graphql.ObjectConfig{Name: "Item", Fields: fields})
			h, _ := newQueryHandler(t, graphql.Fields{"items": constField(listOf(item), make([]struct{}, items))})
			query := func(int) string { return `{"query":"{items{a b c d e owner}}"}` }
			more := min(64-fit, 2)
			equal(t, fmt.Sprintf("refused for lists of %d", items), len(postAll(h, fit+more, query)), more)
			if _, held := h.Pending(); items == 200 && held > 28<<20 {
				t.Errorf("lists of 200 hold %d bytes, want less than half of what is not reserved", held)
			}
		})
	}
}

// Responses are written to the buffers of earlier ones. Those that wait for a balance must not take large ones.
func TestQueriesThatWaitForABalanceHoldNoLargeBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h, _ := newHandler(t, waitingBalance(t, release), chaingql.Options{})
		var large strings.Builder
		for i := range 10 {
			fmt.Fprintf(&large, "a%d:blocks(last:50){edges{node{id hash shard chain_order}}}", i)
		}
		for range 8 {
			equal(t, "status of a large response", post(h, body("{blockchain{"+large.String()+"}}", nil)).Code, 200)
		}
		balance := postAll(h, 1, balanceOf)
		if _, held := h.Pending(); held > 48<<10 {
			t.Errorf("%d bytes are held for a balance", held)
		}
		close(release)
		<-balance
	})
}
