package backendtest

import (
	"cmp"
	"context"
	"errors"
	"math/big"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A lazyEpoch notices a new chain only in its calls, like a Backend that reads from a database.
type lazyEpoch struct {
	*memchain.Chain
	known *atomic.Pointer[string]
}

func newLazyEpoch(c *memchain.Chain) lazyEpoch {
	l := lazyEpoch{c, new(atomic.Pointer[string])}
	epoch := c.Epoch()
	l.known.Store(&epoch)
	return l
}

func (l lazyEpoch) Epoch() string { return *l.known.Load() }

// notice returns the result of a call that began when the epoch was had.
func notice[T any](l lazyEpoch, had *string, got T, err error) (T, error) {
	if now := l.Chain.Epoch(); now != *had {
		l.known.CompareAndSwap(had, &now)
		return *new(T), chaingql.ErrChainReplaced
	}
	return got, err
}

func (l lazyEpoch) Blocks(ctx context.Context, q query) ([]block, error) {
	had := l.known.Load()
	page, err := l.Chain.Blocks(ctx, q)
	return notice(l, had, page, err)
}

func (l lazyEpoch) Follow(ctx context.Context, after chaingql.Cursor) seq {
	had := l.known.Load()
	return chaingql.Poll(ctx, func(ctx context.Context, q query) ([]block, error) {
		page, err := l.Chain.Blocks(ctx, q)
		return notice(l, had, page, err)
	}, cmp.Or(after, "0"), time.Millisecond)
}

func (l lazyEpoch) BlockByHash(ctx context.Context, hash chaingql.Hash) (block, error) {
	had := l.known.Load()
	b, err := l.Chain.BlockByHash(ctx, hash)
	return notice(l, had, b, err)
}

func (l lazyEpoch) BlockBySeqNo(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
	had := l.known.Load()
	b, err := l.Chain.BlockBySeqNo(ctx, w, shard, n)
	return notice(l, had, b, err)
}

func (l lazyEpoch) MasterBlockByTime(ctx context.Context, at time.Time) (block, error) {
	had := l.known.Load()
	b, err := l.Chain.MasterBlockByTime(ctx, at)
	return notice(l, had, b, err)
}

// A lateHash is a lazyEpoch whose BlockByHash does not find blocks of a chain that was replaced.
type lateHash struct{ lazyEpoch }

func (l lateHash) BlockByHash(ctx context.Context, hash chaingql.Hash) (block, error) {
	b, err := l.Chain.BlockByHash(ctx, hash)
	if errors.Is(err, chaingql.ErrBlockNotFound) {
		return b, err
	}
	return l.lazyEpoch.BlockByHash(ctx, hash)
}

// A lateTime is a lazyEpoch whose MasterBlockByTime does not notice a new chain.
type lateTime struct{ lazyEpoch }

func (l lateTime) MasterBlockByTime(ctx context.Context, at time.Time) (block, error) {
	return l.Chain.MasterBlockByTime(ctx, at)
}

// A waitingEpoch is a stallable. Its Epoch waits for the source.
type waitingEpoch struct{ stallable }

func (w waitingEpoch) Epoch() string {
	_ = w.wait(context.Background())
	return w.Chain.Epoch()
}

// A twoConnections is a chain. Some of its calls need two of the two connections to its source.
type twoConnections struct {
	*memchain.Chain
	free chan struct{}
}

// use takes both connections, calls f and returns the connections.
func (p twoConnections) use(ctx context.Context, f func()) error {
	for n := range 2 {
		select {
		case p.free <- struct{}{}:
			defer func() { <-p.free }()
			time.Sleep(time.Duration(1-n) * time.Millisecond)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f()
	return nil
}

// brokenReplacements do not notice that the chain was replaced, or wait without end.
var brokenReplacements = []brokenBackend{
	{"after a restart, the epoch is that of the first chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		first := c.Epoch()
		h.Reopen = func() (chaingql.Backend, error) { return withEpoch(c, first), nil }
	}, "a restart does not change the epoch: Epoch returned"},
	{"Epoch waits for a stalled source", func(_ context.Context, c *memchain.Chain, h *Harness) {
		s := stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}])}
		h.Backend, h.Stall = waitingEpoch{s}, s.stall
	}, "Epoch, called while the source was stalled, did not return within"},
	{"BlockByHash finds no block of a replaced chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = lateHash{newLazyEpoch(c)}
	}, "block not found after the chain was replaced: it must return ErrChainReplaced"},
	{"MasterBlockByTime does not notice a new chain", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = lateTime{newLazyEpoch(c)}
	}, "the first call after the chain was replaced returns ErrChainReplaced: MasterBlockByTime("},
	{"Blocks never returns if the chain is replaced", func(ctx context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(_ context.Context, q query) ([]block, error) {
			epoch := c.Epoch()
			page, err := c.Blocks(ctx, q)
			if time.Sleep(5 * time.Millisecond); c.Epoch() != epoch { // so long that Replace meets such a call
				<-ctx.Done() // the end of the test
			}
			return page, err
		}}
	}, ", while the chain was replaced, did not return within"},
	{"Follow never returns if the chain is replaced", func(ctx context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, follow: func(until context.Context, after chaingql.Cursor) seq {
			return func(yield func(block, error) bool) {
				for b, err := range c.Follow(until, after) {
					if errors.Is(err, chaingql.ErrChainReplaced) {
						<-ctx.Done() // the end of the test
						runtime.Goexit()
					}
					if !yield(b, err) {
						return
					}
				}
			}
		}}
	}, "no page and no Follow has blocks of two chains: a call whose context was canceled after"},
	{"MasterBlockByTime waits for a second connection", func(_ context.Context, c *memchain.Chain, h *Harness) {
		p := twoConnections{c, make(chan struct{}, 2)}
		byTime := func(ctx context.Context, at time.Time) (b block, err error) {
			failure := p.use(ctx, func() { b, err = c.MasterBlockByTime(ctx, at) })
			return b, cmp.Or(err, failure)
		}
		h.Backend = lookupOverride{Chain: c, byTime: byTime}
	}, ", while blocks were pruned, did not return within"},
	{"Balance waits for a second connection", func(_ context.Context, c *memchain.Chain, h *Harness) {
		p := twoConnections{c, make(chan struct{}, 2)}
		h.Backend = override{Chain: c, balance: func(ctx context.Context, a chaingql.Address) (v *big.Int, err error) {
			failure := p.use(ctx, func() { v, err = c.Balance(ctx, a) })
			return v, cmp.Or(err, failure)
		}}
	}, ", while balances were set, did not return within"},
}
