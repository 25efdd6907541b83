package chaingql

import (
	"context"

	"github.com/chaingql/chaingql/internal/blocklog"
)

// These filters select the blocks of the masterchain, which has only one shard.
var (
	masters     = blocklog.Filter{ByWorkchain: true, Workchain: masterchain}
	masterShard = shardOf(masterchain, wholeShard)
)

// wholeShard is the shard of a workchain that is not split.
const wholeShard = 1 << 63

// rangeCalls is the maximum number of Backend calls to find the blocks that delimit a range of numbers.
const rangeCalls = 3

// narrow limits q to the masterchain blocks with numbers from start to end-1 and the shard blocks that they commit.
// filter is a BlockchainMasterSeqNoFilter, which has start and end. Afterwards q does not select masterchain block
// end-1 itself: narrow returns this block as last if the page may include it. empty reports that the range has no
// blocks.
//
// A range that ends after the newest block ends with this block, so that the page has no blocks at or after end that
// arrive meanwhile. The newest block is read before all others, because a block that arrives later was not pruned.
func (r *resolvers) narrow(
	ctx context.Context, c *call, q *pageQuery, filter any,
) (last *Block, empty bool, err error) {
	fields, _ := filter.(map[string]any)
	start, isStart := fields["start"].(int)
	end, isEnd := fields["end"].(int)
	if isEnd && (end < 1 || isStart && end <= start) {
		return nil, true, nil
	}
	var newest *Block
	if isStart && start > 1 || isEnd && end > 1 {
		blocks, err := r.read(ctx, c, &pageQuery{in: masters, last: 1})
		if err != nil || blocks.Len() == 0 {
			return nil, true, err
		}
		newest = blocks.At(0)
		next := int64(newest.SeqNo) + 1
		if isEnd && int64(end) > next {
			end, c.final = int(next), false
		}
		if isStart && (int64(start) > next || isEnd && end <= start) {
			return nil, true, nil
		}
	}
	if isStart && start > 0 {
		b, err := r.master(ctx, c, start-1, newest)
		if err != nil {
			return nil, false, err
		}
		if b != nil {
			q.after = max(q.after, b.Cursor)
		}
	}
	if isEnd {
		last, err = r.master(ctx, c, end-1, newest)
		switch {
		case err != nil || last == nil || q.after >= last.Cursor:
			return nil, true, err
		case q.before != "" && q.before <= last.Cursor:
			return nil, false, nil
		}
		q.before = last.Cursor
		if q.in.ByWorkchain && q.in.Workchain != masterchain || q.in.ByShard && q.in.Shard != wholeShard {
			return nil, false, nil
		}
	}
	return last, false, nil
}

// master returns the masterchain block with this number, which is at most that of the newest block. It returns nil if
// the number is 0 and not stored, and an error if the block was pruned.
func (r *resolvers) master(ctx context.Context, c *call, number int, newest *Block) (*Block, error) {
	if newest != nil && int64(number) == int64(newest.SeqNo) {
		return newest, nil
	}
	b, err := r.find(ctx, c, lookup{by: bySeqNo, in: masterShard, number: int64(number)}, "")
	if err != nil || b != nil || number == 0 {
		return b, err
	}
	oldest, err := r.read(ctx, c, &pageQuery{first: 1})
	if err != nil {
		return nil, err
	}
	return nil, r.chainOf(c).tooOld(oldest)
}

// with returns a copy of blocks to which last is appended.
func with(blocks blocklog.List[Block], last *Block) blocklog.List[Block] {
	all := make([]Block, 0, blocks.Len()+1)
	for i := range blocks.Len() {
		all = append(all, *blocks.At(i))
	}
	return blocklog.ListOf(append(all, *last))
}
