package chaingql_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

func TestBlockSkippedInAShardThatWasQuietIsFound(t *testing.T) {
	for name, quiet := range map[string]int{"quiet before the start": 300, "quiet since before the start and long after it": 3000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := weave("b" + strings.Repeat("m", quiet) + "bmmb")
				skipped := len(blocks) - 4
				s := &sieve{Chain: chainOf(t, blocks[:300]), hole: map[chaingql.Cursor]bool{blocks[skipped].Cursor: true}}
				h, _ := newHandler(t, s, chaingql.Options{})
				n := serve(t, mounted(h))
				n.stream(t, onlyB)
				synctest.Wait()
				commit(t, s.Chain, blocks[300:skipped]...)
				synctest.Wait()
				c, all := n.socket(t), n.stream(t, allBlocks)
				c.say(start("1", onlyB))
				time.Sleep(time.Second)
				commit(t, s.Chain, blocks[skipped:skipped+3]...)
				synctest.Wait()
				commit(t, s.Chain, blocks[skipped+3])
				synctest.Wait()
				c.expect("the quiet shard", order("1", blocks[skipped], blocks[skipped+3])...)
				f := &follower{t: t, n: n, document: allBlocks}
				for len(all.lines) > 0 {
					f.take(<-all.lines)
				}
				if !slices.Equal(f.codes, []string{"STREAM_GAP"}) {
					t.Errorf("all blocks: %q, errors %q", f.got, f.codes)
				}
				f.connect(4)
				if !slices.Equal(f.got, orders(blocks[skipped:])) {
					t.Errorf("all blocks after resuming: %q, errors %q", f.got, f.codes)
				}
			})
		})
	}
}
