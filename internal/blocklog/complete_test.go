package blocklog

import (
	"math/rand/v2"
	"testing"
)

// windowOf returns a Log that has received the given blocks, and a window with all of them except the first.
func windowOf(seen []shardBlock) (*Log[shardBlock], Window[shardBlock]) {
	l := New(Source[shardBlock]{
		Cursor: cursorOfShardBlock, Place: func(p shardBlock) Place { return p.Place },
	}, Options[shardBlock]{})
	for _, p := range seen {
		l.addWorkchain(p.Workchain)
	}
	return l, Window[shardBlock]{Blocks: seen[1:], After: cursorOfShardBlock(seen[0])}
}

// The chains in this test split and merge at random, and lack random blocks.
func TestPageThatLacksABlockIsNotComplete(t *testing.T) {
	complete, lacking := 0, 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 18))
		trees := newRandomShards(rnd)
		trees.heads, trees.shown = trees.heads[:2+rnd.IntN(2)], trees.shown[:2]
		if len(trees.heads) > 2 {
			trees.shown = append(trees.shown, true)
		}
		var seen []shardBlock
		missing := map[int]shardBlock{}
		for range 150 {
			p := trees.next()
			if rnd.IntN(60) == 0 && len(seen) > 0 {
				missing[p.number] = p
				continue
			}
			seen = append(seen, p)
		}
		l, w := windowOf(seen)
		for range 300 {
			first := 1 + rnd.IntN(140)
			next := first + 1 + rnd.IntN(12)
			var workchain *int32
			if rnd.IntN(4) > 0 {
				workchain = &[]int32{-1, 0}[rnd.IntN(2)]
			}
			lacks := false
			for n, p := range missing {
				lacks = lacks || n > first && n < next && (workchain == nil || p.Workchain == *workchain)
			}
			switch got := l.Complete(w, workchain, cursorOf(first), cursorOf(next)); {
			case got && lacks:
				t.Fatalf("seed %d: Complete is true between blocks %d and %d although one of %v is missing",
					seed, first, next, missing)
			case got:
				complete++
			case lacks:
				lacking++
			}
		}
	}
	if complete < 10_000 || lacking < 1000 {
		t.Errorf("the random runs cover too few cases: %d pages are complete, and %d lack a block", complete, lacking)
	}
}

