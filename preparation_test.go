package chaingql_test

import (
	"runtime"
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
