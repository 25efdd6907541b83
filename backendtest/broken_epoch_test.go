package backendtest

import (
	"context"
	"fmt"
	"sync/atomic"

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
	}, "it must change only if the chain is made again"},
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
}
