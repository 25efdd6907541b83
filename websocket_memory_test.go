package chaingql_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// keptBySockets opens sockets that each send the given number of queries and read no response. It returns the bytes
// that the sockets keep, and the bytes that are counted for them.
func keptBySockets(
	t *testing.T, h *chaingql.Handler, sockets, queries int, query func(socket, i int) string,
) (kept, counted int) {
	t.Helper()
	n := serve(t, h)
	before := heapInUse()
	for s := range sockets {
		requests := make([]string, queries)
		for i := range requests {
			requests[i] = body(query(s, i), nil)
		}
		w := startAll(t, n, requests)
		t.Cleanup(func() { _ = w.Close() })
	}
	synctest.Wait()
	kept = heapInUse() - before
	_, counted = h.Pending()
	t.Logf("a socket keeps %d bytes, of which %d are counted", kept/sockets, counted/sockets)
	return kept, counted
}

// aliased repeats a field n times with different aliases.
func aliased(n int, field string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d:%s ", i, field)
	}
	return b.String()
}

const allOfABlock = "id hash shard seq_no workchain_id chain_order gen_utime"

func TestUnreadSocketResponsesKeepNoCompiledDocuments(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		const sockets = 20
		limits := chaingql.Limits{CacheBytes: 1, BackendTimeout: time.Minute}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: limits})
		kept, _ := keptBySockets(t, h, sockets, 31, func(s, i int) string {
			return fmt.Sprintf("{q%d_%d:__typename blockchain{", s, i) +
				aliased(45, "blocks(last:1,workchain:-7){edges{node{"+allOfABlock+"}}}") + "}}"
		})
		if kept/sockets > 512<<10 {
			t.Errorf("a socket keeps %d bytes, want at most %d", kept/sockets, 512<<10)
		}
	})
}

// A response that exceeds ResponseBytes becomes a short error, but producing it needed megabytes.
func TestOversizedSocketResponsesAreFullyCounted(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{})
		var names strings.Builder
		for i := range 25 {
			fmt.Fprintf(&names, "b%0500d:id ", i)
		}
		query := "{blockchain{" + aliased(20, "blocks(last:50){edges{node{...f}}}") +
			"}}fragment f on BlockchainBlock{" + names.String() + "}"
		if text := post(h, body(query, nil)).Body.String(); !strings.Contains(text, "exceeds the limit") {
			t.Fatalf("the response does not exceed ResponseBytes: %.100s", text)
		}
		kept, counted := keptBySockets(t, h, 4, 20, func(int, int) string { return query })
		if kept > counted+(4<<20) {
			t.Errorf("the sockets keep %d bytes, of which %d are counted", kept, counted)
		}
	})
}

// A query that waits for room in the budget keeps its plan in memory, so the Handler does not read its socket
// meanwhile.
func TestFewWaitingQueriesPerSocketAreKeptInMemory(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		const sockets = 20
		chain := blockingChain{memchain.New(), make(chan struct{}, 1000), make(chan struct{})}
		h, _ := newHandler(t, chain, chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1}})
		kept, _ := keptBySockets(t, h, sockets, 32, func(s, i int) string {
			return fmt.Sprintf(`{q%d_%d:__typename blockchain{account(address:"0:%064x"){info{balance}}`, s, i, s) +
				aliased(45, "blocks(last:50,workchain:-7){edges{node{"+allOfABlock+"}}}") + "}}"
		})
		if kept/sockets > 1<<20 {
			t.Errorf("a socket keeps %d bytes, want at most %d", kept/sockets, 1<<20)
		}
		close(chain.release)
	})
}

// A query may wait because the client does not read the responses to earlier ones. Meanwhile it keeps its plan.
func TestPlansOfWaitingQueriesAreCounted(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		const sockets, running, uncounted = 20, 32, 64 << 10
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1}})
		kept, counted := keptBySockets(t, h, sockets, running+1, func(s, i int) string {
			if i < running {
				return "{__typename}"
			}
			return fmt.Sprintf("{q%d:__typename blockchain{", s) +
				aliased(48, "blocks(last:1,workchain:-7){edges{node{"+allOfABlock+"}}}") + "}}"
		})
		if kept > counted+sockets*uncounted {
			t.Errorf("a socket keeps %d bytes, of which %d are counted", kept/sockets, counted/sockets)
		}
	})
}

// A requestTracker is an Authorizer that keeps weak pointers to its requests.
type requestTracker struct {
	mu   sync.Mutex
	seen []weak.Pointer[http.Request]
}

func (d *requestTracker) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, weak.Make(c.Request))
	return ctx, nil
}

func (d *requestTracker) kept() (seen, alive int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.seen {
		if p.Value() != nil {
			alive++
		}
	}
	return len(d.seen), alive
}

// The request of a handshake would be a large part of a socket's memory, and there may be many sockets.
func TestAuthorizedSocketDoesNotKeepTheHandshakeRequest(t *testing.T) {
	realTime(t, "the garbage collector must clear weak pointers")
	d := new(requestTracker)
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: d})
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, srv.URL+"/demo/graphql", &websocket.DialOptions{
		Subprotocols: []string{"graphql-transport-ws"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		t.Fatal(err)
	}
	if _, frame, err := c.Read(ctx); err != nil || string(frame) != `{"type":"connection_ack"}` {
		t.Fatalf("received %s and the error %v, want connection_ack", frame, err)
	}
	for {
		runtime.GC()
		seen, alive := d.kept()
		if seen == 1 && alive == 0 {
			break
		}
		if seen != 1 || ctx.Err() != nil {
			t.Fatalf("%d requests were authorized, and %d of them are still in memory", seen, alive)
		}
		runtime.Gosched()
	}
	request := []byte(`{"id":"1","type":"subscribe","payload":{"query":"{info{version}}"}}`)
	if err := c.Write(ctx, websocket.MessageText, request); err != nil {
		t.Fatal(err)
	}
	if _, frame, err := c.Read(ctx); err != nil {
		t.Errorf("the query received %s and the error %v", frame, err)
	}
}

// Without an Authorizer, the request of the handshake is not needed, so it is released before the first message.
func TestSocketWithoutAuthorizerDoesNotKeepTheHandshakeRequest(t *testing.T) {
	realTime(t, "the garbage collector must clear weak pointers")
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	requests := make(chan weak.Pointer[http.Request], 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- weak.Make(r)
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, srv.URL+"/demo/graphql", &websocket.DialOptions{
		Subprotocols: []string{"graphql-ws"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for request := <-requests; request.Value() != nil; runtime.GC() {
		if ctx.Err() != nil {
			t.Fatal("the request is still in memory")
		}
		runtime.Gosched()
	}
}
