package chaingql_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

func TestChainOrderMatchesTheNetwork(t *testing.T) {
	for _, row := range []struct {
		workchain     int32
		shard         uint64
		seqNo, master uint32
		want          chaingql.Cursor
	}{
		{-1, 1 << 63, 1, 0, "01m"},            // recorded from the network
		{-1, 1 << 63, 2660, 0, "2a64m"},       // recorded from the network
		{-1, 1 << 63, 2467080, 0, "525a508m"}, // recorded from the network
		{-1, 1 << 63, 1, 77, "01m"},           // master is ignored for masterchain blocks
		{0, 1 << 63, 1, 3, "03" + "00" + "01" + "01"},
		{0, 0x6000000000000000, 0x47, 0x10, "110" + "00" + "147" + "06"},
		{-2, 1 << 63, 5, 0x10, "110" + "-02" + "05" + "01"},
		{math.MinInt32, 1 << 63, 5, 0x10, "110" + "-780000000" + "05" + "01"},
		{math.MaxInt32, 1, math.MaxUint32, math.MaxUint32,
			"7ffffffff" + "77fffffff" + "7ffffffff" + "f8000000000000000",
		},
	} {
		if got := chaingql.ChainOrder(row.workchain, row.shard, row.seqNo, row.master); got != row.want {
			t.Errorf("ChainOrder(%d, %x, %d, %d) is %q, want %q",
				row.workchain, row.shard, row.seqNo, row.master, got, row.want)
		}
	}
}

// anyNumber returns a random number of at most bits bits. Short numbers are as likely as long ones.
func anyNumber(rng *rand.Rand, bits uint) uint64 { return rng.Uint64() >> (64 - 1 - rng.UintN(bits)) }

