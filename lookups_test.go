package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// plainBackend hides the optional interfaces of a chain, and counts the calls of Blocks.
type plainBackend struct {
	chaingql.Backend
	calls *atomic.Int64
}

func (b plainBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	b.calls.Add(1)
	return b.Backend.Blocks(ctx, q)
}

// numberedBackend is a plainBackend that can find blocks by hash and by number, and counts these calls, too.
type numberedBackend struct {
	plainBackend
	chain *memchain.Chain
}

func (b numberedBackend) BlockByHash(ctx context.Context, hash chaingql.Hash) (chaingql.Block, error) {
	b.calls.Add(1)
	return b.chain.BlockByHash(ctx, hash)
}

func (b numberedBackend) BlockBySeqNo(ctx context.Context, w int32, shard uint64, n uint32) (chaingql.Block, error) {
	b.calls.Add(1)
	return b.chain.BlockBySeqNo(ctx, w, shard, n)
}

func plain(c *memchain.Chain) plainBackend { return plainBackend{c, new(atomic.Int64)} }

func withNumbers(c *memchain.Chain) numberedBackend { return numberedBackend{plain(c), c} }

// recordedGenesis returns the first blocks of the TON network: 805 blocks, in shards that split twice.
func recordedGenesis(t testing.TB) (blocks []chaingql.Block, previous map[string]string) {
	t.Helper()
	file, err := os.Open("testdata/recordings/ton-mainnet-genesis.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recording, err := memchain.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Blocks []struct {
			Hash string `json:"hash"`
			Prev string `json:"prev_hash"`
		} `json:"blocks"`
	}
	if err := json.Unmarshal(testkit.ReadGzip(t, file.Name()), &raw); err != nil {
		t.Fatal(err)
	}
	previous = map[string]string{}
	for _, b := range raw.Blocks {
		previous[b.Hash] = b.Prev
	}
	return recording.Blocks, previous
}

// lookUp returns the hashes of the blocks in a field of BlockchainQuery: one for an object, and any number for a list.
func lookUp(t testing.TB, h *chaingql.Handler, field string) []string {
	t.Helper()
	body := query(h, "{blockchain{x:"+field+"{hash}}}", nil)
	reply := parse(t, body)
	var data struct{ Blockchain struct{ X json.RawMessage } }
	if err := json.Unmarshal(reply.Data, &data); err != nil || reply.Errors != nil {
		t.Fatalf("%s: the response is %s", field, body)
	}
	type block struct{ Hash string }
	var blocks []block
	if text := string(data.Blockchain.X); strings.HasPrefix(text, "{") {
		blocks = make([]block, 1)
		err := json.Unmarshal(data.Blockchain.X, &blocks[0])
		if err != nil {
			t.Fatal(err)
		}
	} else if err := json.Unmarshal(data.Blockchain.X, &blocks); err != nil {
		t.Fatal(err)
	}
	hashes := []string{}
	for _, b := range blocks {
		hashes = append(hashes, b.Hash)
	}
	return hashes
}

func TestNeighborsOfRecordedBlocksMatchTheirPrevHash(t *testing.T) {
	blocks, previous := recordedGenesis(t)
	equal(t, "recorded blocks", len(blocks), 805)
	stored := map[string]bool{}
	next := map[string][]string{}
	for _, b := range blocks {
		hash := b.Hash.String()
		stored[hash] = true
		next[previous[hash]] = append(next[previous[hash]], hash)
	}
	h, _ := newHandler(t, chainOf(t, blocks), chaingql.Options{})
	for _, b := range blocks {
		hash := b.Hash.String()
		want := []string{}
		if stored[previous[hash]] {
			want = []string{previous[hash]}
		}
		got := lookUp(t, h, `prev_shard_blocks(hash:"`+hash+`")`)
		if !slices.Equal(got, want) {
			t.Errorf("the blocks before %s are %v, want %v", b.Cursor, got, want)
		}
		got = lookUp(t, h, `next_shard_blocks(hash:"`+hash+`")`)
		slices.Sort(got)
		slices.Sort(next[hash])
		if !slices.Equal(got, next[hash]) {
			t.Errorf("the blocks after %s are %v, want %v", b.Cursor, got, next[hash])
		}
		got = lookUp(t, h, fmt.Sprintf(`block_by_seq_no(workchain:%d,shard:"%016x",seq_no:%d)`,
			b.Workchain, b.Shard, b.SeqNo))
		if !slices.Equal(got, []string{hash}) {
			t.Errorf("the block with the number of %s is %v, want %s", b.Cursor, got, hash)
		}
	}
}

