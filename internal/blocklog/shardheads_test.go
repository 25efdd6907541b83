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

func TestSeqNosShowMissingBlocks(t *testing.T) {
	type blocks []Place
	at := func(shard uint64, seqNo uint32) Place { return Place{0, shard, seqNo} }
	for name, tt := range map[string]struct {
		before blocks
		next   Place
		want   verdict
	}{
		"first of all":                      {blocks{}, at(wholeShard, 7), verdictFirst},
		"first of its workchain":            {blocks{{-1, wholeShard, 3}}, at(wholeShard, 7), verdictFirst},
		"first of its shard":                {blocks{at(left, 3)}, at(right, 7), verdictFirst},
		"next":                              {blocks{at(wholeShard, 7)}, at(wholeShard, 8), verdictContinues},
		"next of a shard that is called 0":  {blocks{at(0, 7)}, at(0, 8), verdictContinues},
		"gap in a shard that is called 0":   {blocks{at(0, 7)}, at(0, 9), verdictGap},
		"one is missing":                    {blocks{at(wholeShard, 7)}, at(wholeShard, 9), verdictGap},
		"masterchain, one is missing":       {blocks{{-1, wholeShard, 7}}, Place{-1, wholeShard, 9}, verdictGap},
		"same again":                        {blocks{at(wholeShard, 7)}, at(wholeShard, 7), verdictLower},
		"lower":                             {blocks{at(wholeShard, 7)}, at(wholeShard, 3), verdictLower},
		"the highest seq_no":                {blocks{at(wholeShard, 1<<32-1)}, at(wholeShard, 0), verdictLower},
		"next after lower":                  {blocks{at(wholeShard, 7), at(wholeShard, 3)}, at(wholeShard, 4), verdictContinues},
		"split":                             {blocks{at(wholeShard, 7)}, at(left, 8), verdictContinues},
		"split, other half":                 {blocks{at(wholeShard, 7), at(left, 8)}, at(right, 8), verdictContinues},
		"split, other half missing one":     {blocks{at(wholeShard, 7), at(left, 8)}, at(right, 9), verdictGap},
		"split, before it one is missing":   {blocks{at(wholeShard, 7)}, at(left, 9), verdictGap},
		"split, lower":                      {blocks{at(wholeShard, 7)}, at(left, 7), verdictLower},
		"split twice at once":               {blocks{at(wholeShard, 7)}, at(leftLeft, 9), verdictGap},
		"split twice at once, low":          {blocks{at(wholeShard, 7)}, at(leftLeft, 8), verdictLower},
		"split twice":                       {blocks{at(wholeShard, 7), at(left, 8)}, at(leftRight, 9), verdictContinues},
		"merge":                             {blocks{at(left, 7), at(right, 12)}, at(wholeShard, 13), verdictMerge},
		"merge, the other way":              {blocks{at(left, 12), at(right, 7)}, at(wholeShard, 13), verdictMerge},
		"merge, one is missing":             {blocks{at(left, 7), at(right, 12)}, at(wholeShard, 14), verdictGap},
		"merge, lower":                      {blocks{at(left, 7), at(right, 12)}, at(wholeShard, 12), verdictLower},
		"merge, one half never came":        {blocks{at(left, 7)}, at(wholeShard, 20), verdictFirst},
		"merge, one half never came, lower": {blocks{at(left, 7)}, at(wholeShard, 7), verdictLower},
		"merge of halves that merge first":  {blocks{at(leftLeft, 7), at(leftRight, 7), at(right, 9)}, at(wholeShard, 10), verdictGap},
		"merge twice at once":               {blocks{at(leftLeft, 7)}, at(wholeShard, 9), verdictGap},
		"next after a merge":                {blocks{at(left, 7), at(right, 12), at(wholeShard, 13)}, at(wholeShard, 14), verdictContinues},
		"half again after a merge":          {blocks{at(left, 7), at(right, 12), at(wholeShard, 13)}, at(left, 14), verdictContinues},
		"half goes on after a merge":        {blocks{at(left, 7), at(right, 12), at(wholeShard, 13)}, at(left, 8), verdictLower},
		"other half after a lower one":      {blocks{at(wholeShard, 7), at(left, 3)}, at(right, 20), verdictFirst},
		"quarter after its whole":           {blocks{at(wholeShard, 7), at(leftLeft, 20)}, at(right, 9), verdictFirst},
		"quarter's kin after its whole":     {blocks{at(wholeShard, 7), at(leftLeft, 20)}, at(leftRight, 3), verdictFirst},
		"deepest":                           {blocks{at(3, 7)}, at(1, 8), verdictFirst},
		"deepest sibling":                   {blocks{at(2, 7), at(3, 8)}, at(1, 8), verdictContinues},
	} {
		ls := make(shardHeads)
		for i, p := range tt.before {
			ls.set(p, cursorOf(i+1))
		}
		if got := ls.check(tt.next); got != tt.want {
			t.Errorf("%s: %v after %v is judged %d, want %d; %v", name, tt.next, tt.before, got, tt.want, ls)
		}
	}
}