func TestSeqCursorsSortByNumber(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	numbers := []uint64{0, 1, 9, 10, 15, 16, 255, 256, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for range 2000 {
		n := anyNumber(rng, 64)
		numbers = append(numbers, n, n+1)
	}
	for _, a := range numbers {
		b := numbers[rng.IntN(len(numbers))]
		first, second := chaingql.SeqCursor(a), chaingql.SeqCursor(b)
		if got := strings.Compare(string(first), string(second)); got != cmp.Compare(a, b) {
			t.Errorf("the cursors %q of %d and %q of %d compare as %d", first, a, second, b, got)
		}
	}
	if chaingql.SeqCursor(0) <= "" {
		t.Error("SeqCursor(0) does not sort after the empty cursor")
	}
}

func TestChainOrdersSortByChainPosition(t *testing.T) {
	type place struct {
		workchain     int32
		shard         uint64
		seqNo, master uint32
	}
	rng := rand.New(rand.NewPCG(2, 2))
	var places []place
	for range 3000 {
		p := place{
			workchain: int32(rng.IntN(3)) - 1,
			shard:     (2*rng.Uint64N(8) + 1) << 60,
			seqNo:     uint32(anyNumber(rng, 32)),
			master:    uint32(anyNumber(rng, 32)),
		}
		if rng.IntN(2) == 0 && len(places) > 0 { // close to another one
			p.master = places[rng.IntN(len(places))].master
			p.seqNo = uint32(rng.IntN(3))
		}
		if p.workchain == -1 {
			p.shard, p.seqNo = 1<<63, p.master
		}
		places = append(places, p)
	}
	// Blocks are ordered by masterchain block. A masterchain block follows the shard blocks that it refers to. These
	// are ordered by workchain, seq_no and shard, where shallower shards come first.
	order := func(a, b place) int {
		last := func(p place) int {
			if p.workchain == -1 {
				return 1
			}
			return 0
		}
		reversed := func(p place) (n uint64) {
			for i := range 64 {
				n |= p.shard >> i & 1 << (63 - i)
			}
			return n
		}
		return cmp.Or(cmp.Compare(a.master, b.master), cmp.Compare(last(a), last(b)),
			cmp.Compare(a.workchain, b.workchain), cmp.Compare(a.seqNo, b.seqNo), cmp.Compare(reversed(a), reversed(b)))
	}
	cursor := func(p place) string { return string(chaingql.ChainOrder(p.workchain, p.shard, p.seqNo, p.master)) }
	for range 20_000 {
		a, b := places[rng.IntN(len(places))], places[rng.IntN(len(places))]
		if got := strings.Compare(cursor(a), cursor(b)); got != order(a, b) {
			t.Fatalf("the cursors %s of %+v and %s of %+v compare as %d", cursor(a), a, cursor(b), b, got)
		}
	}
}

func blocksAt(cursors string) (blocks []chaingql.Block) {
	for i, c := range strings.Fields(cursors) {
		blocks = append(blocks, chaingql.Block{
			Workchain: int32(i%2) - 1, Shard: uint64(1+i%3) << 62, Cursor: chaingql.Cursor(c),
		})
	}
	return blocks
}

func inOrder(blocks []chaingql.Block) string {
	var all []string
	for _, b := range blocks {
		all = append(all, string(b.Cursor))
	}
	return strings.Join(all, " ")
}

func TestPageOfReturnsEveryRange(t *testing.T) {
	master, base := int32(-1), int32(0)
	shard, none := uint64(1)<<62, uint64(7)
	for _, row := range []struct {
		name, want string
		q          chaingql.BlocksQuery
	}{
		{"the lowest", "02 04", chaingql.BlocksQuery{First: 2}},
		{"the highest", "08 0a", chaingql.BlocksQuery{Last: 2}},
		{"more than there are", "02 04 06 08 0a", chaingql.BlocksQuery{First: 9}},
		{"more than there are, from the end", "02 04 06 08 0a", chaingql.BlocksQuery{Last: 9}},
		{"after a block", "06 08", chaingql.BlocksQuery{First: 2, After: "04"}},
		{"after a gap", "06 08", chaingql.BlocksQuery{First: 2, After: "05"}},
		{"after the newest", "", chaingql.BlocksQuery{First: 2, After: "0a"}},
		{"after all", "", chaingql.BlocksQuery{Last: 2, After: "ff"}},
		{"before a block", "02 04", chaingql.BlocksQuery{Last: 2, Before: "06"}},
		{"before a gap", "04 06", chaingql.BlocksQuery{Last: 2, Before: "07"}},
		{"before the oldest", "", chaingql.BlocksQuery{Last: 2, Before: "02"}},
		{"before all", "", chaingql.BlocksQuery{First: 2, Before: "01"}},
		{"between two", "04 06", chaingql.BlocksQuery{First: 5, After: "02", Before: "08"}},
		{"between one and itself", "", chaingql.BlocksQuery{First: 5, After: "04", Before: "04"}},
		{"back to front", "", chaingql.BlocksQuery{Last: 5, After: "08", Before: "02"}},
		{"of a workchain", "02 06", chaingql.BlocksQuery{First: 2, Workchain: &master}},
		{"of a workchain, from the end", "04 08", chaingql.BlocksQuery{Last: 2, Workchain: &base}},
		{"of a shard", "02 08", chaingql.BlocksQuery{First: 5, Shard: &shard}},
		{"of both", "08", chaingql.BlocksQuery{First: 5, Shard: &shard, Workchain: &base}},
		{"of no shard there is", "", chaingql.BlocksQuery{First: 5, Shard: &none}},
		{"none at all", "", chaingql.BlocksQuery{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			all := blocksAt("02 04 06 08 0a")
			page := chaingql.PageOf(all, row.q)
			if got := inOrder(page); got != row.want {
				t.Errorf("PageOf returned %q, want %q", got, row.want)
			}
			for i := range page {
				page[i].Cursor = "overwritten"
			}
			if got := inOrder(all); got != "02 04 06 08 0a" {
				t.Errorf("the page shares memory with the slice of all blocks: %s", got)
			}
		})
	}
	if page := chaingql.PageOf(nil, chaingql.BlocksQuery{Last: 3, After: "01"}); len(page) != 0 {
		t.Errorf("a page of an empty chain has the blocks %s", inOrder(page))
	}
}
