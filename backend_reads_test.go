package chaingql_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A gated chain blocks each call of Blocks until release is called for that call.
type gated struct {
	*memchain.Chain
	mu    sync.Mutex
	calls []chan error // one per call, in order
}

func (g *gated) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	pass := make(chan error, 1)
	g.mu.Lock()
	g.calls = append(g.calls, pass)
	g.mu.Unlock()
	select {
	case err := <-pass:
		if err != nil {
			return nil, err
		}
		return g.Chain.Blocks(ctx, q)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// waiting returns the number of calls that have begun so far.
func (g *gated) waiting() int {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

// release lets call i return err, or the page if err is nil.
func (g *gated) release(i int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[i] <- err
}

// queryAsync sends a query on its own goroutine.
func queryAsync(ctx context.Context, h *chaingql.Handler, document string) <-chan string {
	response := make(chan string, 1)
	go func() {
		body := fmt.Sprintf(`{"query":%q}`, document)
		r := httptest.NewRequestWithContext(ctx, "POST", "/demo/graphql", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		response <- w.Body.String()
	}()
	return response
}

// newHandlerWithoutTimeout returns a Handler that never times out its Backend calls.
func newHandlerWithoutTimeout(t *testing.T, b chaingql.Backend) *chaingql.Handler {
	h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{BackendTimeout: -1}})
	return h
}

func TestIdenticalConcurrentReadsShareOneBackendCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(26, 3)
		g := &gated{Chain: chainOf(t, blocks)}
		h := newHandlerWithoutTimeout(t, g)
		first := queryAsync(t.Context(), h, newest)
		begun := g.waiting() // the query's call and the call of the block stream
		var rest []<-chan string
		for i := range 20 {
			document := fmt.Sprintf("query Q%d{blockchain{blocks(last:1){edges{cursor}}}}", i)
			rest = append(rest, queryAsync(t.Context(), h, document))
		}
		equal(t, "calls for twenty more identical reads", g.waiting()-begun, 0)
		other := queryAsync(t.Context(), h, `{blockchain{blocks(last:1,workchain:-1){edges{cursor}}}}`)
		equal(t, "calls for a different read", g.waiting()-begun, 1)
		for i := range g.waiting() {
			g.release(i, nil)
		}
		for _, response := range append(rest, first) {
			equal(t, "response", <-response, newestIs(blocks[2]))
		}
		<-other
		queryAsync(t.Context(), h, newest)
		equal(t, "calls after an identical read that began later", g.waiting()-begun, 2)
		g.release(g.waiting()-1, nil)
	})
}

func TestCanceledCallerDoesNotCancelASharedBackendCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(27, 3)
		g := &gated{Chain: chainOf(t, blocks)}
		h := newHandlerWithoutTimeout(t, g)
		ctx, leave := context.WithCancel(t.Context())
		queryAsync(ctx, h, newest)
		synctest.Wait()
		stays := queryAsync(t.Context(), h, newest)
		third, leaveToo := context.WithCancel(t.Context())
		left := queryAsync(third, h, newest)
		n := g.waiting()
		leave()
		leaveToo()
		if got := <-left; !strings.Contains(got, "cancelled") {
			t.Errorf("a canceled caller received %s", got)
		}
		for i := range n {
			g.release(i, nil)
		}
		equal(t, "response to the remaining caller", <-stays, newestIs(blocks[2]))
		equal(t, "calls", g.waiting(), n)
	})
}

func TestSharedBackendCallIsCanceledWhenAllCallersHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Chain: chainOf(t, randomBlocks(28, 3))}
		h := newHandlerWithoutTimeout(t, g)
		ctx, leave := context.WithCancel(t.Context())
		first, second := queryAsync(ctx, h, newest), queryAsync(ctx, h, newest)
		g.waiting()
		leave()
		<-first
		<-second
	})
}

func TestPanicInASharedBackendCallFailsAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls := 0
		h := newHandlerWithoutTimeout(t, stubBackend{Backend: memchain.New(),
			blocks: func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				if q.Last != 2 { // the call of the block stream
					return nil, nil
				}
				calls++
				<-release
				panic("s3cret")
			}})
		var responses []<-chan string
		for range 5 {
			responses = append(responses, queryAsync(t.Context(), h, newest))
		}
		synctest.Wait()
		close(release)
		for _, response := range responses {
			if got := <-response; !idShown.MatchString(got) || strings.Contains(got, "s3cret") {
				t.Errorf("the error is not masked: %s", got)
			}
		}
		equal(t, "calls", calls, 1)
	})
}

