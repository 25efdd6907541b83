package backendtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A pruneRecord remembers the newest pruned block.
type pruneRecord struct {
	mu     sync.Mutex
	newest chaingql.Cursor
}

func (r *pruneRecord) newestPruned() chaingql.Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// record notes that the blocks of c before a cursor are pruned.
func (r *pruneRecord) record(c *memchain.Chain, before chaingql.Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, _ := c.Blocks(context.Background(), query{Last: 1, Before: before}); len(last) > 0 {
		r.newest = last[0].Cursor
	}
}

// changePruned returns a Backend with another behavior after pruning.
func changePruned(breaks func(r *pruneRecord, c *memchain.Chain) override) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		r := new(pruneRecord)
		h.Prune = func(before chaingql.Cursor) error {
			if newest, _ := c.Blocks(context.Background(), query{Last: 1}); len(newest) > 0 {
				before = min(before, newest[0].Cursor)
			}
			r.record(c, before)
			c.Prune(before)
			return nil
		}
		b := breaks(r, c)
		b.Chain = c
		h.Backend = b
	}
}

func tooOld(yield func(block, error) bool) { yield(block{}, chaingql.ErrCursorTooOld) }

var brokenPrunes = []brokenBackend{
	{"newest pruned cursor too old for Blocks", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if newest := r.newestPruned(); q.After != "" && q.After == newest {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "the newest pruned block's own cursor is not too old: Blocks(After"},
	{"newest pruned cursor too old for Follow", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if newest := r.newestPruned(); after != "" && after == newest {
				return tooOld
			}
			return c.Follow(ctx, after)
		}}
	}), "the newest pruned block's own cursor is not too old: Follow(after"},
	{"pages of a shard from pruned cursors", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if newest := r.newestPruned(); q.Shard != nil && q.After != "" {
				q.After = max(q.After, newest)
			}
			return c.Blocks(ctx, q)
		}}
	}), "pruned history is ErrCursorTooOld: Blocks("},
	{"ErrCursorTooOld for a page from \"\"", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if q.After == "" && r.newestPruned() != "" {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "a page without After begins with the oldest block kept: Blocks("},
	{
		"a Follow from \"\" that begins with the oldest block kept",
		changePruned(func(r *pruneRecord, c *memchain.Chain) override {
			return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
				if after == "" {
					after = r.newestPruned()
				}
				return c.Follow(ctx, after)
			}}
		}),
		"a Follow from the start is too old once a block is pruned: Follow(after \"\")",
	},
	{"a Follow from \"\" by Poll", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
		return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return chaingql.Poll(ctx, c.Blocks, after, time.Millisecond)
		}}
	}), "a Follow from the start is too old once a block is pruned: Follow(after \"\")"},
	{
		"a Follow from \"\" that checks for pruned blocks only at its start",
		changePruned(func(r *pruneRecord, c *memchain.Chain) override {
			return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
				if after == "" && r.newestPruned() != "" {
					return tooOld
				}
				// The interval is longer than the rule waits before it prunes.
				return chaingql.Poll(ctx, c.Blocks, after, 3*time.Millisecond)
			}}
		}),
		"a Follow that pruning overtakes does not skip: Follow(after \"\") skipped",
	},
	{"a chain that loses its newest block", func(_ context.Context, c *memchain.Chain, h *Harness) {
		r := new(pruneRecord) // c keeps all blocks
		h.Prune = func(before chaingql.Cursor) error {
			r.record(c, before)
			return nil
		}
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			switch newest := r.newestPruned(); {
			case q.After == "":
				q.After = newest
			case q.After < newest:
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}, follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if after < r.newestPruned() {
				return tooOld
			}
			return c.Follow(ctx, after)
		}}
	}, "the newest block is never pruned: Blocks("},
	{"a chain that forgets pruning when it is reopened", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			kept, err := c.Blocks(context.Background(), query{First: 1000})
			if err != nil {
				return nil, err
			}
			again := memchain.New()
			return again, again.Append(kept...)
		}
	}, "what was pruned is remembered after a restart: Blocks("},
	{"pages with a race between check and read", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			return checkThenRead(ctx, c, q, pace)
		}}
	}), "while blocks were pruned, leaves out cursor"},
	{"a Follow with a race between check and read", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
		return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			blocks := func(ctx context.Context, q query) ([]block, error) { return checkThenRead(ctx, c, q, pace) }
			return chaingql.Poll(ctx, blocks, after, time.Millisecond)
		}}
	}), "pages and Follows hold while blocks are pruned: Follow"},
}

func pace() { time.Sleep(time.Millisecond) }

// checkThenRead first checks whether the cursor is too old and then reads the page, without a common transaction.
func checkThenRead(ctx context.Context, c *memchain.Chain, q query, between func()) ([]block, error) {
	if _, err := c.Blocks(ctx, query{First: 1, After: q.After}); err != nil {
		return nil, err
	}
	between()
	page, err := c.Blocks(ctx, query{First: 100_000})
	if err != nil {
		return nil, err
	}
	return chaingql.PageOf(page, q), nil
}

// The rule must find the race even without a pause between check and read. Each run has about 500 chances to meet it
// (none of 1,000 runs missed it). A machine that is busy enough to miss it finds it in the next run.
func TestPruneBetweenCheckAndReadIsReported(t *testing.T) {
	i := slices.IndexFunc(rules, func(ru rule) bool {
		return ru.name == "pages and Follows hold while blocks are pruned"
	})
	for range 3 {
		found := false
		for attempt := 0; attempt < 3 && !found; attempt++ {
			found = len(failuresOf(t, rules[i], func(_ context.Context, c *memchain.Chain) Harness {
				h := fullHarness(c)
				h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
					return checkThenRead(ctx, c, q, func() {})
				}}
				return h
			})) > 0
		}
		if !found {
			t.Errorf("rule %q missed the race in three runs", rules[i].name)
		}
	}
}
