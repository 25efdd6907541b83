package blocklog

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/chaingql/chaingql/internal/testkit"
)

const (
	left, right         = 1 << 62, 3 << 62
	leftLeft, leftRight = 1 << 61, 3 << 61
)

func TestCheckDetectsMissingBlocksFromSeqNos(t *testing.T) {
	const all = wholeShard
	type blocks []Place
	at := func(shard uint64, seqNo uint32) Place { return Place{0, shard, seqNo} }
	merged := blocks{at(left, 7), at(right, 12), at(all, 13)}
	for name, tt := range map[string]struct {
		before blocks
		next   Place
		want   verdict
	}{
		"first block of the chain":          {blocks{}, at(all, 7), verdictFirst},
		"first block of its workchain":      {blocks{{-1, all, 3}}, at(all, 7), verdictFirst},
		"first block of its shard":          {blocks{at(left, 3)}, at(right, 7), verdictFirst},
		"next block":                        {blocks{at(all, 7)}, at(all, 8), verdictContinues},
		"next block of shard 0":             {blocks{at(0, 7)}, at(0, 8), verdictContinues},
		"gap in shard 0":                    {blocks{at(0, 7)}, at(0, 9), verdictGap},
		"a block is missing":                {blocks{at(all, 7)}, at(all, 9), verdictGap},
		"a masterchain block is missing":    {blocks{{-1, all, 7}}, Place{-1, all, 9}, verdictGap},
		"equal number":                      {blocks{at(all, 7)}, at(all, 7), verdictLower},
		"lower number":                      {blocks{at(all, 7)}, at(all, 3), verdictLower},
		"after the highest number":          {blocks{at(all, 1<<32-1)}, at(all, 0), verdictLower},
		"next after a lower number":         {blocks{at(all, 7), at(all, 3)}, at(all, 4), verdictContinues},
		"split":                             {blocks{at(all, 7)}, at(left, 8), verdictContinues},
		"split, second half":                {blocks{at(all, 7), at(left, 8)}, at(right, 8), verdictContinues},
		"split, second half has a gap":      {blocks{at(all, 7), at(left, 8)}, at(right, 9), verdictGap},
		"split after a missing block":       {blocks{at(all, 7)}, at(left, 9), verdictGap},
		"split, equal number":               {blocks{at(all, 7)}, at(left, 7), verdictLower},
		"two splits, one block missing":     {blocks{at(all, 7)}, at(leftLeft, 9), verdictGap},
		"two splits, low number":            {blocks{at(all, 7)}, at(leftLeft, 8), verdictLower},
		"two splits":                        {blocks{at(all, 7), at(left, 8)}, at(leftRight, 9), verdictContinues},
		"merge, right half is higher":       {blocks{at(left, 7), at(right, 12)}, at(all, 13), verdictMerge},
		"merge, left half is higher":        {blocks{at(left, 12), at(right, 7)}, at(all, 13), verdictMerge},
		"merge after a missing block":       {blocks{at(left, 7), at(right, 12)}, at(all, 14), verdictGap},
		"merge, equal number":               {blocks{at(left, 7), at(right, 12)}, at(all, 12), verdictLower},
		"merge, unknown half":               {blocks{at(left, 7)}, at(all, 20), verdictFirst},
		"merge, unknown half, equal number": {blocks{at(left, 7)}, at(all, 7), verdictLower},
		"two merges, first one skipped": {
			blocks{at(leftLeft, 7), at(leftRight, 7), at(right, 9)}, at(all, 10), verdictGap,
		},
		"two merges from a known quarter": {blocks{at(leftLeft, 7)}, at(all, 9), verdictGap},
		"next after a merge":              {merged, at(all, 14), verdictContinues},
		"split after a merge":             {merged, at(left, 14), verdictContinues},
		"old half after a merge":          {merged, at(left, 8), verdictLower},
		"other half after a lower number": {blocks{at(all, 7), at(left, 3)}, at(right, 20), verdictFirst},
		"half after a high quarter":       {blocks{at(all, 7), at(leftLeft, 20)}, at(right, 9), verdictFirst},
		"sibling of a high quarter":       {blocks{at(all, 7), at(leftLeft, 20)}, at(leftRight, 3), verdictFirst},
		"deepest shard":                   {blocks{at(3, 7)}, at(1, 8), verdictFirst},
		"sibling of the deepest shard":    {blocks{at(2, 7), at(3, 8)}, at(1, 8), verdictContinues},
	} {
		ls := make(shardHeads)
		for i, p := range tt.before {
			ls.set(p, cursorOf(i+1))
		}
		if got := ls.check(tt.next); got != tt.want {
			t.Errorf("%s: check returned verdict %d for %v after %v, want %d; heads %v",
				name, got, tt.next, tt.before, tt.want, ls)
		}
	}
}

