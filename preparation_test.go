package chaingql_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// Clients that do not take a refusal hold up nobody.
func TestUnreadRefusalsHoldUpNobody(t *testing.T) {
	for name, body := range map[string]string{"no JSON": "{", "no document": "{}", "a list": "[]"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
				n := serve(t, h)
				for range 4 * runtime.GOMAXPROCS(0) {
					n.wire(t).say("/demo/graphql", body, len(body))
				}
				synctest.Wait()
				begun := time.Now()
				w := n.wire(t)
				w.say("/demo/graphql", ask802, len(ask802))
				status, _ := w.hear()
				equal(t, "status of an honest query", status, 200)
				equal(t, "time it took", time.Since(begun), 0)
			})
		})
	}
}

// Requests that wait for their preparation keep their bodies, so they count.
func TestRequestsThatWaitForPreparationAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, more = 20, 100
		release := make(chan struct{})
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{
			Limits: chaingql.Limits{Requests: most, Aliases: 1},
			Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) {
				if limit == "Aliases" { // while the document is prepared
					<-release
				}
			}},
		})
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() {
				post(h, body("{a:info{version}b:info{version}}", map[string]any{"a": strings.Repeat("a", 100_000)}))
			})
		}
		synctest.Wait()
		var busy atomic.Int32
		large := body(`{info{version}}`, map[string]any{"a": strings.Repeat("a", 100_000)})
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

func TestSmallRequestsDoNotWaitForLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{
			Limits: chaingql.Limits{Aliases: 1},
			Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) {
				if limit == "Aliases" { // while the document is prepared
					<-release
				}
			}},
		})
		var all sync.WaitGroup
		large := body("{a:info{version}b:info{version}}", map[string]any{"a": strings.Repeat("a", 100_000)})
		for range 2 * runtime.GOMAXPROCS(0) {
			all.Go(func() { post(h, large) })
		}
		synctest.Wait()
		equal(t, "status of a small query", post(h, ask802).Code, 200)
		close(release)
		all.Wait()
	})
}
