package chaos_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
	mostShards  = 8
	recorded    = "../../testdata/recordings/ton-mainnet-genesis.json.gz"

	// settling is the number of blocks at the end of a chain that contain a block of each shard, so
	// that an earlier hole is noticed.
	settling = 60
)

// A truth holds all blocks of a source and the time at which each was committed.
type truth struct {
	blocks    []chaingql.Block
	place     map[chaingql.Cursor]int
	committed []atomic.Int64 // Unix time in nanoseconds; 0 if committed before the run
	recorded  int            // number of recorded blocks of a real chain
}

// newTruth takes up to n/2 blocks from the recorded chain and simulates the rest.
func newTruth(n int, seed uint64) (*truth, error) {
	t := &truth{place: make(map[chaingql.Cursor]int, n), committed: make([]atomic.Int64, n)}
	known, err := recording(n / 2)
	if err != nil {
		return nil, err
	}
	t.recorded = len(known)
	t.blocks = extend(known, n, rand.New(rand.NewPCG(seed, 1)))
	for i, b := range t.blocks {
		t.place[b.Cursor] = i
	}
	return t, nil
}

// recording loads the beginning of the recorded chain, up to a masterchain block, so that the next
// block starts a round.
func recording(most int) ([]chaingql.Block, error) {
	file, err := os.Open(recorded)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	rec, err := memchain.Load(file)
	if err != nil {
		return nil, err
	}
	blocks := rec.Blocks[:min(most, len(rec.Blocks))]
	for len(blocks) > 0 && blocks[len(blocks)-1].Workchain != masterchain {
		blocks = blocks[:len(blocks)-1]
	}
	return slices.Clone(blocks), nil
}

// A tip is the newest block of a shard, or the last block of its parent after a split.
type tip struct {
	seqNo uint32
	own   bool // the shard has a block of its own
}

// tips returns the shards of workchain 0 at the end of a chain.
func tips(blocks []chaingql.Block) map[uint64]tip {
	shards := map[uint64]tip{}
	for _, b := range blocks {
		if b.Workchain != 0 {
			continue
		}
		if _, goesOn := shards[b.Shard]; !goesOn {
			bit := b.Shard & -b.Shard
			if before, split := shards[parent(b.Shard)]; split && b.Shard != wholeShard {
				shards[b.Shard^bit<<1] = tip{seqNo: before.seqNo}
				delete(shards, parent(b.Shard))
			}
			delete(shards, b.Shard-bit/2)
			delete(shards, b.Shard+bit/2)
		}
		shards[b.Shard] = tip{b.SeqNo, true}
	}
	if len(shards) == 0 {
		shards[wholeShard] = tip{}
	}
	return shards
}

func parent(shard uint64) uint64 {
	bit := shard & -shard
	return shard&^bit&^(bit<<1) | bit<<1
}

// extend extends a chain to n blocks. Each shard continues, splits and merges by the rules of the
// network.
func extend(known []chaingql.Block, n int, rng *rand.Rand) []chaingql.Block {
	blocks, shards := slices.Clip(known), tips(known)
	master, at := uint32(0), time.Unix(1_600_000_000, 0).UTC()
	if len(known) > 0 {
		master, at = known[len(known)-1].SeqNo, known[len(known)-1].Time
	}
	for len(blocks) < n {
		settled := len(blocks) >= n-2*settling
		master, at = master+1, at.Add(3*time.Second)
		var round []chaingql.Block
		add := func(workchain int32, shard uint64, seqNo uint32) {
			b := chaingql.Block{Workchain: workchain, Shard: shard, SeqNo: seqNo, Time: at, Cursor: chaingql.ChainOrder(workchain, shard, seqNo, master)}
			for i := 0; i < len(b.Hash); i += 8 {
				binary.BigEndian.PutUint64(b.Hash[i:], rng.Uint64())
			}
			round = append(round, b)
		}
		for _, shard := range sorted(shards) {
			more := rng.IntN(3)
			if settled {
				more = 1
			}
			for range more {
				seqNo := shards[shard].seqNo + 1
				shards[shard] = tip{seqNo, true}
				add(0, shard, seqNo)
			}
		}
		add(masterchain, wholeShard, master)
		slices.SortFunc(round, func(a, b chaingql.Block) int { return strings.Compare(string(a.Cursor), string(b.Cursor)) })
		blocks = append(blocks, round...)
		if !settled {
			reshard(rng, shards)
		}
	}
	return blocks[:n:n]
}

// reshard occasionally splits or merges a shard.
func reshard(rng *rand.Rand, shards map[uint64]tip) {
	all := sorted(shards)
	shard := all[rng.IntN(len(all))]
	bit := shard & -shard
	sibling := shard ^ bit<<1
	switch t := shards[shard]; {
	case !t.own: // clients could not detect a shard without a block
	case rng.IntN(12) == 0 && len(shards) < mostShards:
		delete(shards, shard)
		shards[shard-bit/2], shards[shard+bit/2] = tip{seqNo: t.seqNo}, tip{seqNo: t.seqNo}
	case rng.IntN(12) == 0 && shard != wholeShard && shards[sibling].own:
		seqNo := max(t.seqNo, shards[sibling].seqNo)
		delete(shards, shard)
		delete(shards, sibling)
		shards[parent(shard)] = tip{seqNo: seqNo}
	}
}

func sorted(shards map[uint64]tip) []uint64 {
	all := make([]uint64, 0, len(shards))
	for shard := range shards {
		all = append(all, shard)
	}
	slices.Sort(all)
	return all
}

// A filter is the filter of a subscription.
type filter struct {
	name    string
	json    string
	matches func(chaingql.Block) bool
}

// filters returns filters that match many and few blocks.
func (t *truth) filters() []filter {
	often := map[uint64]int{}
	for _, b := range t.blocks {
		if b.Workchain == 0 {
			often[b.Shard]++
		}
	}
	var busy, idle uint64
	for _, shard := range slices.Sorted(func(yield func(uint64) bool) {
		for shard := range often {
			if !yield(shard) {
				return
			}
		}
	}) {
		if often[shard] > often[busy] {
			busy = shard
		}
		if idle == 0 || often[shard] < often[idle] {
			idle = shard
		}
	}
	one := func(shard uint64) filter {
		return filter{
			fmt.Sprintf("shard 0:%016x", shard), fmt.Sprintf(`{"workchain_id":{"eq":0},"shard":{"eq":"%016x"}}`, shard),
			func(b chaingql.Block) bool { return b.Workchain == 0 && b.Shard == shard },
		}
	}
	return []filter{
		{"all", "null", func(chaingql.Block) bool { return true }},
		{"masterchain", `{"workchain_id":{"eq":-1}}`, func(b chaingql.Block) bool { return b.Workchain == masterchain }},
		{"workchain 0", `{"workchain_id":{"eq":0}}`, func(b chaingql.Block) bool { return b.Workchain == 0 }},
		one(busy), one(idle),
	}
}
