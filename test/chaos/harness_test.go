package chaos_test

import (
	"fmt"
	"testing"
)

func TestJudgeCountsErrors(t *testing.T) {
	for _, row := range []struct {
		name string
		got  []int32
		want verdict
	}{
		{"correct", []int32{2, 4, 6}, verdict{}},
		{"no blocks", nil, verdict{lost: 3}},
		{"lost block", []int32{2, 6}, verdict{lost: 1}},
		{"duplicate block", []int32{2, 4, 4, 6}, verdict{twice: 1}},
		{"duplicate block at the end", []int32{2, 4, 6, 2}, verdict{twice: 1}},
		{"blocks out of order", []int32{2, 6, 4}, verdict{disordered: 1}},
		{"block of another filter", []int32{2, 3, 4, 6}, verdict{unexpected: 1}},
	} {
		if got := judge(row.got, []int32{2, 4, 6}); got != row.want {
			t.Errorf("%s: judge returns %+v, want %+v", row.name, got, row.want)
		}
	}
}

// TestGeneratedChainHasNoGaps checks that each block continues its shard, or the parents of its shard
// after a split or merge, and that each shard has a block near the end of the chain.
func TestGeneratedChainHasNoGaps(t *testing.T) {
	for seed := range uint64(20) {
		truth, err := newTruth(2000, seed)
		if err != nil {
			t.Fatal(err)
		}
		shards := map[uint64]uint32{}
		var master uint32
		var splits, merges int
		for i, b := range truth.blocks {
			at := fmt.Sprintf("seed %d: block %d, %d:%016x with seq_no %d", seed, i, b.Workchain, b.Shard, b.SeqNo)
			if i > 0 && b.Cursor <= truth.blocks[i-1].Cursor {
				t.Fatalf("%s: cursor %q is not after the previous cursor %q", at, b.Cursor, truth.blocks[i-1].Cursor)
			}
			if b.Workchain == masterchain {
				if master++; b.SeqNo != master {
					t.Fatalf("%s follows seq_no %d", at, master-1)
				}
				continue
			}
			bit := b.Shard & -b.Shard
			before, continuing := shards[b.Shard]
			above, split := shards[parent(b.Shard)]
			left, hasLeft := shards[b.Shard-bit/2]
			right, hasRight := shards[b.Shard+bit/2]
			switch {
			case len(shards) == 0 && b.SeqNo == 1:
			case continuing && b.SeqNo == before+1:
			case split && b.Shard != wholeShard && b.SeqNo == above+1:
				splits++
				delete(shards, parent(b.Shard))
				shards[b.Shard^bit<<1] = above
			case hasLeft && hasRight && b.SeqNo == max(left, right)+1:
				merges++
				delete(shards, b.Shard-bit/2)
				delete(shards, b.Shard+bit/2)
			default:
				t.Fatalf("%s continues none of the shards %x", at, shards)
			}
			shards[b.Shard] = b.SeqNo
		}
		if splits == 0 || merges == 0 {
			t.Errorf("seed %d: chain has %d splits and %d merges, want at least one of each", seed, splits, merges)
		}
		end := map[uint64]bool{}
		for _, b := range truth.blocks[len(truth.blocks)-settling:] {
			end[b.Shard] = true
		}
		for shard := range shards {
			if !end[shard] {
				t.Errorf("seed %d: shard %016x has none of the last %d blocks", seed, shard, settling)
			}
		}
	}
}