// links returns the predecessors and the successors of each block of a backendtest.Chain, by hash. It processes the
// blocks in order and remembers the newest block of each shard.
func links(blocks []chaingql.Block) (before, after map[string][]string) {
	type place struct {
		workchain int32
		shard     uint64
	}
	before, after = map[string][]string{}, map[string][]string{}
	newest := map[place]chaingql.Block{}
	for _, b := range blocks {
		own := b.Shard & -b.Shard
		parent := place{b.Workchain, b.Shard&^own | own<<1}
		left, right := place{b.Workchain, b.Shard - own/2}, place{b.Workchain, b.Shard + own/2}
		var from []place
		switch at := (place{b.Workchain, b.Shard}); {
		case len(newest) > 0 && newest[at].Hash != (chaingql.Hash{}):
			from = []place{at}
		case newest[left].Hash != (chaingql.Hash{}) && newest[right].Hash != (chaingql.Hash{}):
			from = []place{left, right}
		case newest[parent].Hash != (chaingql.Hash{}):
			from = []place{parent}
		}
		hash := b.Hash.String()
		for _, p := range from {
			old := newest[p].Hash.String()
			before[hash] = append(before[hash], old)
			after[old] = append(after[old], hash)
		}
		if len(from) == 2 {
			delete(newest, left)
			delete(newest, right)
		} else if len(from) == 1 && from[0] == parent && len(after[newest[parent].Hash.String()]) == 2 {
			delete(newest, parent) // both children have begun
		}
		newest[place{b.Workchain, b.Shard}] = b
	}
	return before, after
}

func TestNeighborsAreFoundAcrossSplitsAndMergesWithUnequalNumbers(t *testing.T) {
	blocks := backendtest.Chain(3000, 7)
	before, after := links(blocks)
	stored := byHash(blocks)
	merges, splits, unequal := 0, 0, 0
	for _, two := range before {
		if len(two) == 2 {
			merges++
			if stored[two[0]].SeqNo != stored[two[1]].SeqNo {
				unequal++
			}
		}
	}
	for _, two := range after {
		if len(two) == 2 {
			splits++
		}
	}
	if splits < 20 || merges < 20 || unequal < 10 {
		t.Fatalf("the chain has %d splits and %d merges, %d of unequal numbers: too few", splits, merges, unequal)
	}
	chain, following := chainOf(t, blocks), make(chan struct{})
	b := withNumbers(chain)
	b.Backend = replacedBackend{chain, sync.OnceFunc(func() { close(following) })}
	h, _ := newHandler(t, b, chaingql.Options{})
	query(h, newest, nil)
	<-following // until then, the Handler also calls Blocks itself
	step := 1
	if raceEnabled {
		step = 7
	}
	for i := 0; i < len(blocks); i += step {
		block := blocks[i]
		for field, want := range map[string][]string{
			"prev_shard_blocks": before[block.Hash.String()], "next_shard_blocks": after[block.Hash.String()],
		} {
			if field == "next_shard_blocks" && len(want) == 1 && isChild(stored[want[0]], block) {
				want = nil // the other child has no block yet
			}
			b.calls.Store(0)
			got := lookUp(t, h, field+`(hash:"`+block.Hash.String()+`")`)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s of %s has %v, want %v", field, block.Cursor, got, want)
			}
			if n := b.calls.Load(); n > 5 {
				t.Errorf("%s of %s needed %d calls of the Backend, want at most 5", field, block.Cursor, n)
			}
		}
	}
}

