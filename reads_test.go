package chaingql_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// gated is a chain whose pages wait to be let through.
type gated struct {
	*memchain.Chain
	mu    sync.Mutex
	calls []chan error // a call each, in turn
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

func (g *gated) waiting() int {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

func (g *gated) let(i int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[i] <- err
}

// asking sends a query on a goroutine of its own.
func asking(ctx context.Context, h *chaingql.Handler, document string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "POST", "/demo/graphql", strings.NewReader(fmt.Sprintf(`{"query":%q}`, document)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answer <- w.Body.String()
	}()
	return answer
}

// stopped is a Handler that does not follow, so that no page is read but for
// queries.
func stopped(t *testing.T, b chaingql.Backend) *chaingql.Handler {
	h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{BackendTimeout: -1}})
	return h
}

func TestIdenticalReadsInFlightShareOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(26, 3)
		g := &gated{Chain: chainOf(t, blocks)}
		h := stopped(t, g)
		first := asking(t.Context(), h, newest)
		begun := g.waiting() // the read, and the stream's own
		var rest []<-chan string
		for i := range 20 {
			rest = append(rest, asking(t.Context(), h, fmt.Sprintf("query Q%d{blockchain{blocks(last:1){edges{cursor}}}}", i)))
		}
		equal(t, "calls for twenty more of the same", g.waiting()-begun, 0)
		other := asking(t.Context(), h, `{blockchain{blocks(last:1,workchain:-1){edges{cursor}}}}`)
		equal(t, "calls for another", g.waiting()-begun, 1)
		for i := range g.waiting() {
			g.let(i, nil)
		}
		for _, answer := range append(rest, first) {
			equal(t, "answer", <-answer, newestIs(blocks[2]))
		}
		<-other
		asking(t.Context(), h, newest)
		equal(t, "calls for the same afterwards", g.waiting()-begun, 2)
		g.let(g.waiting()-1, nil)
	})
}

func TestACallerWhoLeavesEndsOnlyItsOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(27, 3)
		g := &gated{Chain: chainOf(t, blocks)}
		h := stopped(t, g)
		ctx, leave := context.WithCancel(t.Context())
		asking(ctx, h, newest)
		synctest.Wait()
		stays := asking(t.Context(), h, newest)
		third, leaveToo := context.WithCancel(t.Context())
		left := asking(third, h, newest)
		n := g.waiting()
		leave()
		leaveToo()
		if got := <-left; !strings.Contains(got, "cancelled") {
			t.Error(got)
		}
		for i := range n {
			g.let(i, nil)
		}
		equal(t, "answer of who stays", <-stays, newestIs(blocks[2]))
		equal(t, "calls", g.waiting(), n)
	})
}

func TestACallThatEveryoneLeftIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Chain: chainOf(t, randomBlocks(28, 3))}
		h := stopped(t, g)
		ctx, leave := context.WithCancel(t.Context())
		first, second := asking(ctx, h, newest), asking(ctx, h, newest)
		g.waiting()
		leave()
		<-first
		<-second
	})
}

func TestAFailureOrAPanicIsEveryonesWhoWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls := 0
		h := stopped(t, altered{Backend: memchain.New(), blocks: func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if q.Last != 2 { // the stream's own
				return nil, nil
			}
			calls++
			<-release
			panic("s3cret")
		}})
		var answers []<-chan string
		for range 5 {
			answers = append(answers, asking(t.Context(), h, newest))
		}
		synctest.Wait()
		close(release)
		for _, answer := range answers {
			if got := <-answer; !idShown.MatchString(got) || strings.Contains(got, "s3cret") {
				t.Error(got)
			}
		}
		equal(t, "calls", calls, 1)
	})
}

func TestAReadDoesNotJoinOneFromBeforeABlockThatWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(29, 40)
		g := &gated{Chain: chainOf(t, blocks[:30])}
		h := stopped(t, g)
		n := serve(t, mounted(h))
		e := n.stream(t, allBlocks)
		g.waiting()
		g.let(0, nil) // the stream is under way
		synctest.Wait()
		const old = `{blockchain{blocks(first:50){edges{cursor}}}}`
		asking(t.Context(), h, old)
		begun := g.waiting()
		commit(t, g.Chain, blocks[30])
		e.expect("the block", append([]string{":"}, next(blocks[30])...)...)
		asking(t.Context(), h, old)
		equal(t, "calls for the same after a block was shown", g.waiting()-begun, 1)
		g.let(begun-1, nil)
		g.let(begun, nil)
	})
}
