package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
)

// miner is the account with a balance that grows in each round.
var miner = chaingql.Address{ID: sha256.Sum256([]byte("miner"))}

// simulate plays an indexer. It continues after the newest stored round, commits each round
// together with the miner's balance, and repeats a commit that failed.
func simulate(ctx context.Context, backend *postgres.Backend, pace time.Duration) error {
	w, err := backend.Writer(ctx)
	if err != nil {
		return err
	}
	seqNo, err := newest(ctx, backend)
	if err != nil {
		return err
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		seqNo++
		blocks := round(seqNo, time.Now().Truncate(time.Microsecond))
		balance := new(big.Int).Mul(big.NewInt(1_700_000_000), big.NewInt(int64(seqNo)))
		balances := map[chaingql.Address]*big.Int{miner: balance}
		for {
			err := w.Commit(ctx, blocks, balances)
			if err == nil {
				break
			}
			if errors.Is(err, postgres.ErrConflict) {
				return err // another process simulates in this schema
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			slog.Warn("storing blocks failed; retrying", slog.Uint64("seq_no", uint64(seqNo)), slog.Any("error", err))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// newest returns the number of the newest stored round, or 0. It needs to check only the
// masterchain, because a round is stored completely or not at all.
func newest(ctx context.Context, backend *postgres.Backend) (uint32, error) {
	workchain := int32(masterchain)
	page, err := backend.Blocks(ctx, chaingql.BlocksQuery{Workchain: &workchain, Last: 1})
	if err != nil || len(page) == 0 {
		return 0, err
	}
	return page[0].SeqNo, nil
}

// round returns the blocks of a round in cursor order: one block of each shard.
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
