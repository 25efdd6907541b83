package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// plans measures whether queries become slower if the server caches many plans, and whether its memory
// stays within the cache limit during floods of documents.
func plans(ctx context.Context, size sizes, r *report) error {
	defer processors(1)()
	s, err := source.New()
	if err != nil {
		return err
	}
	if err := cached(ctx, s, size, r); err != nil {
		return err
	}
	if err := repeated(ctx, size, r); err != nil {
		return err
	}
	t := r.table(fmt.Sprintf("Floods of documents, with a cache limit of %d MB",
		chaingql.DefaultLimits().CacheBytes>>20), "documents", "growth of the heap (MB)", "CPU per document (µs)")
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

// cached measures a query with growing numbers of cached plans. There is one server for each number, and
// the servers are measured alternately in the same process.
func cached(ctx context.Context, s *source.Source, size sizes, r *report) error {
	bodies := [][]byte{}
	for i := range slices.Max(size.plans) {
		bodies = append(bodies, short(i))
	}
	var contenders []contender
	for _, n := range size.plans {
		h, err := open(own, s, false, &chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1 << 30}})
		if err != nil {
			return err
		}
		c := newCaller(ctx, h)
		for _, body := range bodies[:n] {
			if got := c.call(body); !strings.Contains(string(got), `"data"`) {
				return fmt.Errorf("response has no data: %.300s; the request was %.300s", got, body)
			}
		}
		for _, used := range []int{1, 10, n} {
			call := func(i int) { c.call(bodies[i%used]) }
			count := max(used, callsIn(size.slice, call))
			contenders = append(contenders, contender{cachedName(n, used), func() (float64, error) {
				return cpuPerCall(count, call), nil
			}})
		}
	}
	got, err := alternate(ctx, max(2, size.rounds/2), contenders)
	if err != nil {
		return err
	}
	t := r.table("Growth with cached plans: CPU per query (µs)", "plans", "one plan used", "ten plans used in turn",
		"all plans used in turn")
	worst, few := 0.0, size.plans[0]
	for _, n := range size.plans {
		t.add(fmt.Sprint(n), figure(got.median(cachedName(n, 1))), figure(got.median(cachedName(n, 10))),
			figure(got.median(cachedName(n, n))))
		worst = max(worst, got.ratio(cachedName(n, 10), cachedName(few, 10)))
	}
	t.note("The last column includes CPU cache misses for plans and requests.")
	r.atMost(fmt.Sprintf("CPU per query, worst of %d to %d cached plans against the fewest", few,
		slices.Max(size.plans)), worst, maxGrowth)
	return nil
}

// floods are what reaches a server between two measurements of a query: nothing, documents that differ from the query
// only in a literal and therefore share a plan with it, or documents that evict its plan.
var floods = []struct {
	name string
	body func(i int) []byte
}{{"none", nil}, {"of its form", similar}, {"of other forms", short}}

// flooded are the queries that are measured after floods.
var flooded = []query{{name: "latest", body: similar(1)}, queries[0]}

// similar returns a request that differs from those for other i in a literal.
func similar(i int) []byte {
	return fmt.Appendf(nil, `{"query":"{blockchain{blocks(workchain:-1,last:%d){edges{node{%s}}}}}"}`, i, blockFields)
}

// repeated measures queries after floods of documents.
func repeated(ctx context.Context, size sizes, r *report) error {
	// The speed of the machine changes within tenths of a second, so many short rounds give steadier ratios.
	// The garbage collector hardly runs in a short round, but all contenders are the same library.
	size.rounds, size.slice = 6*size.rounds, size.slice/6
	processes, err := inProcesses(ctx, size, "floods", size.short/10)
	if err != nil {
		return err
	}
	for _, q := range flooded {
		for _, f := range floods[1:] {
			r.atMost(q.name+": CPU after a flood of documents "+f.name+", against before",
				overProcesses(processes, q.name, func(c costs) float64 { return c.ratio(f.name, "none") }), maxGrowth)
		}
	}
	return nil
}

// measureFloods is a process of inProcesses. It measures the queries after floods of n documents, and prints the costs
// by query.
func measureFloods(args []string) error {
	rounds, slice, n, err := measuring(args)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	s, err := source.New()
	if err != nil {
		return err
	}
	got := map[string]costs{}
	for _, q := range flooded {
		var contenders []contender
		for _, f := range floods {
			h, err := open(own, s, false, nil)
			if err != nil {
				return err
			}
			c := newCaller(context.Background(), h)
			call := func(int) { c.call(q.body) }
			if f.name != "of its form" { // otherwise the query shares the plan of a document of the flood
				call(0)
			}
			for i := 0; f.body != nil && i < n; i++ {
				c.call(f.body(i + 2))
			}
			if _, err := respond(h, q.body); err != nil {
				return err
			}
			count := callsIn(slice, call)
			contenders = append(contenders, contender{f.name, func() (float64, error) {
				return cpuPerCall(count, call), nil
			}})
		}
		if got[q.name], err = alternate(context.Background(), rounds, contenders); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// cachedName returns the name of the contender that has the given number of cached plans and uses the first
// used of them in turn.
func cachedName(plans, used int) string { return fmt.Sprint(plans, " ", used) }

// flood requests n different documents, each once. It returns the growth of the heap in megabytes and
// the CPU time per document in microseconds.
func flood(ctx context.Context, s *source.Source, n int, body func(int) []byte) (grew, cost float64, err error) {
	h, err := open(own, s, false, nil)
	if err != nil {
		return 0, 0, err
	}
	if _, err := respond(h, body(n)); err != nil {
		return 0, 0, err
	}
	c := newCaller(ctx, h)
	before := liveHeap()
	cost = cpuPerCall(n, func(i int) {
		if ctx.Err() == nil {
			c.call(body(i))
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	after := liveHeap()
	runtime.KeepAlive(h)
	return float64(after-before) / (1 << 20), cost, nil
}

// liveHeap returns the size of all live heap objects in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // collects objects that finalizers and pools have released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// short returns a request with a short document, which differs for each i.
func short(i int) []byte {
	return fmt.Appendf(nil, `{"query":"{a%x:blockchain{blocks(workchain:-1,last:1){edges{cursor}}}}"}`, i)
}

// long returns a request with a document of 30 kB, which differs for each i. The document has as many
// long names as the limits permit.
func long(i int) []byte {
	b := fmt.Appendf(nil, `{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{`)
	pad := strings.Repeat("x", 600)
	for n := range 49 {
		b = fmt.Appendf(b, "a%d_%x_%s:%s ", n, i, pad, []string{"id", "hash", "shard", "seq_no"}[n%4])
	}
	return append(b, `}}}}}"}`...)
}
