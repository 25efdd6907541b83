package backendtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// An epochOverride is an override with another epoch.
type epochOverride struct {
	override
	epoch func() string
}

func (e epochOverride) Epoch() string { return e.epoch() }

func withEpoch(c *memchain.Chain, epoch string) epochOverride {
	return epochOverride{override{Chain: c}, func() string { return epoch }}
}

// brokenEpochs have a wrong Epoch.
var brokenEpochs = []brokenBackend{
	{"an epoch has other characters", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = withEpoch(c, "one two")
	}, "it must return 1 to 32 letters and digits"},
	{"each call of Epoch returns another one", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var calls atomic.Int64
		h.Backend = epochOverride{override{Chain: c}, func() string { return fmt.Sprint(calls.Add(1)) }}
	}, "it must change only if the chain is replaced"},
	{"cursors have a ~", func(_ context.Context, c *memchain.Chain, h *Harness) {
		b := withEpoch(c, "one")
		b.blocks = func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			for i := range page {
				page[i].Cursor += "~"
			}
			return page, err
		}
		h.Backend = b
	}, `must not contain "~"`},
	{"a restart changes the epoch", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = withEpoch(c, "one")
		h.Reopen = func() (chaingql.Backend, error) { return withEpoch(c, "two"), nil }
	}, "and, after a restart"},
	{"no call notices that the chain was replaced", func(_ context.Context, c *memchain.Chain, h *Harness) {
		b := withEpoch(c, "one")
		b.follow = func(ctx context.Context, after chaingql.Cursor) seq {
			return chaingql.Poll(ctx, c.Blocks, cmp.Or(after, "0"), time.Millisecond)
		}
		h.Backend = b
	}, "but Epoch returned \"one\" all the time"},
	{"a chain that can be replaced has no epoch", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = withEpoch(c, "")
	}, "has no epoch, so clients cannot recognize a new chain"},
	{"Epoch changes after ErrChainReplaced", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = newLateEpoch(c)
	}, "it must return the new epoch first"},
	{"a page is read with two statements", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if q.First < 2 {
				return c.Blocks(ctx, q)
			}
			half := q
			half.First = q.First / 2
			page, err := c.Blocks(ctx, half)
			if err != nil || len(page) < half.First {
				return page, err
			}
			time.Sleep(20 * time.Millisecond)
			q.First, q.After = q.First-half.First, page[len(page)-1].Cursor
			rest, err := c.Blocks(ctx, q)
			return append(page, rest...), err
		}}
	}, "which are of two chains"},
	{"Follow polls pages of any chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return chaingql.Poll(ctx, c.Blocks, cmp.Or(after, "0"), time.Millisecond)
		}}
		h.Interrupt = nil
	}, "a block of the old chain: it must yield ErrChainReplaced"},
	{"Blocks checks its cursor before the epoch", func(_ context.Context, c *memchain.Chain, h *Harness) {
		b := newLateEpoch(c)
		h.Backend = earlyCursorCheck{b}
	}, "ended with error chaingql: cursor is older than the retained history after the chain was replaced"},
	{
		"Follow waits for blocks of a replaced chain",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool {
				if errors.Is(err, chaingql.ErrChainReplaced) {
					<-ctx.Done()
					err = ctx.Err()
				}
				return yield(b, err)
			})
		}),
		"want ErrChainReplaced, because the chain was replaced",
	},
	{
		"Follow reports that blocks of a replaced chain were pruned",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool {
				if errors.Is(err, chaingql.ErrChainReplaced) {
					err = chaingql.ErrCursorTooOld
				}
				return yield(b, err)
			})
		}),
		"failed while the chain was replaced: chaingql: cursor is older than the retained history",
	},
	{"BlockByHash finds blocks of the chain before", func(_ context.Context, c *memchain.Chain, h *Harness) {
		b := &rememberingHashes{Chain: c}
		h.Backend = b
	}, "of a block of the old chain, returned cursor"},
	{"MasterBlockByTime finds blocks of the chain before", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var found sync.Map
		h.Backend = lookupOverride{Chain: c, byTime: func(ctx context.Context, at time.Time) (block, error) {
			if old, ok := found.Load(at); ok { // pruned blocks are recognized
				b := old.(block)
				if _, err := c.BlockBySeqNo(ctx, b.Workchain, b.Shard, b.SeqNo); err == nil {
					return b, nil
				}
			}
			b, err := c.MasterBlockByTime(ctx, at)
			if err == nil {
				found.Store(at, b)
			}
			return b, err
		}}
	}, "the first call after the chain was replaced returns ErrChainReplaced: MasterBlockByTime("},
}

// A lateEpoch notices a new chain in all calls, but its Epoch changes only after a call of Blocks.
type lateEpoch struct {
	*memchain.Chain
	known atomic.Pointer[string]
}

func newLateEpoch(c *memchain.Chain) *lateEpoch {
	b := &lateEpoch{Chain: c}
	epoch := c.Epoch()
	b.known.Store(&epoch)
	return b
}

func (b *lateEpoch) Epoch() string { return *b.known.Load() }

func (b *lateEpoch) Blocks(ctx context.Context, q query) ([]block, error) {
	if now := b.Chain.Epoch(); now != b.Epoch() {
		b.known.Store(&now)
		return nil, chaingql.ErrChainReplaced
	}
	return b.Chain.Blocks(ctx, q)
}

// An earlyCursorCheck is a lateEpoch that returns ErrCursorTooOld before it checks the epoch.
type earlyCursorCheck struct{ *lateEpoch }

func (b earlyCursorCheck) Blocks(ctx context.Context, q query) ([]block, error) {
	if page, err := b.Chain.Blocks(ctx, q); errors.Is(err, chaingql.ErrCursorTooOld) {
		return page, err
	}
	return b.lateEpoch.Blocks(ctx, q)
}

// rememberingHashes is a chain with a BlockByHash that remembers each block that it has found.
type rememberingHashes struct {
	*memchain.Chain
	found sync.Map
}

func (b *rememberingHashes) BlockByHash(ctx context.Context, hash chaingql.Hash) (block, error) {
	if old, ok := b.found.Load(hash); ok {
		return old.(block), ctx.Err()
	}
	found, err := b.Chain.BlockByHash(ctx, hash)
	if err == nil {
		b.found.Store(hash, found)
	}
	return found, err
}
