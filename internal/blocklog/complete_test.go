package blocklog

import (
	"math/rand/v2"
	"testing"
)

// windowOf returns a Log that has seen some blocks, and a window that has all but the first of them.
func windowOf(seen []piece) (*Log[piece], Window[piece]) {
	l := New(Source[piece]{
		Cursor: cursorOfPiece, Place: func(p piece) Place { return p.Place },
	}, Options[piece]{})
	for _, p := range seen {
		l.know(p.Workchain)
	}
	return l, Window[piece]{Blocks: seen[1:], After: cursorOfPiece(seen[0])}
}

// No chain that splits and merges at random, with blocks missing at random, has a page that is taken for complete and
// lacks a block.
func TestNoPageThatLacksABlockIsComplete(t *testing.T) {
	complete, lacking := 0, 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 18))
		trees := newWood(rnd)
		trees.leaves, trees.shown = trees.leaves[:2+rnd.IntN(2)], trees.shown[:2]
		if len(trees.leaves) > 2 {
			trees.shown = append(trees.shown, true)
		}
		var seen []piece
		missing := map[int]piece{}
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
				t.Fatalf("seed %d: a page between %d and %d is complete, but lacks a block of %v", seed, first, next, missing)
			case got:
				complete++
			case lacks:
				lacking++
			}
		}
	}
	if complete < 10_000 || lacking < 1000 {
		t.Errorf("only %d pages are complete, and %d lack a block", complete, lacking)
	}
}

func TestPageIsCompleteOnlyIfEveryShardIsSeenOnBothSides(t *testing.T) {
	const a, b = 1 << 62, 3 << 62
	master, zero := int32(-1), int32(0)
	chain := func(places ...Place) (all []piece) {
		for i, p := range places {
			all = append(all, piece{i + 1, p})
		}
		return all
	}
	m := func(seqNo uint32) Place { return Place{-1, whole, seqNo} }
	at := func(shard uint64, seqNo uint32) Place { return Place{0, shard, seqNo} }
	for _, row := range []struct {
		what          string
		blocks        []piece
		workchain     *int32
		after, before int
		want          bool
	}{
		{"one shard", chain(m(1), m(2), m(3), m(4), m(5)), &master, 2, 4, true},
		{"one shard, of all workchains", chain(m(1), m(2), m(3), m(4), m(5)), nil, 2, 4, true},
		{"no block before it but the window's edge", chain(m(1), m(2), m(3), m(4), m(5)), &master, 1, 4, false},
		{"nothing at its end", chain(m(1), m(2), m(3), m(4)), &master, 2, 5, false},
		{"a hole in it", chain(m(1), m(2), m(3), m(5), m(6)), &master, 2, 5, false},
		{"a hole at its beginning", chain(m(1), m(2), m(4), m(5), m(6)), &master, 2, 5, false},
		{"a hole at its end", chain(m(1), m(2), m(3), m(5), m(6)), &master, 2, 4, false},
		{"a hole before it", chain(m(1), m(3), m(4), m(5), m(6)), &master, 3, 5, true},
		{"another workchain's hole", chain(m(1), m(2), at(whole, 1), m(3), at(whole, 3), m(4), m(5)), &master, 2, 7, true},
		{"another workchain's hole, of all",
			chain(m(1), m(2), at(whole, 1), m(3), at(whole, 3), m(4), m(5)), nil, 3, 6, false},
		{"a workchain that has had no block before it", chain(m(1), m(2), m(3), at(whole, 1), m(4), m(5)), nil, 2, 5, false},
		{"a workchain of before the window", chain(at(whole, 1), m(1), m(2), m(3), m(4)), nil, 2, 4, false},
		{"half a workchain", chain(at(a, 1), at(a, 2), at(a, 3), at(a, 4), at(a, 5)), &zero, 2, 4, false},
		{"both halves", chain(m(1), at(a, 2), at(b, 2), at(a, 3), at(b, 3), at(a, 4)), &zero, 3, 5, true},
		{"one half has nothing after it", chain(m(1), at(a, 2), at(b, 2), at(a, 3), at(a, 4), at(a, 5)), &zero, 3, 5, false},
		{"a split", chain(m(1), at(whole, 1), at(whole, 2), at(a, 3), at(b, 3), at(a, 4), at(b, 4)), &zero, 3, 6, true},
		{"a split, of which half has not come",
			chain(m(1), at(whole, 1), at(whole, 2), at(a, 3), at(a, 4), at(a, 5)), &zero, 3, 5, false},
		{"a split, the second half comes after it",
			chain(m(1), at(whole, 1), at(whole, 2), at(a, 3), at(a, 4), at(b, 3)), &zero, 3, 5, true},
		{"a split, the second half skips one",
			chain(m(1), at(whole, 1), at(whole, 2), at(a, 3), at(a, 4), at(b, 4)), &zero, 3, 5, false},
		{"a merge", chain(m(1), at(a, 1), at(b, 5), at(whole, 6), at(whole, 7), at(whole, 8)), &zero, 3, 5, false},
		{"a merge before it", chain(m(1), at(a, 1), at(b, 5), at(whole, 6), at(whole, 7), at(whole, 8)), &zero, 4, 6, true},
		{"no block of the workchain", chain(m(1), m(2), m(3), m(4)), &zero, 2, 3, false},
	} {
		l, w := windowOf(row.blocks)
		if got := l.Complete(w, row.workchain, cursorOf(row.after), cursorOf(row.before)); got != row.want {
			t.Errorf("%s: complete %v, want %v", row.what, got, row.want)
		}
	}
}

func TestProofOfAPageLooksAtFewBlocks(t *testing.T) {
	var seen []piece
	for n := range 10_000 {
		seen = append(seen, piece{n + 1, Place{-1, whole, uint32(n)}})
	}
	places := 0
	l, w := windowOf(seen)
	l.src.Place = func(p piece) Place { places++; return p.Place }
	workchain := int32(-1)
	for _, span := range []int{2, maxPageSpan} {
		places = 0
		if !l.Complete(w, &workchain, cursorOf(5000), cursorOf(5000+span)) {
			t.Errorf("a page of %d blocks is not complete", span)
		}
		if most := span + 2*maxEvidence; places > most {
			t.Errorf("a page of %d blocks took a look at %d, want at most %d", span, places, most)
		}
	}
	if l.Complete(w, &workchain, cursorOf(5000), cursorOf(5002+maxPageSpan)) {
		t.Error("a larger page is complete")
	}
}