func TestCompleteRequiresABlockOfEveryShardOnBothSides(t *testing.T) {
	const a, b = 1 << 62, 3 << 62
	master, zero := int32(-1), int32(0)
	chain := func(places ...Place) (all []shardBlock) {
		for i, p := range places {
			all = append(all, shardBlock{i + 1, p})
		}
		return all
	}
	m := func(seqNo uint32) Place { return Place{-1, wholeShard, seqNo} }
	at := func(shard uint64, seqNo uint32) Place { return Place{0, shard, seqNo} }
	for _, row := range []struct {
		what          string
		blocks        []shardBlock
		workchain     *int32
		after, before int
		want          bool
	}{
		{"one workchain", chain(m(1), m(2), m(3), m(4), m(5)), &master, 2, 4, true},
		{"all workchains", chain(m(1), m(2), m(3), m(4), m(5)), nil, 2, 4, true},
		{"the page begins where the window begins", chain(m(1), m(2), m(3), m(4), m(5)), &master, 1, 4, false},
		{"no block at or after the page's end", chain(m(1), m(2), m(3), m(4)), &master, 2, 5, false},
		{"a gap inside the page", chain(m(1), m(2), m(3), m(5), m(6)), &master, 2, 5, false},
		{"a gap at the page's beginning", chain(m(1), m(2), m(4), m(5), m(6)), &master, 2, 5, false},
		{"a gap at the page's end", chain(m(1), m(2), m(3), m(5), m(6)), &master, 2, 4, false},
		{"a gap before the page", chain(m(1), m(3), m(4), m(5), m(6)), &master, 3, 5, true},
		{"a gap in another workchain",
			chain(m(1), m(2), at(wholeShard, 1), m(3), at(wholeShard, 3), m(4), m(5)), &master, 2, 7, true},
		{"all workchains, one of which has a gap",
			chain(m(1), m(2), at(wholeShard, 1), m(3), at(wholeShard, 3), m(4), m(5)), nil, 3, 6, false},
		{"a workchain whose first block is inside the page",
			chain(m(1), m(2), m(3), at(wholeShard, 1), m(4), m(5)), nil, 2, 5, false},
		{"a workchain that has blocks only before the window",
			chain(at(wholeShard, 1), m(1), m(2), m(3), m(4)), nil, 2, 4, false},
		{"only one half of the workchain has blocks",
			chain(at(a, 1), at(a, 2), at(a, 3), at(a, 4), at(a, 5)), &zero, 2, 4, false},
		{"both halves of the workchain have blocks",
			chain(m(1), at(a, 2), at(b, 2), at(a, 3), at(b, 3), at(a, 4)), &zero, 3, 5, true},
		{"one half has no block after the page",
			chain(m(1), at(a, 2), at(b, 2), at(a, 3), at(a, 4), at(a, 5)), &zero, 3, 5, false},
		{"a split",
			chain(m(1), at(wholeShard, 1), at(wholeShard, 2), at(a, 3), at(b, 3), at(a, 4), at(b, 4)),
			&zero, 3, 6, true},
		{"a split, the second half has no block",
			chain(m(1), at(wholeShard, 1), at(wholeShard, 2), at(a, 3), at(a, 4), at(a, 5)), &zero, 3, 5, false},
		{"a split, the first block of the second half is after the page",
			chain(m(1), at(wholeShard, 1), at(wholeShard, 2), at(a, 3), at(a, 4), at(b, 3)), &zero, 3, 5, true},
		{"a split, the second half skips a number",
			chain(m(1), at(wholeShard, 1), at(wholeShard, 2), at(a, 3), at(a, 4), at(b, 4)), &zero, 3, 5, false},
		{"a merge inside the page",
			chain(m(1), at(a, 1), at(b, 5), at(wholeShard, 6), at(wholeShard, 7), at(wholeShard, 8)),
			&zero, 3, 5, false},
		{"a merge before the page",
			chain(m(1), at(a, 1), at(b, 5), at(wholeShard, 6), at(wholeShard, 7), at(wholeShard, 8)),
			&zero, 4, 6, true},
		{"no block of the workchain", chain(m(1), m(2), m(3), m(4)), &zero, 2, 3, false},
	} {
		l, w := windowOf(row.blocks)
		if got := l.Complete(w, row.workchain, cursorOf(row.after), cursorOf(row.before)); got != row.want {
			t.Errorf("%s: Complete is %v, want %v", row.what, got, row.want)
		}
	}
}

func TestCompleteExaminesLimitedNumberOfBlocks(t *testing.T) {
	var seen []shardBlock
	for n := range 10_000 {
		seen = append(seen, shardBlock{n + 1, Place{-1, wholeShard, uint32(n)}})
	}
	places := 0
	l, w := windowOf(seen)
	l.src.Place = func(p shardBlock) Place { places++; return p.Place }
	workchain := int32(-1)
	for _, span := range []int{2, maxPageSpan} {
		places = 0
		if !l.Complete(w, &workchain, cursorOf(5000), cursorOf(5000+span)) {
			t.Errorf("Complete is false for a page of %d blocks, want true", span)
		}
		if most := span + 2*maxEvidence; places > most {
			t.Errorf("Complete examined %d blocks for a page of %d, want at most %d", places, span, most)
		}
	}
	if l.Complete(w, &workchain, cursorOf(5000), cursorOf(5002+maxPageSpan)) {
		t.Error("Complete is true for a page that exceeds maxPageSpan, want false")
	}
	if l.Complete(w, &workchain, cursorOf(6000), cursorOf(5000)) {
		t.Error("Complete is true for a page that ends before it begins, want false")
	}
}