func TestStartOfAGapIsTheLowestCursorOfItsShards(t *testing.T) {
	ls := make(shardHeads)
	for i, p := range []Place{{0, wholeShard, 1}, {0, left, 2}, {0, leftLeft, 3}, {-1, wholeShard, 9}} {
		ls.set(p, cursorOf(i+1))
	}
	for p, want := range map[Place]int{
		{0, right, 5}: 1, {0, left, 9}: 2, {0, leftRight, 9}: 2, {0, leftLeft, 9}: 3, {0, wholeShard, 9}: 1,
		{-1, wholeShard, 12}: 4,
	} {
		if got := ls.before(p, ""); got != cursorOf(want) {
			t.Errorf("before returned %q for %v, want block %d", got, p, want)
		}
		if !ls.passed(p, cursorOf(want)) || ls.passed(p, cursorOf(5)) {
			t.Errorf("passed for %v returned false for block %d or true for block 5", p, want)
		}
	}
	half := make(shardHeads)
	half.set(Place{1, right, 1}, cursorOf(5))
	for p, want := range map[Place]int{{1, right, 3}: 5, {1, wholeShard, 3}: 2, {1, left, 3}: 2, {2, left, 1}: 2} {
		if got := half.before(p, cursorOf(2)); got != cursorOf(want) {
			t.Errorf("before returned %q for %v, want block %d", got, p, want)
		}
	}
	c := ls.clone()
	c.set(Place{0, leftLeft, 4}, cursorOf(5))
	if ls.before(Place{0, leftLeft, 5}, "") != cursorOf(3) {
		t.Error("a change of a clone changed the original heads")
	}
}

// firstGap checks all blocks except number without, and returns the number of the block that shows a gap, or 0.
func firstGap(t *testing.T, blocks []shardBlock, without int) (at int) {
	t.Helper()
	ls := make(shardHeads)
	for _, p := range blocks {
		if p.number == without {
			continue
		}
		switch ls.check(p.Place) {
		case verdictGap:
			return p.number
		case verdictLower:
			t.Fatalf("%v counts as lower than heads %v without block %d of %v",
				p, ls[p.Workchain], without, blocks[:p.number])
		}
		ls.set(p.Place, cursorOf(p.number))
		for i, h := range ls[p.Workchain] {
			for _, o := range ls[p.Workchain][:i] {
				if overlap(h.shard, o.shard) {
					t.Fatalf("heads %v overlap after %v", ls, p)
				}
			}
		}
	}
	return 0
}

// successor returns the next block in the shard of block i, and whether this block must show that block i is missing.
// It cannot show that if block i is the first one of a shard, or the last one of the half with the lower number before
// a merge.
func successor(blocks []shardBlock, i int) (next int, shows bool) {
	p := blocks[i]
	other, first := uint32(0), true
	for _, o := range blocks[:i] {
		first = first && !(o.Workchain == p.Workchain && overlap(o.Shard, p.Shard))
		if o.Workchain == p.Workchain && overlap(o.Shard, sibling(p.Shard)) {
			other = max(other, o.SeqNo)
		}
	}
	for _, o := range blocks[i+1:] {
		if o.Workchain != p.Workchain {
			continue
		}
		if overlap(o.Shard, p.Shard) {
			merged := o.Shard != p.Shard && depth(o.Shard) < depth(p.Shard)
			return o.number, !first && (!merged || p.SeqNo > other)
		}
		if overlap(o.Shard, sibling(p.Shard)) {
			other = max(other, o.SeqNo)
		}
	}
	return 0, false
}

// checkEachMissing checks that the chain has no gap, and that each block, if it is missing, is noticed at its
// successor. It returns the number of blocks that are detected if they are missing.
func checkEachMissing(t *testing.T, blocks []shardBlock) (found int) {
	t.Helper()
	if at := firstGap(t, blocks, 0); at > 0 {
		t.Fatalf("got a gap before block %d of a complete chain, want none", at)
	}
	for i, p := range blocks {
		at := firstGap(t, blocks, p.number)
		if next, shows := successor(blocks, i); shows && (at == 0 || at > next) {
			t.Errorf("without %v got a gap before block %d, want one before block %d at the latest", p, at, next)
		}
		if at > 0 {
			found++
		}
	}
	return found
}

func TestMissingBlockOfRandomChainIsDetectedAtItsSuccessor(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		trees := newRandomShards(rand.New(rand.NewPCG(seed, 3)))
		var blocks []shardBlock
		for range 200 {
			blocks = append(blocks, trees.next())
		}
		found += checkEachMissing(t, blocks)
	}
	if found < 40*150 {
		t.Errorf("only %d of 8000 missing blocks were detected, want at least 6000", found)
	}
}

func TestRecordedChainsHaveNoGapAndEachMissingBlockIsDetected(t *testing.T) {
	for name, count := range map[string]int{"ton-mainnet-genesis": 805, "ton-mainnet-2020-02-27": 40} {
		type block struct {
			Workchain int32
			Shard     string
			SeqNo     uint32 `json:"seq_no"`
			Order     string `json:"chain_order"`
		}
		var recorded struct{ Blocks []block }
		recording := testkit.ReadGzip(t, "../../testdata/recordings/"+name+".json.gz")
		if err := json.Unmarshal(recording, &recorded); err != nil {
			t.Fatal(err)
		}
		all := recorded.Blocks
		slices.SortFunc(all, func(a, b block) int { return cmp.Compare(a.Order, b.Order) })
		var blocks []shardBlock
		for i, b := range all {
			shard, err := strconv.ParseUint(b.Shard, 16, 64)
			if err != nil || b.Order == "" {
				t.Fatalf("the recording contains the invalid block %+v: %v", b, err)
			}
			blocks = append(blocks, shardBlock{i + 1, Place{b.Workchain, shard, b.SeqNo}})
		}
		if len(blocks) != count {
			t.Errorf("%s has %d blocks, want %d", name, len(blocks), count)
		}
		detected := checkEachMissing(t, blocks)
		t.Logf("%s: the absence of %d of %d blocks is detected", name, detected, len(blocks))
	}
}
