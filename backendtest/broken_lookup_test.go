package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// lookupOverride is a chain. If one of its functions is not nil, it replaces the method of that name.
type lookupOverride struct {
	*memchain.Chain
	byHash  func(context.Context, chaingql.Hash) (block, error)
	bySeqNo func(context.Context, int32, uint64, uint32) (block, error)
	byTime  func(context.Context, time.Time) (block, error)
}

func (l lookupOverride) BlockByHash(ctx context.Context, hash chaingql.Hash) (block, error) {
	if l.byHash == nil {
		return l.Chain.BlockByHash(ctx, hash)
	}
	return l.byHash(ctx, hash)
}

func (l lookupOverride) BlockBySeqNo(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
	if l.bySeqNo == nil {
		return l.Chain.BlockBySeqNo(ctx, w, shard, n)
	}
	return l.bySeqNo(ctx, w, shard, n)
}

func (l lookupOverride) MasterBlockByTime(ctx context.Context, at time.Time) (block, error) {
	if l.byTime == nil {
		return l.Chain.MasterBlockByTime(ctx, at)
	}
	return l.byTime(ctx, at)
}

func changeByHash(find func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error)) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = lookupOverride{Chain: c, byHash: func(ctx context.Context, hash chaingql.Hash) (block, error) {
			return find(c, ctx, hash)
		}}
	}
}

func changeBySeqNo(
	find func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error),
) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		bySeqNo := func(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			return find(c, ctx, w, shard, n)
		}
		h.Backend = lookupOverride{Chain: c, bySeqNo: bySeqNo}
	}
}

func changeByTime(find func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error)) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = lookupOverride{Chain: c, byTime: func(ctx context.Context, at time.Time) (block, error) {
			return find(c, ctx, at)
		}}
	}
}

// remembered breaks all lookups by number: they remember results for ever, found or not.
func remembered(c *memchain.Chain, keep func(error) bool) breakFunc {
	return func(_ context.Context, _ *memchain.Chain, h *Harness) {
		type key struct {
			w     int32
			shard uint64
			n     uint32
		}
		type result struct {
			b   block
			err error
		}
		var known sync.Map
		bySeqNo := func(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			if r, ok := known.Load(key{w, shard, n}); ok {
				return r.(result).b, errors.Join(r.(result).err, ctx.Err())
			}
			b, err := c.BlockBySeqNo(ctx, w, shard, n)
			if keep(err) {
				known.Store(key{w, shard, n}, result{b, err})
			}
			return b, err
		}
		h.Backend = lookupOverride{Chain: c, bySeqNo: bySeqNo}
	}
}

// appendLater returns a chain to which h appends each block a little later than to c.
func appendLater(c *memchain.Chain, h *Harness) *memchain.Chain {
	later := memchain.New()
	h.Append = func(blocks []block) error {
		err := c.Append(blocks...)
		time.Sleep(time.Millisecond)
		return errors.Join(err, later.Append(blocks...))
	}
	return later
}

const mustBeNotFound = "the error must be ErrBlockNotFound because no such block is stored"

