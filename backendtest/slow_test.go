package backendtest

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A slowChain is a chain whose calls take a quarter of a second, like those of a distant or busy source. Its Follow
// also takes that time before it connects, and then keeps up to 200 blocks for its caller.
type slowChain struct{ stallable }

func (s slowChain) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[block, error] {
	follow := s.Chain.Follow(ctx, after)
	return func(yield func(block, error) bool) {
		if err := s.wait(ctx); err != nil {
			yield(block{}, err)
			return
		}
		items, left := make(chan item, 200), make(chan struct{})
		defer close(left)
		go func() {
			defer close(items)
			for b, err := range follow {
				select {
				case items <- item{block: b, err: err}:
				case <-left:
					return
				}
			}
		}()
		for it := range items {
			if !yield(it.block, it.err) || it.err != nil {
				return
			}
		}
	}
}

// slowHarness returns a Harness for a slowChain.
func slowHarness() Harness {
	c := memchain.New()
	h := fullHarness(c)
	s := slowChain{stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}]), delay: 250 * time.Millisecond}}
	h.Backend, h.Stall = s, s.stall
	h.Reopen = func() (chaingql.Backend, error) { return s, nil }
	return h
}

// tryInBubble runs ru in a synctest bubble. It returns the failures and how long ru took by the clock of the bubble.
func tryInBubble(t *testing.T, ru rule, open func() Harness) (failures []string, took time.Duration) {
	synctest.Test(t, func(*testing.T) {
		began := time.Now()
		failures = ru.try(open())
		took = time.Since(began)
	})
	return failures, took
}

func TestSlowBackendPassesAllRulesWithinTheTimeLimitOfGoTest(t *testing.T) {
	var total time.Duration
	for _, ru := range rules {
		failures, took := tryInBubble(t, ru, slowHarness)
		for _, failure := range failures {
			t.Errorf("%s: %s", ru.name, failure)
		}
		total += took
	}
	t.Logf("all rules took %v", total)
	if total > 10*time.Minute {
		t.Errorf("all rules took %v, but go test ends after 10 minutes by default", total)
	}
}

func TestCallsThatFailBecauseTheRuleGivesUpAreNotReported(t *testing.T) {
	tried := 0
	for _, ru := range rules {
		last := map[string]int64{ // the call that does not return is one of those during which other calls run
			lookupBasis: 500,
			"BlockByHash, BlockBySeqNo and MasterBlockByTime are correct while blocks are pruned": 50,
		}[ru.name]
		if last == 0 {
			continue
		}
		tried++
		failures, _ := tryInBubble(t, ru, func() Harness {
			c := memchain.New()
			h := fullHarness(c)
			var calls atomic.Int64
			h.Backend = lookupOverride{
				Chain: c,
				bySeqNo: func(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
					if calls.Add(1) == last {
						<-ctx.Done()
					}
					return c.BlockBySeqNo(ctx, w, shard, n)
				},
				byHash: func(ctx context.Context, hash chaingql.Hash) (block, error) {
					if calls.Load() >= last { // the other goroutines make such calls when the rule gives up
						err := stallable{c, new(atomic.Pointer[chan struct{}]), 3 * time.Second}.wait(ctx)
						if err != nil {
							return block{}, err
						}
					}
					return c.BlockByHash(ctx, hash)
				},
			}
			return h
		})
		if len(failures) != 1 || !strings.Contains(failures[0], " did not return within 10s") {
			t.Errorf("%s: %d failures, want only the call that did not return:\n%s",
				ru.name, len(failures), strings.Join(failures, "\n"))
		}
	}
	if tried != 2 {
		t.Errorf("tried %d rules, want 2", tried)
	}
}
