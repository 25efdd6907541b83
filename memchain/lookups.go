package memchain

import (
	"context"
	"maps"
	"sort"
	"time"

	"github.com/chaingql/chaingql"
)

// places maps the hash of each block, and its number in its shard, to the number of the block
// in the chain. If several blocks have the same key, it has the newest.
type places struct {
	byHash  map[chaingql.Hash]int
	bySeqNo map[seqNo]int
	peak    int // maximum length of byHash since the maps were made
}

// A seqNo is the number of a block in a shard.
type seqNo struct {
	workchain int32
	shard     uint64
	number    uint32
}

func newPlaces() places {
	return places{byHash: make(map[chaingql.Hash]int), bySeqNo: make(map[seqNo]int)}
}

func (p *places) add(number int, b *chaingql.Block) {
	p.byHash[b.Hash] = number
	p.bySeqNo[seqNo{b.Workchain, b.Shard, b.SeqNo}] = number
	p.peak = max(p.peak, len(p.byHash))
}

// prune removes blocks. first is the number of the first one.
func (p *places) prune(blocks []chaingql.Block, first int) {
	for i, b := range blocks {
		if p.byHash[b.Hash] == first+i {
			delete(p.byHash, b.Hash)
		}
		if n := (seqNo{b.Workchain, b.Shard, b.SeqNo}); p.bySeqNo[n] == first+i {
			delete(p.bySeqNo, n)
		}
	}
	if len(p.byHash) < p.peak/4 {
		p.byHash, p.bySeqNo, p.peak = shrunk(p.byHash), shrunk(p.bySeqNo), len(p.byHash)
	}
}

// shrunk returns a copy of m in as little memory as its entries need. A map keeps the memory of deleted entries.
func shrunk[K comparable](m map[K]int) map[K]int {
	small := make(map[K]int, len(m))
	maps.Copy(small, m)
	return small
}

// BlockByHash returns the block with this hash, as [chaingql.HashIndex] specifies. If several
// blocks have the hash, it returns the newest.
func (c *Chain) BlockByHash(ctx context.Context, hash chaingql.Hash) (chaingql.Block, error) {
	return c.lookUp(ctx, func() (int, bool) {
		number, ok := c.places.byHash[hash]
		return number, ok
	})
}

// BlockBySeqNo returns the block with this number, as [chaingql.SeqNoIndex] specifies. If
// several blocks of the shard have the number, it returns the newest.
func (c *Chain) BlockBySeqNo(
	ctx context.Context, workchain int32, shard uint64, number uint32,
) (chaingql.Block, error) {
	return c.lookUp(ctx, func() (int, bool) {
		number, ok := c.places.bySeqNo[seqNo{workchain, shard, number}]
		return number, ok
	})
}

// MasterBlockByTime returns the first block of workchain -1 at time t or later, as
// [chaingql.TimeIndex] specifies. The times of these blocks must ascend.
func (c *Chain) MasterBlockByTime(ctx context.Context, t time.Time) (chaingql.Block, error) {
	return c.lookUp(ctx, func() (int, bool) {
		numbers := c.index[filter{workchain: -1, byWorkchain: true}]
		i := sort.Search(len(numbers), func(i int) bool { return !c.blocks[numbers[i]-c.dropped].Time.Before(t) })
		if i == len(numbers) {
			return 0, false
		}
		return numbers[i], true
	})
}

// lookUp returns the block with the number that find returns.
func (c *Chain) lookUp(ctx context.Context, find func() (number int, ok bool)) (chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return chaingql.Block{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	number, ok := find()
	if !ok {
		return chaingql.Block{}, chaingql.ErrBlockNotFound
	}
	return c.blocks[number-c.dropped], nil
}
