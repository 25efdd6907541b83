package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// plans measures the cost of many cached plans, and whether floods of documents stay within the
// cache limit.
func plans(ctx context.Context, size sizes, r *report) error {
	defer alone()()
	s, err := source.New()
	if err != nil {
		return err
	}
	if err := cached(ctx, s, size, r); err != nil {
		return err
	}
	t := r.table(fmt.Sprintf("Floods of documents, against a cache of %d MB", chaingql.DefaultLimits().CacheBytes>>20), "documents", "heap grew by (MB)", "CPU per document (µs)")
	for _, f := range []struct {
		name string
		n    int
		body func(i int) []byte
	}{
		{"short", size.short, short},
		{"of 30 kB", size.long, long},
	} {
		grew, cost, err := flood(ctx, s, f.n, f.body)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		name := fmt.Sprintf("%d %s", f.n, f.name)
		t.add(name, fmt.Sprintf("%.1f", grew), figure(cost))
		r.atMost("a flood of "+name+" documents: MB of heap", grew, float64(chaingql.DefaultLimits().CacheBytes>>20))
	}
	return nil
}

// cached measures a query with growing numbers of cached plans. The caches are measured
// alternately, on the same heap.
func cached(ctx context.Context, s *source.Source, size sizes, r *report) error {
	bodies := [][]byte{}
	for i := range slices.Max(size.plans) {
		bodies = append(bodies, short(i))
	}
	var contenders []contender
	for _, n := range size.plans {
		h, err := open(own, s, &chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1 << 30}})
		if err != nil {
			return err
		}
		c := newCaller(ctx, h)
		for _, body := range bodies[:n] {
			if got := c.call(body); !strings.Contains(string(got), `"data"`) {
				return fmt.Errorf("response %.300s for request %.300s", got, body)
			}
		}
		for _, turns := range []int{1, 10, n} {
			call := func(i int) { c.call(bodies[i%turns]) }
			count := max(turns, calls(size.slice, call))
			contenders = append(contenders, contender{of(n, turns), func() (float64, error) { return spent(count, call), nil }})
		}
	}
	got, err := inTurns(ctx, max(2, size.rounds/2), contenders)
	if err != nil {
		return err
	}
	t := r.table("Growth with cached plans: CPU per query (µs)", "plans", "always the same", "ten in turn", "all in turn")
	worst, few := 0.0, size.plans[0]
	for _, n := range size.plans {
		t.add(fmt.Sprint(n), figure(got.median(of(n, 1))), figure(got.median(of(n, 10))), figure(got.median(of(n, n))))
		worst = max(worst, got.ratio(of(n, 10), of(few, 10)))
	}
	t.note("The last column includes cache misses of the CPU for plans and requests.")
	r.atMost(fmt.Sprintf("CPU per query, worst of %d to %d cached plans against the fewest", few, slices.Max(size.plans)), worst, flat)
	return nil
}

// of returns the name of a contender with that many cached plans, of which turns are requested
// alternately.
func of(plans, turns int) string { return fmt.Sprint(plans, " ", turns) }

// flood requests n documents once each. It returns the growth of the heap in megabytes and the CPU
// time per document in microseconds.
func flood(ctx context.Context, s *source.Source, n int, body func(int) []byte) (grew, cost float64, err error) {
	h, err := open(own, s, nil)
	if err != nil {
		return 0, 0, err
	}
	if _, err := answerOf(h, body(n)); err != nil {
		return 0, 0, err
	}
	c := newCaller(ctx, h)
	before := live()
	cost = spent(n, func(i int) {
		if ctx.Err() == nil {
			c.call(body(i))
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	after := live()
	runtime.KeepAlive(h)
	return float64(after-before) / (1 << 20), cost, nil
}

// live returns the bytes of live heap objects.
func live() int64 {
	runtime.GC()
	runtime.GC() // frees objects released by finalizers and pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// short returns a document of a few bytes.
func short(i int) []byte {
	return fmt.Appendf(nil, `{"query":"{a%x:blockchain{blocks(last:1){edges{cursor}}}}"}`, i)
}

// long returns a document of 30 kB, with as many long names as the limits permit.
func long(i int) []byte {
	b := fmt.Appendf(nil, `{"query":"{blockchain{blocks(last:1){edges{node{`)
	pad := strings.Repeat("x", 600)
	for n := range 49 {
		b = fmt.Appendf(b, "a%d_%x_%s:%s ", n, i, pad, []string{"id", "hash", "shard", "seq_no"}[n%4])
	}
	return append(b, `}}}}}"}`...)
}
