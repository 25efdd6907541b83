package chaingql_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// randomEdges returns a selection on the edges of a page: fields in any order, some with another name, in one or more
// nodes and fragments.
func randomEdges(rng *rand.Rand) string {
	fields := func(all ...string) string {
		var b strings.Builder
		for n, i := range rng.Perm(len(all))[:1+rng.IntN(len(all))] {
			switch how := rng.IntN(5); {
			case how == 0 && !strings.HasPrefix(all[i], "again:") && !strings.HasPrefix(all[i], "..."):
				fmt.Fprintf(&b, "a%d: %s ", n, all[i])
			case how == 1:
				fmt.Fprintf(&b, "%s ... { %s } ", all[i], all[i])
			default:
				b.WriteString(all[i] + " ")
			}
		}
		return b.String()
	}
	all := []string{"id", "hash", "seq_no", "workchain_id", "shard", "gen_utime", "chain_order"}
	node := all[rng.IntN(len(all)):]
	text := "{ " + strings.Join(node, " ") + " }"
	if rng.IntN(3) > 0 {
		text = "{ " + fields(append(all, "__typename", "... on Node { id }")...) + " }"
	}
	return fields("cursor", "node "+text, "__typename", "again: node { "+fields(all...)+"}")
}

// Blocks of the window have their fields as JSON, and those of the Backend do not.
func TestPagesOfTheWindowAndOfTheBackendAreEqual(t *testing.T) {
	blocks := variedBlocks(400, 4)
	for _, epoch := range []string{"", "second"} {
		chain := memchain.New()
		if epoch != "" {
			chain.Replace(epoch)
		}
		commit(t, chain, blocks[0])
		live := liveCallerOf(t, chain, blocks)
		stored, _ := newHandler(t, quietChain{Chain: chain}, chaingql.Options{})
		rng := rand.New(rand.NewPCG(5, 6))
		middle := string(blocks[300].Cursor)
		for range 300 {
			page := []string{
				`workchain: -1, last: 50`, `last: 3`, `workchain: 0, first: 20, after: "` + middle + `"`,
				`workchain: 7, last: 2`, `last: 30, before: "` + middle + `"`,
			}[rng.IntN(5)]
			document := `{ blockchain { blocks(` + page + `) { edges { ` + randomEdges(rng) + ` } } } }`
			got, want := string(live.call(bodyOf(document, nil))), query(stored, document, nil)
			if got != want || !strings.HasPrefix(got, `{"data":`) {
				t.Fatalf("epoch %q, %s: the page of the window is\n%s\nwant that of the Backend\n%s",
					epoch, document, got, want)
			}
		}
	}
}