func TestQueryDoesNotShareACallThatMayLackASentBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(29, 40)
		g := &gated{Chain: chainOf(t, blocks[:30])}
		h := newHandlerWithoutTimeout(t, g)
		n := serve(t, mounted(h))
		e := n.stream(t, allBlocks)
		g.waiting()
		g.release(0, nil) // the block stream starts
		synctest.Wait()
		const old = `{blockchain{blocks(first:50){edges{cursor}}}}`
		queryAsync(t.Context(), h, old)
		begun := g.waiting()
		commit(t, g.Chain, blocks[30])
		e.expect("the block", append([]string{":"}, next(blocks[30])...)...)
		queryAsync(t.Context(), h, old)
		equal(t, "calls for an identical read after a block was sent", g.waiting()-begun, 1)
		g.release(begun-1, nil)
		g.release(begun, nil)
	})
}

// A Backend call that hangs and ignores its context delays its callers by at most BackendTimeout. Later callers make a
// new call.
func TestHangingBackendCallDoesNotBlockLaterReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(61, 3)
		release := make(chan struct{})
		var calls atomic.Int64
		chain := chainOf(t, blocks)
		h, _ := newHandler(t, stubBackend{Backend: chain,
			blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				if q.Last == 2 && calls.Add(1) == 1 {
					<-release
				}
				return chain.Blocks(ctx, q)
			}}, chaingql.Options{})
		query(h, "{info{version}}", nil) // the block stream has its position
		synctest.Wait()
		first := queryAsync(t.Context(), h, newest)
		synctest.Wait()
		waits := queryAsync(t.Context(), h, newest)
		time.Sleep(chaingql.DefaultLimits().BackendTimeout)
		if got := <-waits; !strings.Contains(got, `"TIMEOUT"`) {
			t.Errorf("a caller that shared the hanging call received %s", got)
		}
		equal(t, "later caller", <-queryAsync(t.Context(), h, newest), newestIs(blocks[2]))
		equal(t, "calls", calls.Load(), 2)
		close(release)
		<-first
	})
}

// Reads with different arguments must not share a call.
func TestDifferentConcurrentReadsAreNotCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Chain: chainOf(t, randomBlocks(62, 60))}
		h := newHandlerWithoutTimeout(t, g)
		pages := []string{
			"last:3", "first:3", "last:4",
			"workchain:0,last:3", "workchain:-1,last:3", "workchain:7,last:3",
			`shard:"4000000000000000",last:3`, `shard:"c000000000000000",last:3`, `shard:"0000000000000000",last:3`,
			`after:"0a",first:3`, `before:"164",last:3`, `workchain:0,shard:"4000000000000000",last:3`,
		}
		queryAsync(t.Context(), h, "{info{version}}")
		n := g.waiting()
		var responses []<-chan string
		for _, args := range pages {
			responses = append(responses, queryAsync(t.Context(), h, "{blockchain{blocks("+args+"){edges{cursor}}}}"))
		}
		equal(t, "calls", g.waiting()-n, len(pages))
		for i := range g.waiting() {
			g.release(i, nil)
		}
		seen := map[string]bool{}
		for i, response := range responses {
			got := <-response
			same := strings.Contains(pages[i], "0000000000000000") || strings.Contains(pages[i], "workchain:0,shard")
			if seen[got] && !same && !strings.Contains(got, `[]`) {
				t.Errorf("%s has the same response as another query: %s", pages[i], got)
			}
			seen[got] = true
		}
	})
}

// A markedBackend counts the calls of Blocks for subscriptions and for queries of clients.
type markedBackend struct {
	*memchain.Chain
	forSubscriptions, forQueries atomic.Int32
}

func (b *markedBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if chaingql.ForSubscriptions(ctx) {
		b.forSubscriptions.Add(1)
	} else {
		b.forQueries.Add(1)
	}
	return b.Chain.Blocks(ctx, q)
}

func TestPagesForSubscriptionsAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave(strings.Repeat("m", 30))
		b := &markedBackend{Chain: chainOf(t, blocks)}
		h, _ := newHandler(t, b, chaingql.Options{WindowSize: 5})
		n := serve(t, mounted(h))
		n.stream(t, fmt.Sprintf(`subscription{blocks(after:%q){seq_no}}`, blocks[3].Cursor))
		time.Sleep(time.Second)
		if b.forSubscriptions.Load() < 2 || b.forQueries.Load() != 0 { // the newest blocks, and those after the cursor
			t.Errorf("a subscription made %d calls for subscriptions and %d for queries, want at least 2 and 0",
				b.forSubscriptions.Load(), b.forQueries.Load())
		}
		before := b.forSubscriptions.Load()
		query := fmt.Sprintf(`{blockchain{blocks(first:3,after:%q){edges{cursor}}}}`, blocks[3].Cursor)
		n.ask(t, "POST", query, nil, "")
		if b.forSubscriptions.Load() != before || b.forQueries.Load() != 1 {
			t.Errorf("a query made %d calls for subscriptions and %d for queries, want 0 and 1",
				b.forSubscriptions.Load()-before, b.forQueries.Load())
		}
	})
}
