package chaingql_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// variedBlocks returns n blocks: one in 100 is in workchain 7, of the others half are in the masterchain and the rest
// in the shards of workchain 0.
func variedBlocks(n, shards int) []chaingql.Block {
	blocks := make([]chaingql.Block, n)
	numbers := map[[2]uint64]uint32{}
	for i := range blocks {
		b := chaingql.Block{Workchain: -1, Shard: wholeShard, Time: time.Unix(1_700_000_000+int64(i), 0)}
		switch {
		case i%100 == 50:
			b.Workchain = 7
		case i%2 == 1:
			b.Workchain, b.Shard = 0, uint64(2*(i/2%shards)+1)*(wholeShard/uint64(shards))
		}
		place := [2]uint64{uint64(b.Workchain), b.Shard}
		numbers[place]++
		b.SeqNo, b.Cursor, b.Hash = numbers[place], chaingql.SeqCursor(uint64(i)), chaingql.Hash{byte(i), byte(i >> 8)}
		blocks[i] = b
	}
	return blocks
}

// The header and the length of a long response are allocated. A copied page would allocate more.
func TestPagesOfTheWindowAreNotCopied(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector empties pools at random")
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools
	for _, size := range []int{1024, 65_536} {
		for _, shards := range []int{1, 64} {
			blocks := variedBlocks(size, shards)
			c, _ := liveCaller(t, blocks)
			document := 0
			middle := string(blocks[size/2].Cursor)
			for args, want := range map[string]int{
				`workchain:-1,last:50`: 50, `workchain:0,last:50`: 50, `workchain:7,last:5`: 5, `last:50`: 50,
				`workchain:7,first:5,after:"` + middle + `"`: 5, `workchain:99,first:5,after:"` + middle + `"`: 0,
				`workchain:-1,last:50,before:"` + middle + `"`:                             50,
				fmt.Sprintf(`workchain:0,shard:"%016x",last:5`, wholeShard/uint64(shards)): 5,
				fmt.Sprintf(`shard:"%016x",last:5`, wholeShard/uint64(shards)):             5,
			} {
				document++ // the documents of equal form would share a plan
				text := `{blockchain{blocks(` + args + `){edges{node{` + blockParts + `}}}}}`
				body := bodyOf(fmt.Sprint(`query q`, document)+text, nil)
				if got := bytes.Count(c.call(body), []byte(`"block/`)); got != want {
					t.Errorf("window of %d, %d shards: %s returned %d blocks, want %d", size, shards, args, got, want)
				}
				if n := testing.AllocsPerRun(20, func() { c.call(body) }); n > 2 {
					t.Errorf("window of %d, %d shards: %s allocates %v times, want at most 2", size, shards, args, n)
				}
			}
		}
	}
}

func TestPageOfAllocatesOnce(t *testing.T) {
	blocks := variedBlocks(1000, 4)
	workchain, rare, shard := int32(-1), int32(7), uint64(1)<<61
	for name, q := range map[string]chaingql.BlocksQuery{
		"last": {Last: 51}, "first": {First: 51}, "last of a workchain": {Last: 51, Workchain: &workchain},
		"first of a workchain": {First: 51, Workchain: &workchain}, "rare": {Last: 51, Workchain: &rare},
		"shard": {First: 51, Shard: &shard}, "after": {First: 51, After: blocks[300].Cursor, Workchain: &workchain},
	} {
		want := 51
		if name == "rare" {
			want = 10
		}
		if got := len(chaingql.PageOf(blocks, q)); got != want {
			t.Errorf("%s: PageOf returned %d blocks, want %d", name, got, want)
		}
		if n := testing.AllocsPerRun(20, func() { chaingql.PageOf(blocks, q) }); n > 1 {
			t.Errorf("%s: PageOf allocates %v times, want once", name, n)
		}
	}
}

// A Backend that has allocated its page leaves at most eight allocations to the Handler: one each for the shared call,
// its function, its deadline and its query, and two for a long response.
func TestHandlerAddsAtMostEightAllocationsToABackendPage(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector empties pools at random")
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	masterchain := int32(-1)
	blocks := variedBlocks(10_000, 64)
	distant := blocks[100].Cursor
	chain := chainOf(t, blocks)
	for args, q := range map[string]chaingql.BlocksQuery{
		`last:1`: {Last: 2}, `last:50`: {Last: 51},
		`first:50,after:"` + string(distant) + `"`: {First: 51, After: distant},
	} {
		follows := make(chan struct{}, 1)
		h, _ := newHandler(t, quietChain{chain, follows}, chaingql.Options{})
		c := callerOf(t, h)
		body := bodyOf(`{blockchain{blocks(workchain:-1,`+args+`){edges{node{`+blockParts+`}}}}}`, nil)
		if got, want := bytes.Count(c.call(body), []byte(`"block/`)), q.First+q.Last-1; got != want {
			t.Errorf("%s returned %d blocks, want %d", args, got, want)
		}
		<-follows // the Handler has read the newest blocks, which allocates
		q.Workchain = &masterchain
		own := testing.AllocsPerRun(50, func() { _, _ = chain.Blocks(t.Context(), q) })
		if n := testing.AllocsPerRun(50, func() { c.call(body) }); n > own+8 {
			t.Errorf("%s allocates %v times, and the Backend %v times; want at most 8 more", args, n, own)
		}
	}
}

// A quietChain has no new blocks.
type quietChain struct {
	*memchain.Chain
	follows chan struct{} // if not nil, Follow sends to it when it begins to wait
}

func (c quietChain) Follow(ctx context.Context, _ chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if c.follows != nil {
			c.follows <- struct{}{}
		}
		<-ctx.Done()
		yield(chaingql.Block{}, ctx.Err())
	}
}
