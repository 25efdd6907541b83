package chaingql_test

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// Calls of a client do not wait for the hundreds of calls of another one.
func TestClientsReceiveSlotsInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 20 * time.Millisecond
		h, _ := newHandler(t, slowBalances(each), chaingql.Options{Limits: chaingql.Limits{InFlight: 2}})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				w := postFrom(h, fmt.Sprintf("192.0.2.1:%d", 1000+i), body(manyBalances(10), nil))
				equal(t, "status", w.Code, 200)
			})
		}
		time.Sleep(each / 2)
		began := time.Now()
		equal(t, "status", postFrom(h, "192.0.2.2:80", body(manyBalances(20), nil)).Code, 200)
		if took := time.Since(began); took > 2*20*each { // 20 calls alone take half as long
			t.Errorf("20 calls took %v while another client had 100 queries in progress", took)
		}
		all.Wait()
	})
}

// A limitedBackend serves few balances at a time, and counts those that run at once.
type limitedBackend struct {
	chaingql.Backend
	limit         int
	mu            sync.Mutex
	running, most int
}

func (b *limitedBackend) CallLimit() int { return b.limit }

func (b *limitedBackend) Balance(context.Context, chaingql.Address) (*big.Int, error) {
	b.run(1)
	defer b.run(-1)
	time.Sleep(time.Second)
	return big.NewInt(7), nil
}

func (b *limitedBackend) run(calls int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running += calls
	b.most = max(b.most, b.running)
}

func TestCallLimiterReplacesTheDefaultOfInFlight(t *testing.T) {
	for _, test := range []struct{ limit, set, most int }{
		{3, 0, 3}, {3, 64, 3}, {3, 5, 5}, {3, 65, 65}, {0, 0, 64}, {1000, 0, 64}, {3, -1, 80},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &limitedBackend{Backend: memchain.New(), limit: test.limit}
			h, _ := newHandler(t, b, chaingql.Options{
				Limits: chaingql.Limits{InFlight: test.set, BackendTimeout: time.Hour}})
			responses := postAll(h, 80, balanceOf)
			time.Sleep(time.Minute)
			synctest.Wait()
			equal(t, "responses", len(responses), 80)
			equal(t, fmt.Sprintf("most calls at once with %+v", test), b.most, test.most)
		})
	}
}

// A hangingShard does not answer queries for the blocks of a shard until their deadline.
type hangingShard struct{ *memchain.Chain }

func (s hangingShard) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if q.Shard != nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Chain.Blocks(ctx, q)
}

func TestOneClientDoesNotTakeAllSlotsForPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, hangingShard{memchain.New()}, chaingql.Options{WindowSize: -1})
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 100 {
			hanging := fmt.Sprintf(`{blockchain{blocks(shard:"8000000000000000",first:%d){__typename}}}`, 1+i)
			all.Go(func() { postFrom(h, "192.0.2.1:80", body(hanging, nil)) })
		}
		synctest.Wait()
		began := time.Now()
		equal(t, "status of a page", postFrom(h, "192.0.2.2:80", pageOf(1)).Code, 200)
		equal(t, "time of a page", time.Since(began), 0)
	})
}

func TestHangingHostFieldsDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, &limitedBackend{Backend: memchain.New(), limit: 8}, chaingql.Options{
			Schema: chaingql.SchemaExtension{Queries: graphql.Fields{
				"stuck": blockingField(nil), "quick": constField(graphql.Int, 1)}}})
		var all sync.WaitGroup
		defer all.Wait()
		for range 100 {
			all.Go(func() { postFrom(h, "192.0.2.1:80", body(`{stuck}`, nil)) })
		}
		synctest.Wait()
		began := time.Now()
		equal(t, "status of a balance", postFrom(h, "192.0.2.2:80", balanceOf(1)).Code, 200)
		equal(t, "time of a balance", time.Since(began), time.Second)
		began = time.Now()
		equal(t, "status of another field", postFrom(h, "192.0.2.2:80", body(`{quick}`, nil)).Code, 200)
		equal(t, "time of another field", time.Since(began), 0)
	})
}

// postFrom sends a query from a network address.
func postFrom(h http.Handler, remote, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(body))
	r.RemoteAddr = remote
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestSharedReadDoesNotWaitInTheTurnOfItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, slowDisk{memchain.New()}, chaingql.Options{
			Limits: chaingql.Limits{InFlight: 8}, WindowSize: -1})
		for i := range 30 {
			go postFrom(h, "192.0.2.1:80", pageOf(i))
			synctest.Wait()
		}
		began := time.Now()
		equal(t, "status", postFrom(h, "192.0.2.2:80", pageOf(29)).Code, 200)
		equal(t, "time of a page that another client requested after 29 others", time.Since(began), time.Second)
	})
}

// A page that has one of the slots for pages does not wait for the balances of its client: others need that slot.
func TestPagesDoNotKeepTheirSlotsWhileTheirClientHasManyOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 100 * time.Millisecond
		h, _ := newHandler(t, distantChain{memchain.New(), each}, chaingql.Options{
			Limits: chaingql.Limits{InFlight: 8}, WindowSize: -1})
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 60 {
			all.Go(func() { postFrom(h, "192.0.2.1:80", body(manyBalances(50), nil)) })
			all.Go(func() { postFrom(h, "192.0.2.1:80", pageOf(i)) })
		}
		synctest.Wait()
		for i := range 10 {
			began := time.Now()
			equal(t, "status", postFrom(h, "192.0.2.2:80", pageOf(100+i)).Code, 200)
			if took := time.Since(began); took > 5*each {
				t.Errorf("a page took %v beside a client with many balances and pages", took)
			}
		}
	})
}

// Each call of a distantChain takes some time, except for those of the block stream.
type distantChain struct {
	*memchain.Chain
	each time.Duration
}

func (s distantChain) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if q.First > 0 {
		time.Sleep(s.each)
	}
	return s.Chain.Blocks(ctx, q)
}

func (s distantChain) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	time.Sleep(s.each)
	return s.Chain.Balance(ctx, a)
}

func (s distantChain) Balances() {} // it is no BalanceBatcher

// Three clients with as many queries on their sockets as they can have leave places to others.
func TestQueriesThatWaitOnSocketsDoNotHaveOthersRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b, _ := newUnresponsiveBackend(release)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Requests: 160}}) // 110 may wait
		n := serve(t, addressed(mounted(h)))
		var sockets []*socket
		ask := func(remote string, queries int) {
			s := n.socket(t, "X-Forwarded-For", remote)
			for i := range queries {
				s.send(start(fmt.Sprint(i), manyBalances(1)))
			}
			sockets = append(sockets, s)
			synctest.Wait()
		}
		for i := range 30 {
			ask(fmt.Sprintf("192.0.2.%d", i%3), 32)
		}
		equal(t, "requests over HTTP that are refused at once", len(postAll(h, 10, balanceOf)), 0)
		ask("192.0.2.4", 5)
		close(release)
		served := make([]int, len(sockets))
		for i, s := range sockets {
			served[i] = strings.Count(fmt.Sprint(s.receive()), `"0x7"`)
		}
		equal(t, "responses on the socket of another client", served[30], 5)
		for i := range 3 {
			if served[i] == 0 {
				t.Errorf("none of the queries on the first socket of client %d succeeded", i)
			}
		}
	})
}

// addressed returns a Handler for which the client's address is in a header.
func addressed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = r.Header.Get("X-Forwarded-For")
		h.ServeHTTP(w, r)
	})
}
