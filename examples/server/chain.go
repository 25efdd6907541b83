package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
	usualLead   = 3 * time.Second // default of -lead
	pace        = time.Second     // interval between two rounds of simulated blocks
	kept        = 10_000          // number of simulated rounds that the chain keeps
)

// A shard is a shard of the chain with the sequence number of its newest block.
type shard struct {
	workchain int32
	prefix    uint64
	seqNo     uint32
}

// makeBlocks waits for lead and appends the recorded blocks at the given rate per second. Then it appends simulated
// blocks until ctx is done. It removes blocks that are too old.
func makeBlocks(ctx context.Context, chain *memchain.Chain, recorded []chaingql.Block, lead time.Duration,
	rate float64) error {
	start := time.Now().Add(lead)
	for i, b := range recorded {
		due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if !sleep(ctx, time.Until(due)) {
			return nil
		}
		if err := chain.Append(b); err != nil {
			return err
		}
	}
	shards := tips(recorded)
	next := shards
	if n := len(recorded); n > 0 && recorded[n-1].Workchain != masterchain {
		next = shards[len(shards)-1:] // the recording lacks the masterchain block of its last round
	}
	master := shards[len(shards)-1]
	for simulated := 1; ; simulated++ {
		if err := chain.Append(round(next, time.Now())...); err != nil {
			return err
		}
		if simulated > kept {
			chain.Prune(chaingql.ChainOrder(masterchain, wholeShard, master.seqNo-kept, 0))
		}
		if !sleep(ctx, pace) {
			return nil
		}
		next = shards
	}
}

// sleep waits for d. It returns false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// tips returns the shards at the end of the recorded blocks. The masterchain is last, because its block ends a round.
// If there are no recorded blocks, tips returns two shards and the masterchain.
func tips(recorded []chaingql.Block) []*shard {
	if len(recorded) == 0 {
		return []*shard{{prefix: 0x4000000000000000}, {prefix: 0xc000000000000000}, {masterchain, wholeShard, 0}}
	}
	var shards []*shard
	for _, b := range recorded {
		if b.Workchain == masterchain {
			continue
		}
		// After a split, the children replace the parent. After a merge, the parent replaces the children.
		shards = slices.DeleteFunc(shards, func(s *shard) bool {
			return s.workchain == b.Workchain && (within(s.prefix, b.Shard) || within(b.Shard, s.prefix))
		})
		shards = append(shards, &shard{b.Workchain, b.Shard, b.SeqNo})
	}
	// The cursor of the next masterchain block must be after all recorded cursors, even if the previous masterchain
	// block was not recorded.
	newest := recorded[len(recorded)-1].Cursor
	seqNo := sort.Search(math.MaxInt32, func(n int) bool {
		return chaingql.ChainOrder(masterchain, wholeShard, uint32(n+1), 0) > newest
	})
	return append(shards, &shard{masterchain, wholeShard, uint32(seqNo)})
}

// within reports whether the shard part is equal to the shard whole or a part of it. A shard prefix ends with its
// lowest set bit.
func within(part, whole uint64) bool {
	length := 63 - bits.TrailingZeros64(whole)
	return bits.TrailingZeros64(part) <= bits.TrailingZeros64(whole) && (part^whole)>>(64-length) == 0
}

// round returns the next block of each shard, in cursor order.
func round(shards []*shard, now time.Time) []chaingql.Block {
	masterSeqNo := shards[len(shards)-1].seqNo + 1
	blocks := make([]chaingql.Block, len(shards))
	for i, s := range shards {
		s.seqNo++
		blocks[i] = chaingql.Block{
			Workchain: s.workchain, Shard: s.prefix, SeqNo: s.seqNo, Time: now,
			Hash:   sha256.Sum256(fmt.Appendf(nil, "%d:%016x:%d", s.workchain, s.prefix, s.seqNo)),
			Cursor: chaingql.ChainOrder(s.workchain, s.prefix, s.seqNo, masterSeqNo),
		}
	}
	slices.SortFunc(blocks, func(a, b chaingql.Block) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return blocks
}

// simulatedBalances returns the accounts of the simulated chain with their balances.
func simulatedBalances() map[chaingql.Address]*big.Int {
	balances := map[chaingql.Address]*big.Int{}
	for i, nano := range []int64{1_000_000_000, 1_234_567_890_123_456_789, 42} {
		addr := chaingql.Address{ID: sha256.Sum256(fmt.Appendf(nil, "account %d", i))}
		balances[addr] = big.NewInt(nano)
	}
	return balances
}
