package memchain_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// long returns a chain of n blocks. Every 100,000th block is in workchain 5 and in a shard
// that no other block has. All other blocks are in workchain 0.
func long(t *testing.T, n int) *memchain.Chain {
	t.Helper()
	blocks := make([]chaingql.Block, n)
	for i := range blocks {
		blocks[i] = chaingql.Block{Shard: 1 << 63, SeqNo: uint32(i), Cursor: chaingql.SeqCursor(uint64(i + 1))}
		if i%100_000 == 0 {
			blocks[i].Workchain, blocks[i].Shard = 5, 1<<62
		}
	}
	c := memchain.New()
	if err := c.Append(blocks...); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPageOfRareWorkchainOrShardIsFast(t *testing.T) {
	c := long(t, 300_000)
	fastest := func(q chaingql.BlocksQuery) time.Duration {
		best := time.Hour
		for range 20 {
			began := time.Now()
			if _, err := c.Blocks(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	rare, absent, shard := int32(5), int32(7), uint64(1)<<62
	page := fastest(chaingql.BlocksQuery{Last: 50})
	for _, q := range []chaingql.BlocksQuery{
		{Last: 1, Workchain: &rare}, {Last: 50, Workchain: &rare},
		{First: 50, Workchain: &rare, After: chaingql.SeqCursor(2)},
		{Last: 1, Workchain: &absent}, {First: 1, Workchain: &absent},
		{Last: 50, Shard: &shard}, {First: 50, Workchain: &rare, Shard: &shard, Before: chaingql.SeqCursor(299_999)},
	} {
		if took := fastest(q); took > 20*(page+time.Microsecond) {
			t.Errorf("query %+v took %v, want at most 20 times the %v for a page without a filter", q, took, page)
		}
	}
}

// The index must return the same pages as a scan of all blocks, even after pruning.
func TestFilteredPagesMatchAFullScan(t *testing.T) {
	all := backendtest.Chain(600, 1)
	c := memchain.New()
	rng := rand.New(rand.NewPCG(1, 1))
	appended, pruned := 0, 0
	for round := range 400 {
		switch n := rng.IntN(4); {
		case n > 1 && appended < len(all):
			next := min(len(all), appended+1+rng.IntN(9))
			if err := c.Append(all[appended:next]...); err != nil {
				t.Fatal(err)
			}
			appended = next
		case n == 1 && pruned < appended:
			pruned = min(appended-1, pruned+rng.IntN(7))
			c.Prune(all[pruned].Cursor)
		}
		q := chaingql.BlocksQuery{First: 1 + rng.IntN(40)}
		if rng.IntN(2) == 0 {
			q.First, q.Last = 0, q.First
		}
		b := all[rng.IntN(len(all))]
		if rng.IntN(3) > 0 {
			q.Workchain = &b.Workchain
		}
		if rng.IntN(3) > 0 {
			q.Shard = &b.Shard
		}
		if rng.IntN(2) == 0 {
			q.After = all[rng.IntN(len(all)-pruned)+pruned].Cursor
		}
		if rng.IntN(2) == 0 {
			q.Before = all[rng.IntN(len(all))].Cursor
		}
		got, err := c.Blocks(t.Context(), q)
		want := chaingql.PageOf(all[pruned:appended], q)
		if err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: query %+v returned %d blocks and error %v, want the %d blocks that a scan returns",
				round, q, len(got), err, len(want))
		}
	}
}
