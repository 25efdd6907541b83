package blocklog

import (
	"cmp"
	"slices"
)

// An index has, for every workchain, every shard prefix and every shard of a workchain, the numbers of the blocks in
// the window. It is sorted by filter. Without it, a page of a workchain with few blocks would need a scan of the
// window.
//
// Once the window is published, its index does not change. Later indexes may share the arrays of its numbers, but only
// append to them.
type index []posting

// A posting has the numbers of the blocks that one filter selects, ascending. It has at least one number.
type posting struct {
	in      Filter
	numbers []uint64
}

// A Filter selects the blocks of a workchain, with a shard prefix, or of both. The zero Filter selects all blocks.
type Filter struct {
	// ByWorkchain reports whether the Filter selects only the blocks in Workchain.
	ByWorkchain bool
	Workchain   int32

	// ByShard reports whether the Filter selects only the blocks with the prefix Shard.
	ByShard bool
	Shard   uint64
}

// kind returns a different number for each combination of ByWorkchain and ByShard.
func (f Filter) kind() (n int) {
	if f.ByWorkchain {
		n = 1
	}
	if f.ByShard {
		n += 2
	}
	return n
}

func (f Filter) compare(g Filter) int {
	return cmp.Or(cmp.Compare(f.kind(), g.kind()), cmp.Compare(f.Workchain, g.Workchain), cmp.Compare(f.Shard, g.Shard))
}

// filters returns the filters that select a block at p.
func (p Place) filters() [3]Filter {
	return [3]Filter{
		{ByWorkchain: true, Workchain: p.Workchain},
		{ByShard: true, Shard: p.Shard},
		{ByWorkchain: true, Workchain: p.Workchain, ByShard: true, Shard: p.Shard},
	}
}

func (x index) find(f Filter) (int, bool) {
	return slices.BinarySearchFunc(x, f, func(p posting, f Filter) int { return p.in.compare(f) })
}

// add adds the number of the newest block.
func (x *index) add(number uint64, at Place) {
	for _, f := range at.filters() {
		i, found := x.find(f)
		if !found {
			*x = slices.Insert(*x, i, posting{in: f})
		}
		p := &(*x)[i]
		p.numbers = append(withRoom(p.numbers), number)
	}
}

// removeOldest removes the number of the oldest block.
func (x *index) removeOldest(at Place) {
	for _, f := range at.filters() {
		i, _ := x.find(f)
		if p := &(*x)[i]; len(p.numbers) > 1 {
			p.numbers = p.numbers[1:]
		} else {
			*x = slices.Delete(*x, i, i+1)
		}
	}
}

// A List is a sequence of blocks in ascending order: all blocks of a slice, or those with certain positions. It does
// not change.
type List[B any] struct {
	blocks  []B
	stamps  []stamp  // of the blocks; nil if they are not in a window
	partial bool     // the List has only the blocks in numbers
	numbers []uint64 // positions in blocks, plus first
	first   uint64
}

// ListOf returns a List of all blocks of a slice, which must not change any more.
func ListOf[B any](blocks []B) List[B] { return List[B]{blocks: blocks} }

// Len returns the number of blocks.
func (l *List[B]) Len() int {
	if l.partial {
		return len(l.numbers)
	}
	return len(l.blocks)
}

// At returns the i-th block, which must not be modified.
func (l *List[B]) At(i int) *B {
	if l.partial {
		return &l.blocks[l.numbers[i]-l.first]
	}
	return &l.blocks[i]
}

// Prepared returns the value that Source.Prepare returned for the i-th block. It returns nil if there is none, because
// the block is not in a window or came into it late.
func (l *List[B]) Prepared(i int) any {
	switch {
	case l.stamps == nil:
		return nil
	case l.partial:
		return l.stamps[l.numbers[i]-l.first].prepared
	}
	return l.stamps[i].prepared
}

// Slice returns the blocks from the i-th up to, but not including, the j-th.
func (l *List[B]) Slice(i, j int) List[B] {
	s := *l
	if s.partial {
		s.numbers = s.numbers[i:j]
	} else {
		s.blocks = s.blocks[i:j]
		if s.stamps != nil {
			s.stamps = s.stamps[i:j]
		}
	}
	return s
}

// Select returns the blocks of the Window that f selects. It copies nothing, and its cost depends neither on the number
// of blocks nor on how rare the selected ones are. Unless f is zero, the source must have a Place function.
func (w *Window[B]) Select(f Filter) List[B] {
	if f == (Filter{}) {
		return List[B]{blocks: w.Blocks, stamps: w.stamps}
	}
	l := List[B]{blocks: w.Blocks, stamps: w.stamps, partial: true, first: w.first}
	if i, found := w.index.find(f); found {
		l.numbers = w.index[i].numbers
	}
	return l
}
