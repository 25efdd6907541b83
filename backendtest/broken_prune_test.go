package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A pruneRecord holds the cursor of the newest pruned block.
type pruneRecord struct {
	mu     sync.Mutex
	newest chaingql.Cursor
}

func (r *pruneRecord) newestPruned() chaingql.Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// record records that the blocks of c with a cursor less than before are pruned.
func (r *pruneRecord) record(c *memchain.Chain, before chaingql.Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, _ := c.Blocks(context.Background(), query{Last: 1, Before: before}); len(last) > 0 {
		r.newest = last[0].Cursor
	}
}

// changePruned sets the Backend to the result of breaks, which may behave wrongly after
// pruning. r is updated before each pruning.
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

// tooOld is a result of Follow that yields only ErrCursorTooOld.
func tooOld(yield func(block, error) bool) { yield(block{}, chaingql.ErrCursorTooOld) }

// withFirst returns a chain that has the epoch and only the first n stored blocks of c, and nothing pruned.
func withFirst(c *memchain.Chain, n int) (*memchain.Chain, error) {
	kept, err := c.Blocks(context.Background(), query{First: n})
	if err != nil {
		return nil, err
	}
	again := memchain.New()
	again.Replace(c.Epoch())
	return again, again.Append(kept...)
}

// brokenPrunes behave wrongly after pruning.
var brokenPrunes = []brokenBackend{
	{"Blocks rejects the newest pruned cursor", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if newest := r.newestPruned(); q.After != "" && q.After == newest {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "the cursor of the newest pruned block is not too old: Blocks(After"},
	{"Follow rejects the newest pruned cursor", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			if newest := r.newestPruned(); after != "" && after == newest {
				return tooOld
			}
			return c.Follow(ctx, after)
		}}
	}), "the cursor of the newest pruned block is not too old: Follow(after"},
	{"Blocks with a shard accepts an old cursor", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if newest := r.newestPruned(); q.Shard != nil && q.After != "" {
				q.After = max(q.After, newest)
			}
			return c.Blocks(ctx, q)
		}}
	}), "a cursor before a pruned block is too old: Blocks("},
	{"Blocks with Before accepts an old cursor", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if newest := r.newestPruned(); q.Before != "" && q.After != "" {
				q.After = max(q.After, newest)
			}
			return c.Blocks(ctx, q)
		}}
	}), "a cursor before a pruned block is too old: Blocks("},
	{"Follow continues with the oldest stored block if it is overtaken", changeFollow(
		func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			for yielded := false; ; yielded = true {
				overtaken := false
				for b, err := range c.Follow(ctx, after) {
					if overtaken = yielded && errors.Is(err, chaingql.ErrCursorTooOld); overtaken {
						after = oldest(c)
						break
					}
					if !yield(b, err) || err != nil {
						return
					}
					after, yielded = b.Cursor, true
				}
				if !overtaken {
					return
				}
			}
		}), "Follow does not silently skip pruned blocks: Follow("},
	{"Blocks rejects the empty cursor as too old", changePruned(func(r *pruneRecord, c *memchain.Chain) override {
		return override{blocks: func(ctx context.Context, q query) ([]block, error) {
			if q.After == "" && r.newestPruned() != "" {
				return nil, chaingql.ErrCursorTooOld
			}
			return c.Blocks(ctx, q)
		}}
	}), "a page without After starts with the oldest stored block: Blocks("},
	{
		"Follow with the empty cursor starts with the oldest stored block",
		changePruned(func(r *pruneRecord, c *memchain.Chain) override {
			return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
				if after == "" {
					after = r.newestPruned()
				}
				return c.Follow(ctx, after)
			}}
		}),
		"the empty cursor is too old for Follow if any block was pruned: Follow(after \"\")",
	},
	{"Follow passes the empty cursor to Poll", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
		return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return chaingql.Poll(ctx, c.Blocks, after, time.Millisecond)
		}}
	}), "the empty cursor is too old for Follow if any block was pruned: Follow(after \"\")"},
	{
		"Follow with the empty cursor checks for pruned blocks only once",
		changePruned(func(r *pruneRecord, c *memchain.Chain) override {
			return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
				if after == "" && r.newestPruned() != "" {
					return tooOld
				}
				// The rule calls Append and Prune after 50 ms of the bubble's clock. That is not a multiple of 3 ms,
				// so Poll does not read between the two calls.
				return chaingql.Poll(ctx, c.Blocks, after, 3*time.Millisecond)
			}}
		}),
		"Follow does not silently skip pruned blocks: Follow(after \"\") skipped",
	},
	{"Prune drops the newest block", func(_ context.Context, c *memchain.Chain, h *Harness) {
		r := new(pruneRecord) // Blocks and Follow hide the blocks that r records; c keeps all blocks
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
	{"the pruned position is lost at a restart", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Reopen = func() (chaingql.Backend, error) { return withFirst(c, 1000) }
	}, "ErrCursorTooOld is returned after a restart too: Blocks("},
	{"Blocks checks the cursor before it reads", changePages(
		func(query) bool { return true }, checkThenReadPaced,
	), "while blocks were pruned, omitted cursor"},
	{"Blocks with a shard checks the cursor before it reads", changePages(
		func(q query) bool { return q.Shard != nil }, checkThenReadPaced,
	), "while blocks were pruned, omitted cursor"},
	{"Blocks with Before checks the cursor before it reads", changePages(
		func(q query) bool { return q.Before != "" }, checkThenReadPaced,
	), "while blocks were pruned, omitted cursor"},
	{"Blocks with Before and First reads a page in two parts", changePages(
		func(q query) bool { return q.Before != "" && q.After == "" && q.First > 1 }, readInTwoParts,
	), "while blocks were pruned, omitted cursor"},
	{"the newest blocks are lost at a restart", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Prune = nil
		h.Reopen = func() (chaingql.Backend, error) { return withFirst(c, 50) }
	}, "blocks survive a restart: Blocks("},
	{"Follow checks the cursor before it reads", changePruned(func(_ *pruneRecord, c *memchain.Chain) override {
		return override{follow: func(ctx context.Context, after chaingql.Cursor) seq {
			blocks := func(ctx context.Context, q query) ([]block, error) { return checkThenReadPaced(ctx, c, q) }
			return chaingql.Poll(ctx, blocks, after, time.Millisecond)
		}}
	}), "Blocks and Follow are correct while blocks are pruned: Follow"},
}

