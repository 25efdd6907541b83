package backendtest

import (
	"reflect"
	"testing"
)

func TestSameSeedGeneratesSameChain(t *testing.T) {
	long := Chain(1500, 9)
	if !reflect.DeepEqual(Chain(1500, 9), long) {
		t.Error("two chains with the same seed differ")
	}
	if !reflect.DeepEqual(Chain(70, 9), long[:70]) {
		t.Error("a shorter chain is not a prefix of a longer chain with the same seed")
	}
	if reflect.DeepEqual(Chain(70, 10), long[:70]) {
		t.Error("chains with different seeds are equal")
	}
	if len(Chain(0, 9)) != 0 {
		t.Error("Chain(0, 9) returned blocks, want none")
	}
}

// The test replays each chain. The seq_no of a block must be one more than the highest
// seq_no of its parents: the previous block of the shard, the parent shard before a split,
// or the two shards before a merge.
func TestChainHasConsistentSplitsAndMerges(t *testing.T) {
	type place struct {
		workchain int32
		shard     uint64
	}
	for seed := range uint64(20) {
		newest := map[place]uint32{{masterchain, wholeShard}: 0, {0, wholeShard}: 0}
		hashes := map[[32]byte]bool{}
		var splits, merges, twice int
		blocks := Chain(2000, seed)
		for i, b := range blocks {
			if i > 0 && b.Cursor <= blocks[i-1].Cursor {
				t.Fatalf("seed %d: cursor %q comes after %q; they must ascend", seed, b.Cursor, blocks[i-1].Cursor)
			}
			if hashes[b.Hash] || b.Time.Before(blocks[max(0, i-1)].Time) {
				t.Fatalf("seed %d: the block with cursor %q has the hash of another block, "+
					"or an earlier time than the previous block", seed, b.Cursor)
			}
			hashes[b.Hash] = true
			at := place{b.Workchain, b.Shard}
			bit := b.Shard & -b.Shard
			parent := place{b.Workchain, b.Shard&^bit&^(bit<<1) | bit<<1}
			left, right := place{b.Workchain, b.Shard - bit/2}, place{b.Workchain, b.Shard + bit/2}
			before, exists := newest[at]
			switch {
			case exists && b.SeqNo == before+1:
			case newest[left] != 0 && newest[right] != 0 && b.SeqNo == max(newest[left], newest[right])+1:
				merges++
				delete(newest, left)
				delete(newest, right)
			case newest[parent] != 0 && b.SeqNo == newest[parent]+1:
				splits++ // keep the parent, because the other half starts from it too
			default:
				t.Fatalf("seed %d: the block with seq_no %d in shard %d:%016x has no parent",
					seed, b.SeqNo, b.Workchain, b.Shard)
			}
			newest[at] = b.SeqNo
			if i > 0 && b.SeqNo == blocks[i-1].SeqNo {
				twice++
			}
		}
		if splits < 4 || merges < 1 || twice < 20 {
			t.Errorf("seed %d: too few: %d splits, %d merges, %d pairs of neighbors with equal seq_no",
				seed, splits, merges, twice)
		}
	}
}
