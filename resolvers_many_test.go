package chaingql_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// Queries for many blocks take long even if they need no Backend call: at most half of Limits.Requests may be such.
func TestQueriesForManyBlocksLeaveRoomForAllOthers(t *testing.T) {
	hits := make(chan string, 1)
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Limits: chaingql.Limits{Requests: 16},
		Hooks:  chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { hits <- limit }}})
	for i := range 8 { // this many use a processor
		leave := h.EnterMany(clientAt(i))
		defer leave()
	}
	no := post(h, blocksQuery(150))
	equal(t, "status of a query for 150 blocks", no.Code, 503)
	equal(t, "Retry-After", no.Header().Get("Retry-After"), "1")
	equal(t, "response", no.Body.String(), `{"errors":[{"message":"Too many queries for many blocks at once.",`+
		`"extensions":{"code":"SERVICE_UNAVAILABLE"}}]}`)
	equal(t, "limit that was hit", <-hits, "Requests")
	for what, body := range map[string]string{"a balance": balanceOf(1), "100 blocks": blocksQuery(100)} {
		equal(t, "status of a query for "+what, post(h, body).Code, 200)
	}
}

// blocksQuery returns a query for n blocks.
func blocksQuery(n int) string {
	var text strings.Builder
	for i := range n / 50 {
		fmt.Fprintf(&text, "a%d:blocks(first:50){__typename}", i)
	}
	return `{"query":"{blockchain{` + text.String() + `}}"}`
}

// Queries that wait for the Backend use no processor.
func TestQueriesForManyBlocksCountUntilTheyWaitForTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b, _ := newUnresponsiveBackend(release)
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Requests: 64}, WindowSize: -1})
		responses := postAll(h, 44, func(int) string { return blocksQuery(150) })
		equal(t, "queries that are refused at once", len(responses), 0)
		for i := range 32 {
			leave := h.EnterMany(clientAt(i))
			defer leave()
		}
		close(release)
		synctest.Wait()
		equal(t, "responses", len(responses), 44)
	})
}

func TestClientWithQueriesForManyBlocksLeavesRoomForThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		release := make(chan struct{})
		finish := func(_ context.Context, op chaingql.Operation, o chaingql.Outcome) {
			if op.Transport == chaingql.TransportGraphQLWS && !o.Failed {
				running.Add(1)
				<-release
			}
		}
		blocks := backendtest.Chain(200, 1)
		chain := chainOf(t, blocks[:100])
		query := strings.ReplaceAll(blocksQuery(150), "first", "last") // the newest blocks need no Backend call
		h, _ := newHandler(t, chain, chaingql.Options{
			Limits: chaingql.Limits{Requests: 64}, Hooks: chaingql.Hooks{OperationFinished: finish}})
		n := serve(t, addressed(mounted(h)))
		startStream(t, h, chain, blocks[100])
		commit(t, chain, blocks[101:]...)
		synctest.Wait()
		begin := func(queries int) {
			s := n.socket(t, "X-Forwarded-For", "192.0.2.9")
			for i := range queries {
				s.send(fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, query))
			}
			synctest.Wait()
		}
		for range 20 {
			begin(4)
		}
		equal(t, "running queries on 20 sockets of one client", running.Swap(0), (32+4)/2) // 4 do not count
		equal(t, "status of a query for many blocks of another client", post(h, query).Code, 200)
		close(release)
		release = make(chan struct{})
		defer func() { close(release) }()
		begin(10)
		equal(t, "running queries of a socket when the others have ended", running.Load(), 10)
	})
}

// Queries for the schema need no Backend call and take long.
func TestClientWithManyQueriesLeavesRoomForThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		finish := func(_ context.Context, op chaingql.Operation, _ chaingql.Outcome) {
			if op.Transport == chaingql.TransportGraphQLWS {
				<-release
			}
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{Requests: 64}, Hooks: chaingql.Hooks{OperationFinished: finish}})
		n := serve(t, addressed(mounted(h)))
		for range 20 {
			s := n.socket(t, "X-Forwarded-For", "192.0.2.9")
			for i := range 32 {
				s.send(start(fmt.Sprint(i), "{__schema{queryType{name}}}"))
			}
			synctest.Wait()
		}
		const query = `{"query":"{__typename}"}`
		for i := range 10 {
			equal(t, "status for another client", postFrom(h, clientAt(i), query).Code, 200)
		}
		close(release)
	})
}
