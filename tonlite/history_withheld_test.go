package tonlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// TestServerAheadThatWithholdsShardBlocksDoesNotEndHistory lets one of three servers have new blocks seconds before the
// others. It sends the shard blocks of some blocks, and then only those of the newest. A Follow and pages read
// meanwhile.
func TestServerAheadThatWithholdsShardBlocksDoesNotEndHistory(t *testing.T) {
	for _, late := range []time.Duration{2 * time.Second, 4 * time.Second, 7 * time.Second} {
		t.Run(fmt.Sprintf("others %v late", late), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) { withholdShardBlocksAhead(t, m, late) })
		})
	}
}

func withholdShardBlocksAhead(t *testing.T, m *memoryNetwork, late time.Duration) {
	chain := generate(80)
	liar, one, two := m.start(chain), m.start(chain), m.start(chain)
	liar.Advance(20)
	one.Advance(20)
	two.Advance(20)
	b := m.open(liar.Config(one, two), nil)
	b.Prefer(0)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	var growing sync.WaitGroup
	defer growing.Wait()
	defer cancel()
	grow := func(to uint32) {
		liar.Advance(to)
		time.AfterFunc(late, func() {
			one.Advance(to)
			two.Advance(to)
		})
	}
	growing.Go(func() {
		for h := uint32(24); h <= 60 && ctx.Err() == nil; h += 6 {
			for k := h - 5; k <= h-3; k++ {
				grow(k)
				time.Sleep(5 * time.Second)
			}
			grow(h - 2)
			time.Sleep(300 * time.Millisecond)
			liar.ForgetShards(h)
			grow(h)
			time.Sleep(12 * time.Second)
		}
	})
	growing.Go(func() {
		for ctx.Err() == nil {
			_, _ = b.Blocks(ctx, chaingql.BlocksQuery{First: 1})
			time.Sleep(500 * time.Millisecond)
		}
	})
	follow(ctx, t, b, chain, 19, 60)
}
