package chaingql_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// Clients that ask for a budget of answers each second, and take nothing, do not
// keep it full.
func TestFreshUnreadAnswersDoNotStopSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{Limits: chaingql.Limits{PendingAnswerBytes: 16 << 20}})
		n := serve(t, h)
		sized := func(aliases int) string {
			var b strings.Builder
			for i := range aliases {
				fmt.Fprintf(&b, "a%d:blocks(last:50){edges{node{id hash shard chain_order}}}", i)
			}
			return body("{blockchain{"+b.String()+"}}", nil)
		}
		served, refused, bytes := 0, 0, 0
		for tick := range 40 {
			for i := range 130 {
				aliases := 0
				for _, kind := range []struct{ n, aliases int }{{6, 40}, {30, 5}, {20, 2}, {20, 1}} {
					if i < kind.n {
						aliases = kind.aliases
						break
					}
					i -= kind.n
				}
				text := sized(aliases)
				if aliases == 0 {
					text = ask802
				}
				n.wire(t).say("/demo/graphql", text, len(text))
				bytes += len(text)
				synctest.Wait()
			}
			if tick >= 10 {
				if post(h, ask802).Code == 200 {
					served++
				} else {
					refused++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%d small queries were served, %d refused; the others sent %d bytes a second", served, refused, bytes/4)
		if refused > 0 {
			t.Error("small queries were refused")
		}
	})
}
