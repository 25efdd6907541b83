package chaingql

import (
	"strconv"
	"testing"
	"time"
)

// costlyFilter returns a filter with about as many conditions as a document may contain, and their number. The block
// that it returns satisfies all of them, except the last one of each alternative.
func costlyFilter() (filter blockFilter, conditions int, b Block) {
	b = Block{Workchain: -1, Shard: 1 << 63, SeqNo: 5, Time: time.Unix(1_700_000_000, 0), Cursor: SeqCursor(5)}
	texts := func(own string) map[string]any {
		return map[string]any{
			"ne": "x", "gt": "", "ge": own, "lt": "z", "le": own, "in": []any{"", "A", own, "x"}, "notIn": []any{"x"},
		}
	}
	numbers := func(number func(int) any, own int) map[string]any {
		return map[string]any{
			"ne": number(own - 1), "gt": number(own - 1), "ge": number(own), "lt": number(own + 1), "le": number(own),
			"in": []any{number(own)}, "notIn": []any{number(own + 1)},
		}
	}
	integer := func(n int) any { return n }
	float := func(n int) any { return float64(n) }
	var or any
	for range 13 {
		last := texts(string(b.Cursor))
		last["eq"] = nil
		or = map[string]any{
			"id": texts(b.Hash.String()), "shard": texts(string(appendShard(nil, b.Shard))),
			"seq_no": numbers(float, int(b.SeqNo)), "workchain_id": numbers(integer, int(b.Workchain)),
			"gen_utime": numbers(float, int(b.Time.Unix())), "chain_order": last, "OR": or,
		}
		conditions += 43
	}
	filter, _, err := newBlockFilter(or)
	if err != nil {
		panic(err)
	}
	return filter, conditions, b
}

// Clients choose the number of conditions, and each new block is compared with all of them.
func TestFiltersNeedNoMemoryForABlock(t *testing.T) {
	filter, _, block := costlyFilter()
	eval := func(b Block) bool { return filter.matches(&b) }
	if n := testing.AllocsPerRun(10, func() {
		if eval(block) {
			t.Error("the block matches")
		}
	}); n > 0 {
		t.Errorf("%v allocations for a block, want none", n)
	}
}

// The benchmark evaluates the filters of several subscriptions for one block. Thousands of filters do not fit in the
// caches of the processor.
func BenchmarkFilters(b *testing.B) {
	for _, subscriptions := range []int{1, 2000} {
		b.Run(strconv.Itoa(subscriptions), func(b *testing.B) {
			filters := make([]blockFilter, subscriptions)
			var conditions int
			var block Block
			for i := range filters {
				filters[i], conditions, block = costlyFilter()
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, filter := range filters {
					filter.matches(&block)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subscriptions*conditions), "ns/condition")
		})
	}
}

// A search of a client with an expensive filter must not delay those of other clients. With a cheap filter, a search
// compares many blocks, because each search has costs of its own.
func TestSearchWithExpensiveFilterComparesFewBlocks(t *testing.T) {
	costly, conditions, _ := costlyFilter()
	for _, tc := range []struct {
		filter               blockFilter
		conditions, min, max int
	}{
		{nil, 0, 64, 1000},
		{blockFilter{make([]condition, 5)}, 5, 64, 1000},
		{costly, conditions, 1, 3},
	} {
		n := tc.filter.searchBlocks()
		if n < tc.min || n > tc.max {
			t.Errorf("a search compares %d blocks with %d conditions, want %d to %d", n, tc.conditions, tc.min, tc.max)
		}
	}
}
