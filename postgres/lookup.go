package postgres

import (
	"context"
	"time"

	"github.com/chaingql/chaingql"
)

// These are the conditions of the lookups by hash and by number. Each matches one index.
const (
	byHash  = "hash = $1"
	bySeqNo = "workchain = $1 AND shard = $2 AND seq_no = $3"
)

// byTime returns the condition and the order of lookups by time. It matches the index on times. As in
// pages, the scan begins after the pruned blocks, whose index entries remain until they are vacuumed:
// at the time of the first masterchain block that is left, because times ascend.
func (b *Backend) byTime() string {
	first := "SELECT gen_time FROM " + b.tables.blocks +
		" WHERE workchain = -1 AND cursor ~>~ s.pruned ORDER BY cursor USING ~<~ LIMIT 1"
	return "workchain = -1 AND cursor > s.pruned AND gen_time >= greatest($1, (" + first + "))" +
		" ORDER BY gen_time, cursor"
}

// BlockByHash returns the block with a hash, as [chaingql.HashIndex] specifies.
func (b *Backend) BlockByHash(ctx context.Context, hash chaingql.Hash) (chaingql.Block, error) {
	return b.find(ctx, "read a block by its hash", byHash, hash[:])
}

// BlockBySeqNo returns the block with a number, as [chaingql.SeqNoIndex] specifies.
func (b *Backend) BlockBySeqNo(
	ctx context.Context, workchain int32, shard uint64, seqNo uint32,
) (chaingql.Block, error) {
	return b.find(ctx, "read a block by its number", bySeqNo, workchain, int64(shard), int64(seqNo))
}

// These are the first and the last Unix time that a block may have, in the years 1 and 9999. PostgreSQL has other
// limits, and its driver sends times far beyond them as other times.
const minTime, maxTime = -62_135_596_800, 253_402_300_799

func isStorable(t time.Time) bool { return minTime <= t.Unix() && t.Unix() <= maxTime }

// MasterBlockByTime returns the first masterchain block from a time on, as [chaingql.TimeIndex] specifies.
func (b *Backend) MasterBlockByTime(ctx context.Context, t time.Time) (chaingql.Block, error) {
	if !isStorable(t) {
		t = time.Unix(min(max(t.Unix(), minTime), maxTime+1), 0)
	}
	return b.find(ctx, "read a block by its time", b.byTime(), t)
}

// find reads the first block that matches a condition.
func (b *Backend) find(ctx context.Context, what, condition string, args ...any) (found chaingql.Block, err error) {
	c := b.chain.Load()
	sql := b.lookupSQL(c, condition)
	var blocks []chaingql.Block
	err = b.readSmall(ctx, what, func(ctx context.Context) error {
		blocks, _, err = b.rows(ctx, sql, args)
		return err
	})
	switch {
	case err != nil:
		return found, b.noticed(ctx, c, err)
	case len(blocks) == 0:
		return found, chaingql.ErrBlockNotFound
	}
	return blocks[0], nil
}

func (b *Backend) lookupSQL(c *chain, condition string) string {
	return b.snapshotSQL(c, "SELECT "+columns+" FROM "+b.tables.blocks+" WHERE "+condition+" LIMIT 1")
}
