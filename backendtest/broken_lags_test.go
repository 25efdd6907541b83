package backendtest

import (
	"context"

	"github.com/chaingql/chaingql/memchain"
)

// laterPages breaks the pages of the queries that it selects: they have a new block a little later than Follow yields
// it. Append returns after that.
func laterPages(selects func(query) bool) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		later := appendLater(c, h)
		h.Prune, h.Replace = nil, nil // later would lack these changes
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if selects(q) {
				return later.Blocks(ctx, q)
			}
			return c.Blocks(ctx, q)
		}}
	}
}

// brokenLags have indexes that are written later than Follow yields a block.
var brokenLags = []brokenBackend{
	{"pages without a filter lag behind Follow", laterPages(unfiltered), lagRule + "Blocks(Last 1) omitted cursor"},
	{"pages of a shard lag behind Follow", laterPages(func(q query) bool {
		return q.Shard != nil && q.Workchain == nil
	}), lagRule + "Blocks(Shard "},
	{"pages of a workchain lag behind Follow", laterPages(func(q query) bool {
		return q.Shard == nil && q.Workchain != nil
	}), lagRule + "Blocks(Workchain "},
	{"pages of a workchain and a shard lag behind Follow", laterPages(func(q query) bool {
		return q.Shard != nil && q.Workchain != nil
	}), lagRule + "Blocks(Workchain "},
	{"pages of a workchain after a cursor lag behind Follow", laterPages(func(q query) bool {
		return q.Workchain != nil && q.After != ""
	}), lagRule + "Blocks(Workchain "},
}

const lagRule = "Blocks returns each block that Follow has yielded: "
