package blocklog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// placed returns a function that places blocks in several workchains and shards, and counts its calls.
func placed(calls *int) func(int) Place {
	return func(b int) Place {
		*calls++
		switch {
		case b%3 == 0:
			return Place{Workchain: -1, Shard: wholeShard}
		case b%101 == 0:
			return Place{Workchain: 7, Shard: wholeShard}
		}
		return Place{Workchain: 0, Shard: uint64(b%16)<<60 | 1<<59}
	}
}

func (l *List[B]) all() []B {
	var all []B
	for i := range l.Len() {
		all = append(all, *l.At(i))
	}
	return all
}

func TestSelectReturnsTheBlocksOfAWorkchainOrShard(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var calls int
	place := placed(&calls)
	filters := []Filter{
		{}, {ByWorkchain: true, Workchain: -1}, {ByWorkchain: true}, {ByWorkchain: true, Workchain: 7},
		{ByWorkchain: true, Workchain: 8}, {ByShard: true, Shard: wholeShard}, {ByShard: true, Shard: 5<<60 | 1<<59},
		{ByWorkchain: true, ByShard: true, Shard: 5<<60 | 1<<59},
		{ByWorkchain: true, Workchain: -1, ByShard: true, Shard: 5<<60 | 1<<59},
	}
	type taken struct {
		w    Window[int]
		f    Filter
		want []int
	}
	var all []taken
	v := emptyView[int](position{})
	for b := 1; b < 3000; b++ {
		n := v.extend()
		if random.IntN(100) > 0 {
			n.push(b, stamp{cursor: cursorOf(b)}, windowLimit{blocks: 200, bytes: 1 << 30}, place)
		} else if len(n.blocks) > 20 { // blocks that were missing turn up
			n = v.merge([]entry[int]{{b, v.stamps[10].cursor + "x"}, {b, v.stamps[15].cursor + "x"}},
				windowLimit{blocks: 200, bytes: 1 << 30}, place)
		}
		v = n
		w := Window[int]{Blocks: v.blocks, index: v.index, first: v.base.next}
		for _, f := range filters {
			want := slices.DeleteFunc(slices.Clone(v.blocks), func(b int) bool {
				at := place(b)
				return f.ByWorkchain && f.Workchain != at.Workchain || f.ByShard && f.Shard != at.Shard
			})
			before := calls
			list := w.Select(f)
			if calls != before {
				t.Fatalf("Select examined %d blocks, want none", calls-before)
			}
			if b%50 == 0 {
				all = append(all, taken{w, f, want})
			}
			if got := list.all(); !slices.Equal(got, want) {
				t.Fatalf("Select(%+v) returned %v, want %v", f, got, want)
			}
			if i := list.Len() / 2; i > 0 {
				if s := list.Slice(1, i); !slices.Equal(s.all(), want[1:i]) {
					t.Fatalf("Slice returned %v, want %v", s.all(), want[1:i])
				}
			}
		}
	}
	for _, a := range all {
		list := a.w.Select(a.f)
		if got := list.all(); !slices.Equal(got, a.want) {
			t.Fatalf("a window changed from %v to %v when later blocks arrived", a.want, got)
		}
	}
}

func TestIndexRemovesShardsWithoutBlocks(t *testing.T) {
	v := emptyView[int](position{})
	for b := range 10_000 {
		v = v.extend()
		v.push(b, stamp{cursor: fmt.Sprint(b)}, windowLimit{blocks: 10, bytes: 1 << 30}, func(b int) Place {
			return Place{Shard: uint64(b)}
		})
	}
	if most := 10 + 10 + 1; len(v.index) != most {
		t.Errorf("the index of a window of 10 blocks has %d lists, want %d", len(v.index), most)
	}
	for _, p := range v.index {
		if len(p.numbers) > 10 || cap(p.numbers) > 32 {
			t.Errorf("the list of %+v has %d numbers and room for %d, want at most 10 and 32",
				p.in, len(p.numbers), cap(p.numbers))
		}
	}
}