// changePages replaces Blocks for the queries for which match returns true.
func changePages(
	match func(query) bool, blocks func(context.Context, *memchain.Chain, query) ([]block, error),
) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			if match(q) {
				return blocks(ctx, c, q)
			}
			return c.Blocks(ctx, q)
		}}
	}
}

// brokenRarePrunes are wrong only for a workchain with few blocks.
var brokenRarePrunes = []brokenBackend{
	{"the first page of a workchain after a large prune is empty", func(
		_ context.Context, c *memchain.Chain, h *Harness,
	) {
		var stale atomic.Bool
		h.Prune = func(before chaingql.Cursor) error {
			gone, _ := c.Blocks(context.Background(), query{First: 200, Before: before})
			c.Prune(before)
			stale.Store(len(gone) == 200)
			return nil
		}
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			rare := q.Workchain != nil && *q.Workchain == rareWorkchain && q.After == ""
			if rare && stale.CompareAndSwap(true, false) {
				return nil, nil
			}
			return c.Blocks(ctx, q)
		}}
	}, "pages of a rare workchain are correct after large prunes: Blocks("},
	{"a page of a workchain searches only the first 200 blocks", changePages(
		func(q query) bool { return q.Workchain != nil && *q.Workchain == rareWorkchain && q.First > 0 },
		func(ctx context.Context, c *memchain.Chain, q query) ([]block, error) {
			page, err := c.Blocks(ctx, query{First: 200, After: q.After, Before: q.Before})
			return chaingql.PageOf(page, q), err
		},
	), "pages of a rare workchain are correct after large prunes: Blocks("},
}

// pace pauses for a moment, in which blocks can be pruned.
func pace() { time.Sleep(time.Millisecond) }

// checkThenRead checks whether the cursor is too old, calls between, and then reads the
// page. Blocks may be pruned between the check and the read, because they are not in one
// transaction.
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

// checkThenReadPaced is checkThenRead with a pause between the check and the read.
func checkThenReadPaced(ctx context.Context, c *memchain.Chain, q query) ([]block, error) {
	return checkThenRead(ctx, c, q, pace)
}

// readInTwoParts reads the first block of a page, and then the others. It hides that blocks were pruned in between.
func readInTwoParts(ctx context.Context, c *memchain.Chain, q query) ([]block, error) {
	one := q
	one.First = 1
	page, err := c.Blocks(ctx, one)
	if err != nil || len(page) == 0 {
		return page, err
	}
	pace()
	rest, err := c.Blocks(ctx, q)
	rest = slices.DeleteFunc(rest, func(b block) bool { return b.Cursor <= page[0].Cursor })
	return append(page, rest[:min(len(rest), q.First-1)]...), err
}

// The rule must detect blocks that are pruned between the check and the read even if the
// Backend does not pause between the two. One run of the rule has about 500 chances to
// detect it, and 1,000 of 1,000 runs did. A busy machine may miss all of them, so the test
// allows three attempts.
func TestPruneBetweenCheckAndReadIsDetected(t *testing.T) {
	i := slices.IndexFunc(rules, func(ru rule) bool {
		return ru.name == "Blocks and Follow are correct while blocks are pruned"
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
			t.Errorf("rule %q did not detect the race in three attempts", rules[i].name)
		}
	}
}
