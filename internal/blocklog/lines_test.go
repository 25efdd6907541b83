package blocklog

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

const (
	left, right         = 1 << 62, 3 << 62
	leftLeft, leftRight = 1 << 61, 3 << 61
)

func TestSeqNosShowWhetherABlockIsMissing(t *testing.T) {
	type blocks []Place
	at := func(shard uint64, seqNo uint32) Place { return Place{0, shard, seqNo} }
	for name, tt := range map[string]struct {
		before blocks
		next   Place
		want   verdict
	}{
		"first of all":                      {blocks{}, at(whole, 7), first},
		"first of its workchain":            {blocks{{-1, whole, 3}}, at(whole, 7), first},
		"first of its shard":                {blocks{at(left, 3)}, at(right, 7), first},
		"next":                              {blocks{at(whole, 7)}, at(whole, 8), fits},
		"next of a shard that is called 0":  {blocks{at(0, 7)}, at(0, 8), fits},
		"hole in a shard that is called 0":  {blocks{at(0, 7)}, at(0, 9), hole},
		"one is missing":                    {blocks{at(whole, 7)}, at(whole, 9), hole},
		"masterchain, one is missing":       {blocks{{-1, whole, 7}}, Place{-1, whole, 9}, hole},
		"same again":                        {blocks{at(whole, 7)}, at(whole, 7), lower},
		"lower":                             {blocks{at(whole, 7)}, at(whole, 3), lower},
		"the highest seq_no":                {blocks{at(whole, 1<<32-1)}, at(whole, 0), lower},
		"next after lower":                  {blocks{at(whole, 7), at(whole, 3)}, at(whole, 4), fits},
		"split":                             {blocks{at(whole, 7)}, at(left, 8), fits},
		"split, other half":                 {blocks{at(whole, 7), at(left, 8)}, at(right, 8), fits},
		"split, other half missing one":     {blocks{at(whole, 7), at(left, 8)}, at(right, 9), hole},
		"split, before it one is missing":   {blocks{at(whole, 7)}, at(left, 9), hole},
		"split, lower":                      {blocks{at(whole, 7)}, at(left, 7), lower},
		"split twice at once":               {blocks{at(whole, 7)}, at(leftLeft, 9), hole},
		"split twice at once, low":          {blocks{at(whole, 7)}, at(leftLeft, 8), lower},
		"split twice":                       {blocks{at(whole, 7), at(left, 8)}, at(leftRight, 9), fits},
		"merge":                             {blocks{at(left, 7), at(right, 12)}, at(whole, 13), merge},
		"merge, the other way":              {blocks{at(left, 12), at(right, 7)}, at(whole, 13), merge},
		"merge, one is missing":             {blocks{at(left, 7), at(right, 12)}, at(whole, 14), hole},
		"merge, lower":                      {blocks{at(left, 7), at(right, 12)}, at(whole, 12), lower},
		"merge, one half never came":        {blocks{at(left, 7)}, at(whole, 20), first},
		"merge, one half never came, lower": {blocks{at(left, 7)}, at(whole, 7), lower},
		"merge of halves that merge first":  {blocks{at(leftLeft, 7), at(leftRight, 7), at(right, 9)}, at(whole, 10), hole},
		"merge twice at once":               {blocks{at(leftLeft, 7)}, at(whole, 9), hole},
		"next after a merge":                {blocks{at(left, 7), at(right, 12), at(whole, 13)}, at(whole, 14), fits},
		"half again after a merge":          {blocks{at(left, 7), at(right, 12), at(whole, 13)}, at(left, 14), fits},
		"half goes on after a merge":        {blocks{at(left, 7), at(right, 12), at(whole, 13)}, at(left, 8), lower},
		"other half after a lower one":      {blocks{at(whole, 7), at(left, 3)}, at(right, 20), first},
		"quarter after its whole":           {blocks{at(whole, 7), at(leftLeft, 20)}, at(right, 9), first},
		"quarter's kin after its whole":     {blocks{at(whole, 7), at(leftLeft, 20)}, at(leftRight, 3), first},
		"deepest":                           {blocks{at(3, 7)}, at(1, 8), first},
		"deepest sibling":                   {blocks{at(2, 7), at(3, 8)}, at(1, 8), fits},
	} {
		ls := make(lines)
		for i, p := range tt.before {
			ls.take(p, cursorOf(i+1))
		}
		if got := ls.judge(tt.next); got != tt.want {
			t.Errorf("%s: %v after %v is judged %d, want %d; %v", name, tt.next, tt.before, got, tt.want, ls)
		}
	}
}