func TestHeadsReturnTheStartOfAGap(t *testing.T) {
	ls := make(shardHeads)
	for i, p := range []Place{{0, wholeShard, 1}, {0, left, 2}, {0, leftLeft, 3}, {-1, wholeShard, 9}} {
		ls.set(p, cursorOf(i+1))
	}
	for p, want := range map[Place]int{{0, right, 5}: 1, {0, left, 9}: 2, {0, leftRight, 9}: 2, {0, leftLeft, 9}: 3, {0, wholeShard, 9}: 1, {-1, wholeShard, 12}: 4} {
		if got := ls.before(p); got != cursorOf(want) {
			t.Errorf("before %v is %q, want %d", p, got, want)
		}
		if !ls.passed(p, cursorOf(want)) || ls.passed(p, cursorOf(5)) {
			t.Errorf("%v: wrong result of passed", p)
		}
	}
	c := ls.clone()
	c.set(Place{0, leftLeft, 4}, cursorOf(5))
	if ls.before(Place{0, leftLeft, 5}) != cursorOf(3) {
		t.Error("a change of a copy changed the heads")
	}
}

// firstGap follows all blocks except one, and returns the number of the block that shows a gap, or 0.
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
			t.Fatalf("%v is judged to be lower than %v, without %d of %v", p, ls[p.Workchain], without, blocks[:p.number])
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

// successor returns the next block of a block's shard, and whether it must show that the block is missing. It cannot if
// the missing block is the first one of a shard, or of the lower half before a merge.
func successor(blocks []shardBlock, i int) (next int, tells bool) {
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

func checkEachMissing(t *testing.T, blocks []shardBlock) (found int) {
	t.Helper()
	if at := firstGap(t, blocks, 0); at > 0 {
		t.Fatalf("gap before block %d of a complete chain", at)
	}
	for i, p := range blocks {
		at := firstGap(t, blocks, p.number)
		if next, shows := successor(blocks, i); shows && (at == 0 || at > next) {
			t.Errorf("without %v got a gap at %d, want %d", p, at, next)
		}
		if at > 0 {
			found++
		}
	}
	return found
}

func TestMissingBlockOfRandomChainShowsAtItsSuccessor(t *testing.T) {
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
		t.Errorf("only %d of 8000 were found", found)
	}
}

func TestRecordedChainsHaveNoGapAndEveryMissingBlockShows(t *testing.T) {
	for name, count := range map[string]int{"ton-mainnet-genesis": 805, "ton-mainnet-2020-02-27": 40} {
		type block struct {
			Workchain int32
			Shard     string
			SeqNo     uint32 `json:"seq_no"`
			Order     string `json:"chain_order"`
		}
		var recorded struct{ Blocks []block }
		if err := json.Unmarshal(testkit.ReadGzip(t, "../../testdata/recordings/"+name+".json.gz"), &recorded); err != nil {
			t.Fatal(err)
		}
		all := recorded.Blocks
		slices.SortFunc(all, func(a, b block) int { return cmp.Compare(a.Order, b.Order) })
		var blocks []shardBlock
		for i, b := range all {
			shard, err := strconv.ParseUint(b.Shard, 16, 64)
			if err != nil || b.Order == "" {
				t.Fatal(b, err)
			}
			blocks = append(blocks, shardBlock{i + 1, Place{b.Workchain, shard, b.SeqNo}})
		}
		if len(blocks) != count {
			t.Errorf("%d blocks of %s, want %d", len(blocks), name, count)
		}
		t.Logf("%s: without %d of %d blocks a gap shows", name, checkEachMissing(t, blocks), len(blocks))
	}
}
