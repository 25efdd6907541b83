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
	maxShards   = 8
	recorded    = "../../testdata/recordings/ton-mainnet-genesis.json.gz"

	// settling is a number of blocks. The last settling blocks of a chain contain a block of each shard,
	// so that the service notices all earlier holes.
	settling = 60
)

// A truth is the ground truth of a run: all blocks of the chain, and the time when each was committed.
type truth struct {
	blocks    []chaingql.Block
	place     map[chaingql.Cursor]int // maps the cursor of each block to its number, its index in blocks
	committed []atomic.Int64          // Unix time in nanoseconds; 0 if committed before the run
	recorded  int                     // number of blocks from the recording of a real chain
	epoch     string                  // "" means that the chain has none
}

// newTruth returns a chain of n blocks. Up to n/2 blocks are from a recording, and the rest are simulated.
func newTruth(n int, seed uint64) (*truth, error) {
	known, err := recording(n / 2)
	if err != nil {
		return nil, err
	}
	t := truthOf(extend(known, n, rand.New(rand.NewPCG(seed, 1))))
	t.recorded = len(known)
	return t, nil
}

func truthOf(blocks []chaingql.Block) *truth {
	t := &truth{
		blocks: blocks, place: make(map[chaingql.Cursor]int, len(blocks)), committed: make([]atomic.Int64, len(blocks)),
	}
	for i, b := range blocks {
		t.place[b.Cursor] = i
	}
	return t
}

// cursor returns the cursor of block n that clients receive with the block. Block -1 is before the first one.
func (t *truth) cursor(n int) string {
	if n < 0 {
		return ""
	}
	return string(t.blocks[n].Cursor) + t.suffix()
}

// isOwn reports whether a cursor belongs to the epoch of the chain.
func (t *truth) isOwn(cursor string) bool {
	c, _, _ := strings.Cut(cursor, "!")
	return c == string(plain(cursor))+t.suffix()
}

// suffix returns the part of cursors for the epoch.
func (t *truth) suffix() string {
	if t.epoch == "" {
		return ""
	}
	return "~" + t.epoch
}

// recording loads up to limit blocks from the beginning of the recorded chain. The last one is a
// masterchain block, so that the next block starts a round.
func recording(limit int) ([]chaingql.Block, error) {
	file, err := os.Open(recorded)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	rec, err := memchain.Load(file)
	if err != nil {
		return nil, err
	}
	blocks := rec.Blocks[:min(limit, len(rec.Blocks))]
	for len(blocks) > 0 && blocks[len(blocks)-1].Workchain != masterchain {
		blocks = blocks[:len(blocks)-1]
	}
	return slices.Clone(blocks), nil
}

// A tip is the last block of a shard. Directly after a split or merge, it is the last block of a parent.
type tip struct {
	seqNo uint32
	own   bool // the block belongs to the shard itself, not to a parent
}

// tips returns the tip of each shard of workchain 0 at the end of a chain.
func tips(blocks []chaingql.Block) map[uint64]tip {
	shards := map[uint64]tip{}
	for _, b := range blocks {
		if b.Workchain != 0 {
			continue
		}
		if _, continuing := shards[b.Shard]; !continuing {
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

// parent returns the shard that results if a shard merges with its sibling.
func parent(shard uint64) uint64 {
	bit := shard & -shard
	return shard&^bit&^(bit<<1) | bit<<1
}

// extend extends a chain to n blocks. Shards continue, split and merge by the rules of the TON network.
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
			b := chaingql.Block{Workchain: workchain, Shard: shard, SeqNo: seqNo, Time: at,
				Cursor: chaingql.ChainOrder(workchain, shard, seqNo, master)}
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
		slices.SortFunc(round, func(a, b chaingql.Block) int {
			return strings.Compare(string(a.Cursor), string(b.Cursor))
		})
		blocks = append(blocks, round...)
		if !settled {
			reshard(rng, shards)
		}
	}
	return blocks[:n:n]
}

// reshard occasionally splits a shard, or merges two shards.
func reshard(rng *rand.Rand, shards map[uint64]tip) {
	all := sorted(shards)
	shard := all[rng.IntN(len(all))]
	bit := shard & -shard
	sibling := shard ^ bit<<1
	switch t := shards[shard]; {
	case !t.own: // every shard must have a block, because clients cannot detect a shard without one
	case rng.IntN(12) == 0 && len(shards) < maxShards:
		delete(shards, shard)
		shards[shard-bit/2], shards[shard+bit/2] = tip{seqNo: t.seqNo}, tip{seqNo: t.seqNo}
	case rng.IntN(12) == 0 && shard != wholeShard && shards[sibling].own:
		seqNo := max(t.seqNo, shards[sibling].seqNo)
		delete(shards, shard)
		delete(shards, sibling)
		shards[parent(shard)] = tip{seqNo: seqNo}
	}
}

// sorted returns the shards in ascending order.
func sorted(shards map[uint64]tip) []uint64 {
	all := make([]uint64, 0, len(shards))
	for shard := range shards {
		all = append(all, shard)
	}
	slices.Sort(all)
	return all
}

// A filter is the filter of a subscription, as the JSON value of a variable and as a function.
type filter struct {
	name    string
	json    string
	matches func(chaingql.Block) bool
}

// filters returns filters of which some match many blocks and some match few.
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
		{"masterchain", `{"workchain_id":{"eq":-1}}`, func(b chaingql.Block) bool {
			return b.Workchain == masterchain
		}},
		{"workchain 0", `{"workchain_id":{"eq":0}}`, func(b chaingql.Block) bool { return b.Workchain == 0 }},
		one(busy), one(idle),
	}
}
