package backendtest

import (
	"context"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// busyChain is a chain. Its method named waits does not return while the caller of a Follow is busy with a block.
type busyChain struct {
	*memchain.Chain
	waits   string
	onlyNew bool          // the method does not wait for callers that are busy with blocks that were stored before
	busy    *atomic.Int64 // number of calls of Follow for which the method waits
}

// waitsForFollow breaks the method.
func waitsForFollow(method string, onlyNew bool) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Prune, h.Replace = nil, nil // their rules call some methods while they do not read from a Follow
		h.Backend = busyChain{c, method, onlyNew, new(atomic.Int64)}
	}
}

func (c busyChain) wait(ctx context.Context, method string) error {
	for method == c.waits && c.busy.Load() > 0 && ctx.Err() == nil {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (c busyChain) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if err := c.wait(ctx, "Balance"); err != nil {
		return nil, err
	}
	return c.Chain.Balance(ctx, addr)
}

func (c busyChain) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	if err := c.wait(ctx, "Balances"); err != nil {
		return nil, err
	}
	return c.Chain.Balances(ctx, addrs)
}

func (c busyChain) Blocks(ctx context.Context, q query) ([]block, error) {
	if err := c.wait(ctx, "Blocks"); err != nil {
		return nil, err
	}
	return c.Chain.Blocks(ctx, q)
}

func (c busyChain) BlockByHash(ctx context.Context, hash chaingql.Hash) (block, error) {
	if err := c.wait(ctx, "BlockByHash"); err != nil {
		return block{}, err
	}
	return c.Chain.BlockByHash(ctx, hash)
}

func (c busyChain) BlockBySeqNo(ctx context.Context, w int32, shard uint64, n uint32) (block, error) {
	if err := c.wait(ctx, "BlockBySeqNo"); err != nil {
		return block{}, err
	}
	return c.Chain.BlockBySeqNo(ctx, w, shard, n)
}

func (c busyChain) MasterBlockByTime(ctx context.Context, at time.Time) (block, error) {
	if err := c.wait(ctx, "MasterBlockByTime"); err != nil {
		return block{}, err
	}
	return c.Chain.MasterBlockByTime(ctx, at)
}

func (c busyChain) Follow(ctx context.Context, after chaingql.Cursor) seq {
	return func(yield yieldFunc) {
		var stored []block // the newest block of those for which the method does not wait
		if c.onlyNew {
			stored, _ = c.Chain.Blocks(ctx, query{Last: 1})
		}
		c.Chain.Follow(ctx, after)(func(b block, err error) bool {
			if len(stored) == 0 || b.Cursor > stored[0].Cursor {
				c.busy.Add(1)
				defer c.busy.Add(-1)
			}
			return yield(b, err)
		})
	}
}

// brokenBusy have a method that waits until the caller of a Follow is not busy.
var brokenBusy = []brokenBackend{
	{"Blocks waits while the caller of a Follow is busy", waitsForFollow("Blocks", false),
		busyRule + "Blocks(First 1), repeated while the caller of a Follow was busy, failed: "},
	{"Blocks waits while the caller of a Follow is busy with a new block", waitsForFollow("Blocks", true),
		busyRule + "Blocks(First 1), repeated while the caller of a Follow was busy, failed: "},
	{"Balance waits while the caller of a Follow is busy", waitsForFollow("Balance", false),
		busyRule + "Balance, repeated"},
	{"Balance waits while the caller of a Follow is busy with a new block", waitsForFollow("Balance", true),
		busyRule + "Balance, repeated"},
	{"Balances waits while the caller of a Follow is busy", waitsForFollow("Balances", false),
		busyRule + "Balances, repeated"},
	{"BlockByHash waits while the caller of a Follow is busy", waitsForFollow("BlockByHash", false),
		busyRule + "BlockByHash, repeated"},
	{"BlockBySeqNo waits while the caller of a Follow is busy", waitsForFollow("BlockBySeqNo", false),
		busyRule + "BlockBySeqNo, repeated"},
	{"MasterBlockByTime waits while the caller of a Follow is busy", waitsForFollow("MasterBlockByTime", false),
		busyRule + "MasterBlockByTime, repeated"},
}

const busyRule = "no call waits while the caller of a Follow is busy: "
