package memchain

import (
	"slices"

	"github.com/chaingql/chaingql"
)

// An index holds, for each filter by workchain, shard or both, the numbers of the blocks
// that match. Without the index, a page of a workchain with few blocks would need a scan of
// the whole chain. The numbers ascend and count all blocks that the chain ever had, from 0.
// As in Chain.blocks, elements are never changed, so readers need no lock to read a list.
type index map[filter][]int

// A filter selects the blocks of a workchain, of a shard, or of both. It is a key of the
// index.
type filter struct {
	workchain            int32
	shard                uint64
	byWorkchain, byShard bool
}

// filterOf returns the filter of a query.
func filterOf(q chaingql.BlocksQuery) (f filter) {
	if q.Workchain != nil {
		f.workchain, f.byWorkchain = *q.Workchain, true
	}
	if q.Shard != nil {
		f.shard, f.byShard = *q.Shard, true
	}
	return f
}

// add adds the number of block b to each list with a filter that matches b.
func (x index) add(number int, b chaingql.Block) {
	for _, f := range []filter{
		{workchain: b.Workchain, byWorkchain: true},
		{shard: b.Shard, byShard: true},
		{workchain: b.Workchain, byWorkchain: true, shard: b.Shard, byShard: true},
	} {
		x[f] = append(x[f], number)
	}
}

// prune drops all numbers less than number.
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

// pageOf returns the same page as chaingql.PageOf for a query with a filter, but uses the
// index. numbers has the numbers of the blocks that match the filter. first is the number
// of blocks[0].
func pageOf(blocks []chaingql.Block, first int, numbers []int, q chaingql.BlocksQuery) []chaingql.Block {
	if q.After != "" {
		from, _ := slices.BinarySearch(numbers, first+upTo(blocks, q.After))
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
