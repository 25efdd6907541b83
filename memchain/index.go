package memchain

import (
	"slices"

	"github.com/chaingql/chaingql"
)

// An index has the numbers of the blocks that a filter by workchain, shard or
// both selects. Without it, a page of a workchain that has few blocks would be
// a scan of the whole chain. Blocks are numbered from the first that the chain
// ever had, ascending; as with Chain.blocks, a list is never written again
// below its length, so readers share it without a lock.
type index map[filter][]int

// A filter is the part of a BlocksQuery that an index answers.
type filter struct {
	workchain            int32
	shard                uint64
	byWorkchain, byShard bool
}

func filterOf(q chaingql.BlocksQuery) (f filter) {
	if q.Workchain != nil {
		f.workchain, f.byWorkchain = *q.Workchain, true
	}
	if q.Shard != nil {
		f.shard, f.byShard = *q.Shard, true
	}
	return f
}

func (x index) add(number int, b chaingql.Block) {
	for _, f := range []filter{
		{workchain: b.Workchain, byWorkchain: true},
		{shard: b.Shard, byShard: true},
		{workchain: b.Workchain, byWorkchain: true, shard: b.Shard, byShard: true},
	} {
		x[f] = append(x[f], number)
	}
}

// prune drops all numbers below one.
func (x index) prune(number int) {
	for f, numbers := range x {
		switch n, _ := slices.BinarySearch(numbers, number); n {
		case 0:
		case len(numbers):
			delete(x, f)
		default:
			x[f] = without(numbers, n)
		}
	}
}

// pageOf is chaingql.PageOf for a query with a filter. The blocks that the filter
// selects have the given numbers; blocks[0] has the number first.
func pageOf(blocks []chaingql.Block, first int, numbers []int, q chaingql.BlocksQuery) []chaingql.Block {
	if q.After != "" {
		from, _ := slices.BinarySearch(numbers, first+after(blocks, q.After))
		numbers = numbers[from:]
	}
	if q.Before != "" {
		to, _ := slices.BinarySearch(numbers, first+below(blocks, q.Before))
		numbers = numbers[:to]
	}
	if q.Last > 0 {
		numbers = numbers[max(0, len(numbers)-q.Last):]
	} else {
		numbers = numbers[:max(0, min(q.First, len(numbers)))]
	}
	page := make([]chaingql.Block, len(numbers))
	for i, number := range numbers {
		page[i] = blocks[number-first]
	}
	return page
}
