package backendtest

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
	mostShards  = 8
)

// Chain generates the first n blocks of a chain that has a masterchain and a workchain 0
// whose shards split and merge. The same seed always yields the same chain, and a smaller
// n yields a prefix of it.
//
// The blocks ascend by cursor; [chaingql.ChainOrder] makes the cursors. In each shard,
// seq_no increases by one. After a split, seq_no continues from the parent shard. After a
// merge, it continues from the higher seq_no of the two merged shards. Every third
// masterchain block has the same time as the one before it.
func Chain(n int, seed uint64) []chaingql.Block {
	rng := rand.New(rand.NewPCG(seed, 0))
	shards := map[uint64]height{wholeShard: {}}
	var blocks []chaingql.Block
	for master := uint32(1); len(blocks) < n; master++ {
		at := time.Unix(1_700_000_000+4*int64(master-master%3/2), 0).UTC() // block 2 has the time of block 1
		var round []chaingql.Block
		add := func(workchain int32, shard uint64, seqNo uint32) {
			round = append(round, chaingql.Block{
				Workchain: workchain, Shard: shard, SeqNo: seqNo, Time: at, Hash: randomHash(rng),
				Cursor: chaingql.ChainOrder(workchain, shard, seqNo, master),
			})
		}
		for _, shard := range slices.Sorted(maps.Keys(shards)) {
			for range rng.IntN(4) {
				h := shards[shard]
				h.seqNo++
				shards[shard] = h
				add(0, shard, h.seqNo)
			}
		}
		add(masterchain, wholeShard, master)
		slices.SortFunc(round, ascending)
		blocks = append(blocks, round...)
		reshard(rng, shards)
	}
	return blocks[:n:n]
}

// A height holds the newest seq_no of a shard, and the seq_no that the shard inherited
// from its parents when a split or merge created it.
type height struct{ seqNo, inherited uint32 }

// started reports whether the shard has a block of its own.
func (h height) started() bool { return h.seqNo > h.inherited }

// reshard picks a random shard and splits it, merges it with its sibling, or leaves it
// unchanged. It never splits or merges a shard without a block of its own, because then
// no block would show that the shard existed.
func reshard(rng *rand.Rand, shards map[uint64]height) {
	shard := pick(rng, slices.Sorted(maps.Keys(shards)))
	h := shards[shard]
	if !h.started() {
		return
	}
	bit := shard & -shard // the lowest set bit, which terminates the prefix
	switch rng.IntN(6) {
	case 0, 1:
		if len(shards) < mostShards {
			delete(shards, shard)
			child := height{seqNo: h.seqNo, inherited: h.seqNo}
			shards[shard-bit/2], shards[shard+bit/2] = child, child
		}
	case 2:
		sibling := shard ^ bit<<1
		if other := shards[sibling]; shard != wholeShard && other.started() {
			delete(shards, shard)
			delete(shards, sibling)
			seqNo := max(h.seqNo, other.seqNo)
			shards[shard&^bit&^(bit<<1)|bit<<1] = height{seqNo: seqNo, inherited: seqNo}
		}
	}
}

func randomHash(rng *rand.Rand) (h chaingql.Hash) {
	for i := 0; i < len(h); i += 8 {
		binary.BigEndian.PutUint64(h[i:], rng.Uint64())
	}
	return h
}