func TestLinesTellFromWhereToLookForMissingBlocks(t *testing.T) {
	ls := make(lines)
	for i, p := range []Place{{0, whole, 1}, {0, left, 2}, {0, leftLeft, 3}, {-1, whole, 9}} {
		ls.take(p, cursorOf(i+1))
	}
	for p, want := range map[Place]int{{0, right, 5}: 1, {0, left, 9}: 2, {0, leftRight, 9}: 2, {0, leftLeft, 9}: 3, {0, whole, 9}: 1, {-1, whole, 12}: 4} {
		if got := ls.before(p); got != cursorOf(want) {
			t.Errorf("before %v is %q, want %d", p, got, want)
		}
		if !ls.passed(p, cursorOf(want)) || ls.passed(p, cursorOf(5)) {
			t.Errorf("%v: what is passed?", p)
		}
	}
	c := ls.clone()
	c.take(Place{0, leftLeft, 4}, cursorOf(5))
	if ls.before(Place{0, leftLeft, 5}) != cursorOf(3) {
		t.Error("a copy changed the lines")
	}
}

// firstHole follows blocks, but one, and returns where a hole shows, or nothing.
func firstHole(t *testing.T, blocks []piece, without int) (at int) {
	t.Helper()
	ls := make(lines)
	for _, p := range blocks {
		if p.number == without {
			continue
		}
		switch ls.judge(p.Place) {
		case hole:
			return p.number
		case lower:
			t.Fatalf("%v is judged to be lower than %v, without %d of %v", p, ls[p.Workchain], without, blocks[:p.number])
		}
		ls.take(p.Place, cursorOf(p.number))
		for i, f := range ls[p.Workchain] {
			for _, o := range ls[p.Workchain][:i] {
				if overlap(f.shard, o.shard) {
					t.Fatalf("lines %v overlap after %v", ls, p)
				}
			}
		}
	}
	return 0
}

// heir returns the next block of a block's line, and whether that must tell that the block is missing: the first block
// of a shard has none before it to tell, and after a merge the seq_nos of the lower half are forgotten.
func heir(blocks []piece, i int) (next int, tells bool) {
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

func checkEachMissing(t *testing.T, blocks []piece) (found int) {
	t.Helper()
	if at := firstHole(t, blocks, 0); at > 0 {
		t.Fatalf("a hole before block %d of a chain without any", at)
	}
	for i, p := range blocks {
		at := firstHole(t, blocks, p.number)
		if next, tells := heir(blocks, i); tells && (at == 0 || at > next) {
			t.Errorf("without %v a hole shows at %d, want it at %d", p, at, next)
		}
		if at > 0 {
			found++
		}
	}
	return found
}

func TestEveryBlockMissingFromARandomChainIsFoundAtItsLinesNextBlock(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		trees := newWood(rand.New(rand.NewPCG(seed, 3)))
		var blocks []piece
		for range 200 {
			blocks = append(blocks, trees.next())
		}
		found += checkEachMissing(t, blocks)
	}
	if found < 40*150 {
		t.Errorf("only %d of 8000 were found", found)
	}
}

func TestRecordedChainsHaveNoHoleAndEveryMissingBlockIsFound(t *testing.T) {
	for name, count := range map[string]int{"ton-mainnet-genesis": 805, "ton-mainnet-2020-02-27": 40} {
		data, err := os.ReadFile("../../../shared/realdata/" + name + ".json")
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("the recorded chains are not here: %v", err)
		}
		type block struct {
			Workchain int32
			Shard     string
			SeqNo     uint32 `json:"seq_no"`
			Order     string `json:"chain_order"`
		}
		var recorded struct{ Blocks []block }
		if err := errors.Join(err, json.Unmarshal(data, &recorded)); err != nil {
			t.Fatal(err)
		}
		all := recorded.Blocks
		slices.SortFunc(all, func(a, b block) int { return cmp.Compare(a.Order, b.Order) })
		var blocks []piece
		for i, b := range all {
			shard, err := strconv.ParseUint(b.Shard, 16, 64)
			if err != nil || b.Order == "" {
				t.Fatal(b, err)
			}
			blocks = append(blocks, piece{i + 1, Place{b.Workchain, shard, b.SeqNo}})
		}
		if len(blocks) != count {
			t.Errorf("%d blocks of %s, want %d", len(blocks), name, count)
		}
		t.Logf("%s: without %d of %d blocks a hole shows", name, checkEachMissing(t, blocks), len(blocks))
	}
}