func byHash(blocks []chaingql.Block) map[string]chaingql.Block {
	stored := make(map[string]chaingql.Block, len(blocks))
	for _, b := range blocks {
		stored[b.Hash.String()] = b
	}
	return stored
}

// isChild reports whether a is in a child of the shard of b.
func isChild(a, b chaingql.Block) bool {
	own := b.Shard & -b.Shard
	return a.Shard == b.Shard-own/2 || a.Shard == b.Shard+own/2
}

func TestNeighborListIsEmptyIfANeighborIsNotStored(t *testing.T) {
	blocks := backendtest.Chain(600, 7)
	before, after := links(blocks)
	index := map[string]int{}
	for i, b := range blocks {
		index[b.Hash.String()] = i
	}
	splits, merges := 0, 0
	for i, b := range blocks {
		hash := b.Hash.String()
		if children := after[hash]; len(children) == 2 && splits < 3 {
			splits++
			first, second := index[children[0]], index[children[1]] // ascending
			for n, want := range map[int]int{first: 0, first + 1: 0, second: 0, second + 1: 2} {
				h, _ := newHandler(t, withNumbers(chainOf(t, blocks[:n])), chaingql.Options{})
				got := lookUp(t, h, `next_shard_blocks(hash:"`+hash+`")`)
				equal(t, fmt.Sprintf("blocks after %s if %d are stored", b.Cursor, n), len(got), want)
			}
		}
		if from := before[hash]; len(from) == 2 && merges < 3 {
			merges++
			first, second := index[from[0]], index[from[1]]
			if first > second {
				first, second = second, first
			}
			for oldest, want := range map[int]int{first: 2, first + 1: 0, second: 0, second + 1: 0, i: 0} {
				chain := chainOf(t, blocks)
				chain.Prune(blocks[oldest].Cursor)
				h, _ := newHandler(t, withNumbers(chain), chaingql.Options{})
				got := lookUp(t, h, `prev_shard_blocks(hash:"`+hash+`")`)
				equal(t, fmt.Sprintf("blocks before %s if %d were pruned", b.Cursor, oldest), len(got), want)
			}
		}
	}
	if splits < 3 || merges < 3 {
		t.Errorf("the chain has %d splits and %d merges, want 3", splits, merges)
	}
}

// Without an index, blocks are found only among those that the Handler has received since it began to follow the chain.
// So a lookup must begin that, too: there may be no other query.
func TestLookupsWithoutIndexFindBlocksThatArriveAfterwards(t *testing.T) {
	blocks := backendtest.Chain(300, 1)
	added := blocks[200]
	block, number, previous, next := fieldsOf(blocks[100])
	for _, field := range []string{
		block, number, previous, next,
		"master_seq_no_range(time_start:1){start}", "master_seq_no_range(time_end:1){end}",
		"blocks(master_seq_no_range:{start:5}){edges{cursor}}",
	} {
		synctest.Test(t, func(t *testing.T) {
			chain := chainOf(t, blocks[:200])
			h, _ := newHandler(t, plain(chain), chaingql.Options{})
			equal(t, field, parse(t, query(h, inChain(field), nil)).code(), "LOOKUP_NOT_SUPPORTED")
			synctest.Wait()
			commit(t, chain, added)
			synctest.Wait()
			byHash, byNumber, _, _ := fieldsOf(added)
			want := `{"data":{"blockchain":{"x":{"hash":"` + added.Hash.String() + `"}}}}`
			equal(t, "a block that arrives after "+field, query(h, inChain(byHash), nil), want)
			equal(t, "a block that arrives after "+field, query(h, inChain(byNumber), nil), want)
		})
	}
}
