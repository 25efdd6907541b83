package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
)

// miner is an account with a balance that grows in each round.
var miner = chaingql.Address{ID: sha256.Sum256([]byte("miner"))}

// produce appends rounds of blocks until ctx is done. Like an indexer, it continues after
// the newest stored block when it starts. If the brokers do not acknowledge a write, the
// Writer repeats it.
func produce(ctx context.Context, brokers string, rate float64) error {
	backend, err := natschain.Open(ctx, brokers, nil)
	if err != nil {
		return err
	}
	defer backend.Close()
	w, err := backend.Writer(ctx)
	if err != nil {
		return err
	}
	newest, err := backend.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
	if err != nil {
		return err
	}
	seqNo, stored := uint32(1), chaingql.Cursor("")
	if len(newest) > 0 { // the later blocks of its round may be missing
		seqNo, stored = newest[0].SeqNo, newest[0].Cursor
	}
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for ; ; seqNo++ {
		if err := w.SetBalance(ctx, miner,
			new(big.Int).Mul(big.NewInt(1_700_000_000), big.NewInt(int64(seqNo)))); err != nil {
			return err
		}
		blocks := slices.DeleteFunc(round(seqNo, time.Now()), func(b chaingql.Block) bool { return b.Cursor <= stored })
		if err := w.Append(ctx, blocks...); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// round returns one block of each shard, with the sequence number seqNo, in cursor order.
func round(seqNo uint32, now time.Time) []chaingql.Block {
	var blocks []chaingql.Block
	for _, at := range []struct {
		workchain int32
		shard     uint64
	}{{masterchain, wholeShard}, {0, 0x4 << 60}, {0, 0xc << 60}} {
		blocks = append(blocks, chaingql.Block{
			Workchain: at.workchain, Shard: at.shard, SeqNo: seqNo, Time: now,
			Hash:   sha256.Sum256(fmt.Appendf(nil, "%d:%016x:%d", at.workchain, at.shard, seqNo)),
			Cursor: chaingql.ChainOrder(at.workchain, at.shard, seqNo, seqNo),
		})
	}
	slices.SortFunc(blocks, func(a, b chaingql.Block) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return blocks
}
