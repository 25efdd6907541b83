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

// A retention is what a source knows of the blocks that it dropped.
type retention struct {
	mu     sync.Mutex
	newest chaingql.Cursor // that was dropped
}

func (r *retention) newestDropped() chaingql.Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// drop notes that the blocks below a cursor are dropped.
func (r *retention) drop(c *memchain.Chain, before chaingql.Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, _ := c.Blocks(context.Background(), query{Last: 1, Before: before}); len(last) > 0 {
		r.newest = last[0].Cursor
	}
}

// retaining breaks what becomes of a chain that was pruned.
func retaining(breaks func(r *retention, c *memchain.Chain) twisted) func(context.Context, *memchain.Chain, *Harness) {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		r := new(retention)
		h.Prune = func(before chaingql.Cursor) error {
			if newest, _ := c.Blocks(context.Background(), query{Last: 1}); len(newest) > 0 {
				before = min(before, newest[0].Cursor)
			}
			r.drop(c, before)
			c.Prune(before)
			return nil
		}
		b := breaks(r, c)
		b.Chain = c
		h.Backend = b
	}
}

func refused(yield func(block, error) bool) { yield(block{}, chaingql.ErrCursorTooOld) }

var brokenPrunes = []breach{
	{"a page after the newest pruned block that is too old", retaining(func(r *retention, c *memchain.Chain) twisted {
		return twisted{blocks: func(ctx context.Context, q query) ([]block, error) {
			if newest := r.newestDropped(); q.After != "" && q.After == newest {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "the newest pruned block's own cursor is not too old: Blocks(After"},
	{"a Follow after the newest pruned block that is too old", retaining(func(r *retention, c *memchain.Chain) twisted {
		return twisted{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if newest := r.newestDropped(); after != "" && after == newest {
				return refused
			}
			return c.Follow(ctx, after)
		}}
	}), "the newest pruned block's own cursor is not too old: Follow(after"},
	{"a page from \"\" that is too old", retaining(func(r *retention, c *memchain.Chain) twisted {
		return twisted{blocks: func(ctx context.Context, q query) ([]block, error) {
			if q.After == "" && r.newestDropped() != "" {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "a page without After begins with the oldest block kept: Blocks("},
	{"a Follow from \"\" that begins with the oldest block kept", retaining(func(r *retention, c *memchain.Chain) twisted {
		return twisted{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if after == "" {
				after = r.newestDropped()
			}
			return c.Follow(ctx, after)
		}}
	}), "a Follow from the start is too old once a block is pruned: Follow(after \"\")"},
	{"a Follow from \"\" of pages", retaining(func(_ *retention, c *memchain.Chain) twisted {
		return twisted{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return chaingql.Poll(ctx, c.Blocks, after, time.Millisecond)
		}}
	}), "a Follow from the start is too old once a block is pruned: Follow(after \"\")"},
	{"a Follow from \"\" that looks for pruned blocks only when it starts", retaining(func(r *retention, c *memchain.Chain) twisted {
		return twisted{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if after == "" && r.newestDropped() != "" {
				return refused
			}
			return chaingql.Poll(ctx, c.Blocks, after, 3*time.Millisecond) // not when the rule prunes
		}}
	}), "a Follow that pruning overtakes does not skip: Follow(after \"\") skipped"},
	{"a chain that loses its newest block", func(_ context.Context, c *memchain.Chain, h *Harness) {
		r := new(retention) // c keeps all blocks
		h.Prune = func(before chaingql.Cursor) error {
			r.drop(c, before)
			return nil
		}
		h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			switch newest := r.newestDropped(); {
			case q.After == "":
				q.After = newest
			case q.After < newest:
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}, follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if after < r.newestDropped() {
				return refused
			}
			return c.Follow(ctx, after)
		}}
	}, "the newest block is never pruned: Blocks("},
	{"a chain that forgets at a restart what was pruned", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) {
			kept, err := c.Blocks(context.Background(), query{First: 1000})
			if err != nil {
				return nil, err
			}
			again := memchain.New()
			return again, again.Append(kept...)
		}
	}, "what was pruned is remembered after a restart: Blocks("},
	{"pages in two statements", retaining(func(_ *retention, c *memchain.Chain) twisted {
		return twisted{blocks: func(ctx context.Context, q query) ([]block, error) { return inTwoStatements(ctx, c, q, pace) }}
	}), "while blocks were pruned, leaves out cursor"},
	{"a Follow in two statements", retaining(func(_ *retention, c *memchain.Chain) twisted {
		return twisted{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return chaingql.Poll(ctx, func(ctx context.Context, q query) ([]block, error) { return inTwoStatements(ctx, c, q, pace) }, after, time.Millisecond)
		}}
	}), "pages and Follows hold while blocks are pruned: Follow"},
}

func pace() { time.Sleep(time.Millisecond) }

// inTwoStatements looks whether a cursor is too old, and reads the page then.
func inTwoStatements(ctx context.Context, c *memchain.Chain, q query, between func()) ([]block, error) {
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

// The rule must also find two statements that follow each other at once.
func TestPruningBetweenTwoStatementsIsFound(t *testing.T) {
	i := slices.IndexFunc(rules, func(ru rule) bool { return ru.name == "pages and Follows hold while blocks are pruned" })
	ru := rules[i]
	found := 0
	for range 5 {
		said := reportsOf(t, ru, func(_ context.Context, c *memchain.Chain) Harness {
			h := whole(c)
			h.Backend = twisted{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
				return inTwoStatements(ctx, c, q, func() {})
			}}
			return h
		})
		if len(said) > 0 {
			found++
		}
	}
	if found < 5 {
		t.Errorf("%q found it %d times of 5", ru.name, found)
	}
}
