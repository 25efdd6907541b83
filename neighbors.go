package chaingql

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// neighborCalls is the maximum number of Backend calls to find the blocks before or after a block, including the call
// for the block itself.
const neighborCalls = 5

func neighborCost(plan.Args) plan.Cost { return plan.Cost{Calls: neighborCalls, Blocks: neighborCalls} }

// neighbors returns the resolver of a field with the blocks that find returns, before or after the block with the given
// hash. For a block that does not exist, it resolves to an empty list.
func (r *resolvers) neighbors(
	find func(context.Context, *call, *Block) (blocks blockList, exact bool, err error),
) func(context.Context, any, plan.Args) (any, error) {
	return func(ctx context.Context, src any, args plan.Args) (any, error) {
		hash, err := parseHash(args[0].(string))
		if err != nil {
			return nil, err
		}
		c := callOf(src)
		b, err := r.find(ctx, c, lookup{by: byHash, hash: hash}, "")
		var blocks blockList
		exact := false
		if b != nil {
			blocks, exact, err = find(ctx, c, b)
		}
		c.final = c.final && exact
		return blocks, err
	}
}

// predecessors returns the block before b, or the two blocks before it if b merged two shards. If one of them is not
// stored, it returns none. exact reports whether the numbers prove that these are the predecessors.
//
// The predecessor of block n is block n-1 of the same shard or, after a split, of its parent. After a merge, one of the
// two predecessors is block n-1 of its shard, and the other one has this number or a lower one. Both are the last
// blocks of their shards before b.
func (r *resolvers) predecessors(ctx context.Context, c *call, b *Block) (blocks blockList, exact bool, err error) {
	number := int64(b.SeqNo) - 1
	if number < 0 {
		return nil, false, nil
	}
	var unsure error // the number is not in the window, which may be too short
	for _, in := range append([]blocklog.Filter{shardOf(b.Workchain, b.Shard)}, parentOf(b)...) {
		previous, err := r.find(ctx, c, lookup{by: bySeqNo, in: in, number: number}, "")
		switch {
		case errors.Is(err, errLookup):
			unsure = err
		case err != nil:
			return nil, false, err
		case previous != nil:
			return blockList{previous}, true, nil
		}
	}
	for _, in := range childrenOf(b) {
		last, err := r.read(ctx, c, &pageQuery{in: in, before: b.Cursor, last: 1})
		if err != nil {
			return nil, false, err
		}
		if last.Len() > 0 {
			blocks = append(blocks, last.At(0))
		}
	}
	if len(blocks) < 2 || int64(max(blocks[0].SeqNo, blocks[1].SeqNo)) != number {
		return nil, false, unsure
	}
	return blocks, blocks[0].SeqNo == blocks[1].SeqNo, nil
}

// successors returns the block after b, or the two blocks after it if the shard of b was split. If one of them is not
// stored, it returns none. exact reports whether the numbers prove that these are the successors.
//
// The successor of block n is block n+1 of the same shard or, after a split, of both of its children. After a merge, it
// is the first block of the parent after b. Its number is higher than n+1 if the other shard had more blocks.
func (r *resolvers) successors(ctx context.Context, c *call, b *Block) (blocks blockList, exact bool, err error) {
	number := int64(b.SeqNo) + 1
	if number > maxSeqNo {
		return nil, false, nil
	}
	next, err := r.find(ctx, c, lookup{by: bySeqNo, in: shardOf(b.Workchain, b.Shard), number: number}, b.Cursor)
	if err != nil {
		return nil, false, err
	}
	if next != nil {
		return blockList{next}, true, nil
	}
	for _, in := range childrenOf(b) {
		child, err := r.find(ctx, c, lookup{by: bySeqNo, in: in, number: number}, b.Cursor)
		if err != nil {
			return nil, false, err
		}
		if child != nil {
			blocks = append(blocks, child)
		}
	}
	switch len(blocks) {
	case 1:
		return nil, false, nil
	case 2:
		return blocks, true, nil
	}
	for _, in := range parentOf(b) {
		page, err := r.read(ctx, c, &pageQuery{in: in, after: b.Cursor, first: 1})
		if err != nil {
			return nil, false, err
		}
		if page.Len() > 0 {
			first := page.At(0)
			return blockList{first}, int64(first.SeqNo) == number, nil
		}
	}
	return nil, false, nil
}

const maxSeqNo = 1<<32 - 1

// shardOf returns the filter for the blocks of a shard.
func shardOf(workchain int32, shard uint64) blocklog.Filter {
	return blocklog.Filter{ByWorkchain: true, Workchain: workchain, ByShard: true, Shard: shard}
}

// parentOf returns the shard that splits into the shard of b and its sibling; none if there is no such shard.
func parentOf(b *Block) []blocklog.Filter {
	own := b.Shard & -b.Shard // the bit that ends the prefix
	if b.Workchain == masterchain || own<<1 == 0 {
		return nil
	}
	return []blocklog.Filter{shardOf(b.Workchain, b.Shard&^own|own<<1)}
}

// childrenOf returns the two shards into which the shard of b can be split; none if there are no such shards.
func childrenOf(b *Block) []blocklog.Filter {
	half := b.Shard & -b.Shard / 2
	if b.Workchain == masterchain || half == 0 {
		return nil
	}
	return []blocklog.Filter{shardOf(b.Workchain, b.Shard-half), shardOf(b.Workchain, b.Shard+half)}
}
