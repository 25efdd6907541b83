package chaingql

import (
	"context"

	"github.com/chaingql/chaingql/internal/blocklog"
)

// These filters select the blocks of the masterchain, which has only one shard.
var (
	masters     = blocklog.Filter{ByWorkchain: true, Workchain: masterchain}
	masterShard = blocklog.Filter{ByWorkchain: true, Workchain: masterchain, ByShard: true, Shard: wholeShard}
)

// wholeShard is the shard of a workchain that is not split.
const wholeShard = 1 << 63

// rangeCalls is the maximum number of Backend calls to find the blocks that delimit a range of numbers.
const rangeCalls = 3

// narrow limits q to the masterchain blocks with numbers from start to end-1 and the shard blocks that they commit.
// filter is a BlockchainMasterSeqNoFilter, which has start and end. Afterwards q does not select masterchain block
// end-1 itself: narrow returns this block as last if the page may include it. empty reports that the range has no
// blocks.
func (r *resolvers) narrow(
	ctx context.Context, c *call, q *pageQuery, filter any,
) (last *Block, empty bool, err error) {
	fields, _ := filter.(map[string]any)
	start, isStart := fields["start"].(int)
	end, isEnd := fields["end"].(int)
	if isEnd && (end < 1 || isStart && end <= start) {
		return nil, true, nil
	}
	if isStart && start > 0 {
		b, err := r.master(ctx, c, int64(start)-1)
		switch {
		case err != nil:
			return nil, false, err
		case b != nil:
			q.after = max(q.after, b.Cursor)
		case start > 1: // there is no block start-1 yet
			return nil, true, nil
		}
	}
	if isEnd {
		if last, err = r.master(ctx, c, int64(end)-1); err != nil {
			return nil, false, err
		}
		switch {
		case last == nil:
			return nil, end == 1, nil
		case q.after >= last.Cursor:
			return nil, true, nil
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

// master returns the masterchain block with this number. It returns nil if there is no such block yet, or if number is
// 0 and not stored. It returns an error if the block was pruned.
func (r *resolvers) master(ctx context.Context, c *call, number int64) (*Block, error) {
	b, err := r.find(ctx, c, lookup{by: bySeqNo, in: masterShard, number: number}, "")
	if err != nil || b != nil || number == 0 {
		return b, err
	}
	newest, _, err := r.read(ctx, c, pageQuery{in: masters, last: 1})
	if err != nil || newest.Len() == 0 || int64(newest.At(0).SeqNo) < number {
		return nil, err
	}
	oldest, _, err := r.read(ctx, c, pageQuery{first: 1})
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
