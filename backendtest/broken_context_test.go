package backendtest

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// nextRow waits for a row of a result, and reports whether it arrived before the context ended, like Next of
// database/sql and pgx.
func nextRow(ctx context.Context) bool {
	time.Sleep(time.Microsecond)
	return ctx.Err() == nil
}

// brokenCalls ignore that their context ended while they read: they do not check rows.Err().
var brokenCalls = []brokenBackend{
	{"Blocks returns the blocks that it has read so far", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			for i := range page {
				if !nextRow(ctx) {
					return page[:i], nil
				}
			}
			return page, err
		}}
	}, "whose context ended during the call, omitted cursor"},
	{"Blocks with Last returns the blocks read so far", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			for i := len(page); i > 0 && q.Last > 0; i-- {
				if !nextRow(ctx) {
					return page[i:], nil
				}
			}
			return page, err
		}}
	}, "Last 1000), whose context ended during the call, omitted cursor"},
	{"Blocks returns ErrCursorTooOld if its context ends", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			page, err := c.Blocks(ctx, q)
			for range page {
				if !nextRow(ctx) {
					return nil, chaingql.ErrCursorTooOld
				}
			}
			return page, err
		}}
	}, "whose context ended during the call, returned error " + chaingql.ErrCursorTooOld.Error()},
	{"Balances returns nil for the accounts not read", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = batchOverride{c, func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			found, err := c.Balances(ctx, addrs)
			for i := range found {
				if !nextRow(ctx) {
					clear(found[i:])
					return found, nil
				}
			}
			return found, err
		}}
	}, "Balances, whose context ended during the call, returned <nil> for "},
	{"Balance returns ErrNotFound if its context ends", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			if nano, err := c.Balance(ctx, addr); err != nil || nextRow(ctx) {
				return nano, err
			}
			return nil, chaingql.ErrNotFound
		}}
	}, "Balance, whose context ended during the call, returned error " + chaingql.ErrNotFound.Error()},
	{"Balance returns zero if its context ends", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			if nano, err := c.Balance(ctx, addr); err != nil || nextRow(ctx) {
				return nano, err
			}
			return new(big.Int), nil
		}}
	}, "Balance, whose context ended during the call, returned 0, want "},
	{"BlockByHash returns ErrBlockNotFound if its context ends", changeByHash(
		func(c *memchain.Chain, ctx context.Context, hash chaingql.Hash) (block, error) {
			if b, err := c.BlockByHash(ctx, hash); err != nil || nextRow(ctx) {
				return b, err
			}
			return block{}, chaingql.ErrBlockNotFound
		}), "BlockByHash, whose context ended during the call, returned error chaingql: block not found"},
	{"MasterBlockByTime returns no block if its context ends", changeByTime(
		func(c *memchain.Chain, ctx context.Context, at time.Time) (block, error) {
			if b, err := c.MasterBlockByTime(ctx, at); err != nil || nextRow(ctx) {
				return b, err
			}
			return block{}, nil
		}), `MasterBlockByTime, whose context ended during the call, returned cursor ""`},
	{"after an interruption, Balance returns ErrNotFound", func(_ context.Context, c *memchain.Chain, h *Harness) {
		interrupted := false
		h.Interrupt = func() { interrupted = true; c.Interrupt(nil) }
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			if nano, err := c.Balance(ctx, addr); err != nil || !interrupted {
				return nano, err
			}
			return nil, errors.Join(chaingql.ErrNotFound, ctx.Err())
		}}
	}, "Balance, repeated after the source was interrupted, returned error"},
}