// brokenLookups have wrong BlockByHash, BlockBySeqNo or MasterBlockByTime.
var brokenLookups = []brokenBackend{
	{"BlockByHash returns an empty block for an unknown hash", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			b, err := c.BlockByHash(ctx, hash)
			if errors.Is(err, chaingql.ErrBlockNotFound) {
				err = nil
			}
			return b, err
		}), mustBeNotFound},
	{"BlockByHash returns ErrNotFound", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			b, err := c.BlockByHash(ctx, hash)
			if errors.Is(err, chaingql.ErrBlockNotFound) {
				err = chaingql.ErrNotFound
			}
			return b, err
		}), mustBeNotFound},
	{"BlockByHash compares only the first bytes of the hash", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			all, _ := c.Blocks(ctx, query{First: 1000})
			for _, b := range all {
				if [30]byte(b.Hash[:30]) == [30]byte(hash[:30]) {
					return b, ctx.Err()
				}
			}
			return c.BlockByHash(ctx, hash)
		}), mustBeNotFound},
	{"BlockByHash searches only the newest 100 blocks", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			newest, _ := c.Blocks(ctx, query{Last: 100})
			for _, b := range newest {
				if b.Hash == hash {
					return b, ctx.Err()
				}
			}
			return block{}, errors.Join(chaingql.ErrBlockNotFound, ctx.Err())
		}), "failed: chaingql: block not found"},
	{"BlockByHash returns blocks without a cursor", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			b, err := c.BlockByHash(ctx, hash)
			b.Cursor = ""
			return b, err
		}), `returned cursor "", but the block has`},
	{"BlockByHash ignores its context", changeByHash(
		func(c *memchain.Chain, _ context.Context, hash chaingql.Hash) (block, error) {
			return c.BlockByHash(context.Background(), hash)
		}), "BlockByHash with a done context returned no error"},
	{"BlockBySeqNo ignores the shard", changeBySeqNo(
		func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			b, err := c.BlockBySeqNo(ctx, w, shard, n)
			if errors.Is(err, chaingql.ErrBlockNotFound) {
				all, _ := c.Blocks(ctx, query{Workchain: &w, First: 1000})
				for _, b := range all {
					if b.SeqNo == n {
						return b, nil
					}
				}
			}
			return b, err
		}), mustBeNotFound},
	{"BlockBySeqNo ignores the workchain", changeBySeqNo(
		func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			for _, w := range []int32{w, 0, -1} {
				if b, err := c.BlockBySeqNo(ctx, w, shard, n); err == nil {
					return b, nil
				}
			}
			return c.BlockBySeqNo(ctx, w, shard, n)
		}), mustBeNotFound},
	{"BlockBySeqNo returns blocks of the parent before a split", changeBySeqNo(
		func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			b, err := c.BlockBySeqNo(ctx, w, shard, n)
			if own := shard & -shard; errors.Is(err, chaingql.ErrBlockNotFound) && own<<1 != 0 {
				return c.BlockBySeqNo(ctx, w, shard&^own|own<<1, n)
			}
			return b, err
		}), mustBeNotFound},
	{"BlockBySeqNo truncates the number to 31 bits", changeBySeqNo(
		func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			return c.BlockBySeqNo(ctx, w, shard, n&(1<<31-1))
		}), mustBeNotFound},
	{"BlockBySeqNo never finds number 0", changeBySeqNo(
		func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			if n == 0 {
				return block{}, errors.Join(chaingql.ErrBlockNotFound, ctx.Err())
			}
			return c.BlockBySeqNo(ctx, w, shard, n)
		}), "number 0) failed: chaingql: block not found"},
	{"BlockBySeqNo returns the next block if the number is unknown", changeBySeqNo(
		func(c *memchain.Chain, ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
			for ; n < 10; n++ {
				if b, err := c.BlockBySeqNo(ctx, w, shard, n); err == nil {
					return b, nil
				}
			}
			return c.BlockBySeqNo(ctx, w, shard, n)
		}), mustBeNotFound},
	{"lookups remember that a block was unknown", func(ctx context.Context, c *memchain.Chain, h *Harness) {
		remembered(c, func(err error) bool { return errors.Is(err, chaingql.ErrBlockNotFound) })(ctx, c, h)
	}, "failed: chaingql: block not found"},
	{"lookups find blocks that were pruned", func(ctx context.Context, c *memchain.Chain, h *Harness) {
		remembered(c, func(err error) bool { return err == nil })(ctx, c, h)
		kept := memchain.New()
		h.Append = func(blocks []block) error { return errors.Join(kept.Append(blocks...), c.Append(blocks...)) }
		h.Backend = lookupOverride{Chain: c, byHash: func(ctx context.Context, hash chaingql.Hash) (block, error) {
			return kept.BlockByHash(ctx, hash)
		}}
	}, mustBeNotFound},
	{"after a restart, lookups find blocks that were pruned", func(_ context.Context, c *memchain.Chain, h *Harness) {
		kept := memchain.New()
		h.Append = func(blocks []block) error { return errors.Join(kept.Append(blocks...), c.Append(blocks...)) }
		h.Reopen = func() (chaingql.Backend, error) {
			return lookupOverride{Chain: c, byHash: kept.BlockByHash}, nil
		}
	}, mustBeNotFound},
	{"one of 700 lookups fails", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var found atomic.Int64
		h.Backend = lookupOverride{Chain: c, byHash: func(ctx context.Context, hash chaingql.Hash) (block, error) {
			b, err := c.BlockByHash(ctx, hash)
			if err == nil && found.Add(1)%700 == 0 {
				return block{}, chaingql.ErrBlockNotFound
			}
			return b, err
		}}
	}, "failed: chaingql: block not found"},
	{"lookups find a new block later than Follow yields it", func(_ context.Context, c *memchain.Chain, h *Harness) {
		later := appendLater(c, h)
		h.Backend = lookupOverride{Chain: c, byHash: later.BlockByHash}
	}, "BlockByHash, BlockBySeqNo and MasterBlockByTime find each block that Follow has yielded: BlockByHash("},
	{"MasterBlockByTime finds a new block later than Follow yields it", func(
		_ context.Context, c *memchain.Chain, h *Harness,
	) {
		later := appendLater(c, h)
		h.Backend = lookupOverride{Chain: c, byTime: later.MasterBlockByTime}
	}, "BlockByHash, BlockBySeqNo and MasterBlockByTime find each block that Follow has yielded: MasterBlockByTime("},
	{"BlockByHash reads the cursor and then the block", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			b, err := c.BlockByHash(ctx, hash)
			if err != nil {
				return b, err
			}
			pace()
			all, err := c.Blocks(ctx, query{First: 100_000})
			i := slices.IndexFunc(all, func(other block) bool { return other.Cursor == b.Cursor })
			if err != nil || i < 0 {
				return block{}, errors.Join(errors.New("no rows"), err)
			}
			return all[i], nil
		}), "BlockByHash, BlockBySeqNo and MasterBlockByTime are correct while blocks are pruned: BlockByHash("},
	{"MasterBlockByTime reads the hash and then the block", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			b, err := c.MasterBlockByTime(ctx, at)
			if err != nil {
				return b, err
			}
			pace()
			return c.BlockByHash(ctx, b.Hash)
		}), "BlockByHash, BlockBySeqNo and MasterBlockByTime are correct while blocks are pruned: MasterBlockByTime("},
	{"BlockBySeqNo ignores its context during a stall", func(_ context.Context, c *memchain.Chain, h *Harness) {
		s := stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}])}
		h.Stall = s.stall
		h.Backend = blockedLookup{s}
	}, "BlockBySeqNo, whose context expired while the source was stalled, did not return"},
	{"after a restart, lookups find only new blocks", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			return lookupOverride{Chain: c, byHash: memchain.New().BlockByHash}, nil
		}
	}, "failed: chaingql: block not found"},
	{"MasterBlockByTime takes the time for an unsigned number", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			return c.MasterBlockByTime(ctx, time.Unix(int64(uint32(at.Unix())), 0))
		}), "MasterBlockByTime(-1) failed"},
	{"MasterBlockByTime returns the last block before the time", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			b, err := c.MasterBlockByTime(ctx, at)
			if err != nil || b.Time.Equal(at) {
				return b, err
			}
			w := int32(masterchain)
			if page, _ := c.Blocks(ctx, query{Workchain: &w, Before: b.Cursor, Last: 1}); len(page) > 0 {
				return page[0], nil
			}
			return b, nil
		}), "MasterBlockByTime(1700000005) returned cursor"},
	{"MasterBlockByTime excludes the time itself", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			return c.MasterBlockByTime(ctx, at.Add(time.Second))
		}), "MasterBlockByTime(1700000004) returned cursor"},
	{"MasterBlockByTime returns the last block of those with the same time", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			b, err := c.MasterBlockByTime(ctx, at)
			w := int32(masterchain)
			next, _ := c.Blocks(ctx, query{Workchain: &w, After: b.Cursor, First: 1})
			if err == nil && len(next) > 0 && next[0].Time.Equal(b.Time) {
				return next[0], nil
			}
			return b, err
		}), "MasterBlockByTime(0) returned cursor"},
	{"MasterBlockByTime returns the newest block for a later time", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			b, err := c.MasterBlockByTime(ctx, at)
			w := int32(masterchain)
			if page, _ := c.Blocks(ctx, query{Workchain: &w, Last: 1}); err != nil && len(page) > 0 {
				return page[0], ctx.Err()
			}
			return b, err
		}), mustBeNotFound},
	{"MasterBlockByTime returns blocks of shards", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			all, _ := c.Blocks(ctx, query{First: 1000})
			for _, b := range all {
				if !b.Time.Before(at) {
					return b, nil
				}
			}
			return c.MasterBlockByTime(ctx, at)
		}), "MasterBlockByTime(0) returned cursor"},
}

// blockedLookup is a stallable. Its BlockBySeqNo ignores its context while the source is stalled.
type blockedLookup struct{ stallable }

func (s blockedLookup) BlockBySeqNo(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
	if err := s.wait(context.WithoutCancel(ctx)); err != nil {
		return block{}, err
	}
	return s.Chain.BlockBySeqNo(ctx, w, shard, n)
}
