package chaingql_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// A call that hangs, and heeds no context, holds who waits for it no longer
// than the time of one call, and does not take those who come later with it.
func TestAReadThatHangsDoesNotHoldThoseWhoComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(61, 3)
		release := make(chan struct{})
		var calls atomic.Int64
		chain := chainOf(t, blocks)
		h, _ := newHandler(t, altered{Backend: chain, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if q.Last == 2 && calls.Add(1) == 1 {
				<-release
			}
			return chain.Blocks(ctx, q)
		}}, chaingql.Options{})
		query(h, "{info{version}}", nil) // the stream has found its place
		synctest.Wait()
		first := asking(t.Context(), h, newest)
		synctest.Wait()
		waits := asking(t.Context(), h, newest)
		time.Sleep(chaingql.DefaultBackendTimeout)
		if got := <-waits; !strings.Contains(got, `"TIMEOUT"`) {
			t.Errorf("who waited with it: %s", got)
		}
		equal(t, "who came later", <-asking(t.Context(), h, newest), newestIs(blocks[2]))
		equal(t, "calls", calls.Load(), 2)
		close(release)
		<-first
	})
}

// What two questions differ in keeps them apart.
func TestDifferentReadsInFlightShareNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Chain: chainOf(t, randomBlocks(62, 60))}
		h := stopped(t, g)
		pages := []string{"last:3", "first:3", "last:4", "workchain:0,last:3", "workchain:-1,last:3", "workchain:7,last:3", `shard:"4000000000000000",last:3`,
			`shard:"c000000000000000",last:3`, `shard:"0000000000000000",last:3`, `after:"0a",first:3`, `before:"164",last:3`, `workchain:0,shard:"4000000000000000",last:3`}
		asking(t.Context(), h, "{info{version}}")
		n := g.waiting()
		var answers []<-chan string
		for _, args := range pages {
			answers = append(answers, asking(t.Context(), h, "{blockchain{blocks("+args+"){edges{cursor}}}}"))
		}
		equal(t, "calls", g.waiting()-n, len(pages))
		for i := range g.waiting() {
			g.let(i, nil)
		}
		seen := map[string]bool{}
		for i, answer := range answers {
			got := <-answer
			if seen[got] && !strings.Contains(pages[i], "0000000000000000") && !strings.Contains(got, `[]`) && !strings.Contains(pages[i], "workchain:0,shard") {
				t.Errorf("%s was answered like another: %s", pages[i], got)
			}
			seen[got] = true
		}
	})
}

// gapFor commits a chain with a hole in workchain 0 that stays, and tells
// whether a subscription with a filter is ended for it.
func gapFor(t *testing.T, filter string) (told bool) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmab" + "aamb")
		s := &sieve{Chain: chainOf(t, blocks[:6]), hole: map[chaingql.Cursor]bool{blocks[6].Cursor: true}, lost: true}
		h, _ := newHandler(t, s, chaingql.Options{})
		c := serve(t, mounted(h)).socket(t)
		c.say(start("1", "subscription{blocks(filter:"+filter+"){chain_order}}"))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:]...)
		time.Sleep(10 * time.Second)
		told = strings.Contains(fmt.Sprint(c.hear()), "STREAM_GAP")
	})
	return told
}

func TestAHoleThatStaysConcernsWhoeverMightHaveHadTheBlock(t *testing.T) {
	for filter, concerned := range map[string]bool{
		"null":                                 true,
		"{}":                                   true,
		"{workchain_id:{eq:0}}":                true,
		"{workchain_id:{ne:-1}}":               true,
		"{workchain_id:{eq:-1}}":               false,
		"{workchain_id:{in:[-1,7]}}":           false,
		`{shard:{eq:"4000000000000000"}}`:      true,
		`{workchain_id:{eq:-1},seq_no:{gt:5}}`: false,
		"{workchain_id:{eq:-1},OR:{workchain_id:{eq:0}}}":                          true,
		"{workchain_id:{eq:-1},OR:{workchain_id:{eq:7},OR:{seq_no:{lt:1000000}}}}": true,
		"{workchain_id:{eq:-1},OR:{workchain_id:{eq:7}}}":                          false,
	} {
		equal(t, filter, gapFor(t, filter), concerned)
	}
}
