package backendtest

import (
	"slices"
	"sync"

	"github.com/chaingql/chaingql"
)

// rareWorkchain is a workchain with only a few blocks.
const rareWorkchain = 7

// fillWithRare appends n blocks, and one block of rareWorkchain before the next masterchain block after each of
// the given numbers of blocks.
func (t *trial) fillWithRare(n int, after ...int) {
	blocks := Chain(n, 1)
	for i, seqNo := 0, uint32(1); i < n && len(after) > 0; i++ {
		if b := blocks[i]; i >= after[0] && b.Workchain == masterchain {
			after = after[1:]
			b.Hash[0] ^= 1
			b.Cursor = chaingql.ChainOrder(rareWorkchain, b.Shard, seqNo, b.SeqNo)
			b.Workchain, b.SeqNo = rareWorkchain, seqNo
			blocks = append(blocks, b)
			seqNo++
		}
	}
	slices.SortFunc(blocks, func(a, b chaingql.Block) int { return byCursor(a, b.Cursor) })
	if t.Cursor != nil {
		for i := range blocks {
			blocks[i].Cursor = t.Cursor(2 * uint64(i+1))
		}
	}
	t.coming = blocks
	t.grow(len(blocks))
}

// rareWorkchainSurvivesLargePrunes reads pages of a workchain that has one block in several hundred while many
// blocks of the chain are pruned at once, and afterwards. A Backend may search for the first block of such a page,
// and keep where it found one. After each Prune another query is the first one.
func rareWorkchainSurvivesLargePrunes(t *trial) {
	t.fillWithRare(700, 100, 300, 450, 600, 680)
	r := &pruneLoad{all: t.stored}
	workchain := int32(rareWorkchain)
	for i, n := range []int{200, 520, len(r.all) - 1} {
		newest := r.all[len(r.all)-1].Cursor
		queries := []chaingql.BlocksQuery{
			{First: 1}, {Last: 1}, {First: 5, Before: newest}, {Last: 5, Before: newest}, {Last: chaingql.MaxPage},
		}
		for k := range queries {
			queries[k].Workchain = &workchain
		}
		queries = slices.Concat(queries[i:], queries[:i], []chaingql.BlocksQuery{{First: 5}})
		r.pruneDuring(t, n, queries)
		t.stored = r.all[n:]
		t.expectPages(queries...)
		t.expectPages(chaingql.BlocksQuery{First: 5, After: r.all[n-1].Cursor, Workchain: &workchain},
			chaingql.BlocksQuery{Last: 5, After: r.all[n-1].Cursor, Workchain: &workchain})
		t.expectError(chaingql.BlocksQuery{First: 5, After: r.all[n-2].Cursor, Workchain: &workchain},
			chaingql.ErrCursorTooOld, tooOldBecause)
	}
}

// pruneDuring prunes the n oldest blocks at once while other goroutines read pages.
func (r *pruneLoad) pruneDuring(t *trial, n int, queries []chaingql.BlocksQuery) {
	over := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	for reader := range 2 {
		running.Go(func() {
			for i := reader; ; i++ {
				r.checkPage(t, queries[i%len(queries)])
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	defer close(over)
	r.begun.Store(int64(n))
	if err := t.Prune(r.all[n].Cursor); err != nil {
		t.Errorf("Harness.Prune(%q) failed: %v", r.all[n].Cursor, err)
	}
	r.done.Store(int64(n))
}
