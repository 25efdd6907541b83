package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// rareWorkchain has one block in 100 of a variedChain.
const rareWorkchain = 7

// variedChain returns n blocks: one in 100 is in rareWorkchain, of the others half are in the masterchain and the rest
// in the shards of workchain 0.
func variedChain(n, shards int) []chaingql.Block {
	const whole = 1 << 63
	blocks := make([]chaingql.Block, n)
	numbers := map[[2]uint64]uint32{}
	for i := range blocks {
		b := chaingql.Block{Workchain: -1, Shard: whole, Time: time.Unix(1_700_000_000+int64(i), 0)}
		switch {
		case i%100 == 50:
			b.Workchain = rareWorkchain
		case i%2 == 1:
			b.Workchain, b.Shard = 0, uint64(2*(i/2%shards)+1)*(whole/uint64(shards))
		}
		place := [2]uint64{uint64(b.Workchain), b.Shard}
		numbers[place]++
		b.SeqNo, b.Cursor = numbers[place], chaingql.SeqCursor(uint64(i))
		b.Hash = chaingql.Hash{byte(i), byte(i >> 8), byte(i >> 16)}
		blocks[i] = b
	}
	return blocks
}

// A pageCase is a page of blocks whose cost is compared with that of a page of the masterchain.
type pageCase struct {
	place, name string // place is "window" or "backend"
	handler     http.Handler
	arguments   string // of the field blocks
	edges       int
}

// pages measures whether the cost of a page grows with the size of the window, the number of shards, the rarity of the
// workchain and the depth of the page.
func pages(ctx context.Context, size sizes, r *report) error {
	defer processors(1)()
	t := r.table("Growth of pages: CPU per query (µs)", "page", "blocks", "CPU",
		"relative to the first row of its kind")
	t.note("Rows are of the same kind if their pages come from the same place, have the same number of blocks " +
		"and both have a cursor or none. The first row of each kind is a page of the masterchain.")
	for _, open := range []func(sizes) ([]pageCase, error){windowCases, backendCases} {
		cases, err := open(size)
		if err != nil {
			return err
		}
		worst, err := comparePages(ctx, cases, size, t)
		if err != nil {
			return err
		}
		r.atMost("CPU of a page from the "+cases[0].place+
			", worst of all chains, workchains and depths against the masterchain's", worst, maxGrowth)
	}
	return nil
}

// comparePages adds a row for each case, and returns the highest ratio of its cost to that of the first case of its
// kind: with the same number of edges, and with a cursor or without. Unlike cpuPerCall, it collects no garbage before
// each measurement, because that takes long if the chain is long.
func comparePages(ctx context.Context, cases []pageCase, size sizes, t *table) (worst float64, err error) {
	var contenders []contender
	for i, c := range cases {
		// A different name for each operation, because documents of the same form would share a plan.
		body := post(fmt.Sprintf(`query q%d { blockchain { blocks(%s) { edges { node { %s } } } } }`, i, c.arguments,
			blockFields), nil)
		caller := newCaller(ctx, c.handler)
		if got := bytes.Count(caller.call(body), []byte(`"block/`)); got != c.edges {
			return 0, fmt.Errorf("%s: the page has %d blocks, want %d", c.name, got, c.edges)
		}
		count := callsIn(size.slice/4, func(int) { caller.call(body) })
		contenders = append(contenders, contender{c.name, func() (float64, error) {
			before := cpu()
			for range count {
				caller.call(body)
			}
			return float64((cpu() - before).Nanoseconds()) / 1e3 / float64(count), nil
		}})
	}
	got, err := alternate(ctx, 3*size.rounds, contenders)
	if err != nil {
		return 0, err
	}
	first := map[string]string{}
	for _, c := range cases {
		kind := fmt.Sprint(c.edges, strings.Contains(c.arguments, "after"))
		if first[kind] == "" {
			first[kind] = c.name
		}
		ratio := got.ratio(c.name, first[kind])
		t.add(c.name, fmt.Sprint(c.edges), figure(got.median(c.name)), fmt.Sprintf("%.2f", ratio))
		worst = max(worst, ratio)
	}
	return worst, nil
}

// windowCases returns pages from windows of different sizes and with different numbers of shards.
func windowCases(size sizes) ([]pageCase, error) {
	var cases []pageCase
	for _, n := range size.windows {
		for _, shards := range []int{1, 64} {
			h, err := openWindow(variedChain(n, shards))
			if err != nil {
				return nil, err
			}
			chain := fmt.Sprintf("window of %d, %d shards: ", n, shards)
			for _, last := range []int{1, 5} {
				for _, workchain := range []int{-1, 0, rareWorkchain} {
					arguments := fmt.Sprintf("workchain: %d, last: %d", workchain, last)
					cases = append(cases, pageCase{"window", chain + arguments, h, arguments, last})
				}
			}
		}
	}
	return cases, nil
}

// backendCases returns pages at different depths of a long chain in memory.
func backendCases(size sizes) ([]pageCase, error) {
	blocks := variedChain(size.stored, 64)
	chain := memchain.New()
	if err := chain.Append(blocks...); err != nil {
		return nil, err
	}
	h := chaingql.New(quiet{chain}, settings(nil))
	var cases []pageCase
	for _, edges := range []int{1, 50} {
		for _, workchain := range []int{-1, 0, rareWorkchain} {
			arguments := fmt.Sprintf("workchain: %d, last: %d", workchain, edges)
			cases = append(cases, pageCase{"backend", "chain of " + fmt.Sprint(len(blocks)) + ": " + arguments, h,
				arguments, edges})
			for _, depth := range []int{10, 50, 99} {
				after := blocks[len(blocks)*(100-depth)/100].Cursor
				arguments := fmt.Sprintf("workchain: %d, first: %d, after: %q", workchain, edges, after)
				name := fmt.Sprintf("chain of %d, %d %% below its top: workchain: %d, first: %d", len(blocks), depth,
					workchain, edges)
				cases = append(cases, pageCase{"backend", name, h, arguments, edges})
			}
		}
	}
	return cases, nil
}

// openWindow returns a handler with a window that has all but a few of the blocks.
func openWindow(blocks []chaingql.Block) (http.Handler, error) {
	chain := memchain.New()
	if err := chain.Append(blocks[0]); err != nil {
		return nil, err
	}
	var received atomic.Int64
	options := &chaingql.Options{WindowSize: len(blocks), Limits: chaingql.Limits{WindowBytes: -1},
		Hooks: chaingql.Hooks{
			BlockReceived: func(chaingql.Block, time.Duration) { received.Add(1) },
		}}
	h := chaingql.New(chain, settings(options))
	if _, err := respond(h, queries[1].body); err != nil { // the first query starts Follow
		return nil, err
	}
	started := slices.IndexFunc(blocks[1:], func(b chaingql.Block) bool {
		_ = chain.Append(b)
		time.Sleep(10 * time.Millisecond)
		return received.Load() > 0
	})
	if started < 0 {
		return nil, fmt.Errorf("the handler received none of %d blocks", len(blocks))
	}
	rest := blocks[started+2:]
	if err := chain.Append(rest...); err != nil {
		return nil, err
	}
	for received.Load() < int64(len(rest)+1) {
		time.Sleep(time.Millisecond)
	}
	return h, nil
}
