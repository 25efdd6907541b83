package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// goPeers lists chaingql and the peers that are written in Go.
var goPeers = []string{own, gqlgenGo, gophersGo, graphqlGo, handmade, constant}

// callers returns n callers for each peer and each query. All peers serve the chain of s.
func callers(ctx context.Context, n int, s *source.Source, peers ...string) (map[string]map[string][]*caller, error) {
	all := map[string]map[string][]*caller{}
	for _, peer := range peers {
		handlers, err := handlersOf(peer, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", peer, err)
		}
		all[peer] = map[string][]*caller{}
		for _, q := range queries {
			h := handlers[q.name]
			if _, err := respond(h, q.body); err != nil {
				return nil, fmt.Errorf("%s: %w", peer, err)
			}
			for range n {
				all[peer][q.name] = append(all[peer][q.name], newCaller(ctx, h))
			}
		}
	}
	return all, nil
}

// handlersOf returns the handler of a peer for each query.
func handlersOf(peer string, s *source.Source) (map[string]http.Handler, error) {
	handlers, opened := map[string]http.Handler{}, map[bool]http.Handler{}
	for _, q := range queries {
		var err error
		h := opened[q.stored]
		switch {
		case peer == constant:
			h, err = open(constantFor(q), s, q.stored, nil)
		case h == nil:
			h, err = open(peer, s, q.stored, nil)
			opened[q.stored] = h
		}
		if err != nil {
			return nil, err
		}
		handlers[q.name] = h
	}
	return handlers, nil
}

// processors sets GOMAXPROCS to n until undo is called. With more processors than are busy, the garbage
// collector would use the idle ones, and that CPU time would count as the cost of queries.
func processors(n int) (undo func()) {
	before := runtime.GOMAXPROCS(n)
	return func() { runtime.GOMAXPROCS(before) }
}

// inProcess measures the cost of a query without a network connection, with one processor and with two.
func inProcess(ctx context.Context, size sizes, r *report) error {
	for _, n := range []int{1, 2} {
		all, err := inProcesses(ctx, size, "inprocess", n)
		if err != nil {
			return err
		}
		reportInProcess(n, all, r)
	}
	return nil
}

// measureInProcess is a process of inProcesses. It measures n concurrent callers with n processors, and prints the
// costs by query.
func measureInProcess(args []string) error {
	rounds, slice, n, err := measuring(args)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(n)
	s, err := source.New()
	if err != nil {
		return err
	}
	ctx := context.Background()
	all, err := callers(ctx, n, s, goPeers...)
	if err != nil {
		return err
	}
	got := map[string]costs{}
	for _, q := range queries {
		var contenders []contender
		for _, peer := range goPeers {
			call := func(worker int) { all[peer][q.name][worker].call(q.body) }
			count := callsIn(slice, func(int) { call(0) })
			contenders = append(contenders, contender{peer, func() (float64, error) {
				return cpuPerCallOf(n, count, call), nil
			}})
		}
		if got[q.name], err = alternate(ctx, rounds, contenders); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// reportInProcess reports what several processes measured with n processors.
func reportInProcess(n int, processes []map[string]costs, r *report) {
	targets := map[string]map[string]float64{
		gqlgenGo: {"balance": 12, "latest": 14, "last 50": 55, "quiet latest": 4.3, "quiet last 50": 35, "history": 35},
		handmade: {"latest": 1.9, "last 50": 1.3, "quiet latest": 0.8, "quiet last 50": 0.8, "history": 0.8},
	}
	title := "In process with one processor"
	if n > 1 {
		title = fmt.Sprintf("In process with %d processors", n)
	}
	t := r.table(title+": CPU per query (µs)", append([]string{"query"}, goPeers...)...)
	for _, q := range queries {
		row := []string{q.name}
		for _, peer := range goPeers {
			row = append(row, fmt.Sprintf("%.2f", overProcesses(processes, q.name, func(c costs) float64 {
				return c.median(peer)
			})))
		}
		t.add(row...)
		for _, peer := range []string{gqlgenGo, handmade} {
			if target := targets[peer][q.name]; target > 0 {
				r.atLeast(fmt.Sprintf("in process, %d × CPU, %s: CPU of %s over ours", n, q.name, peer),
					overProcesses(processes, q.name, func(c costs) float64 { return c.ratio(peer, own) }), target)
			}
		}
	}
	t.note(fmt.Sprintf("Each figure is the median of %d processes.", len(processes)))
	t.note("There are as many callers as processors (GOMAXPROCS), so that only queries count. " +
		"Otherwise the garbage collector would use idle CPUs.")
	t.note(states)
}

// states explains the names of the queries.
const states = "A live chain has received a block, so chaingql serves pages of its newest blocks from the window, " +
	"and the handwritten peer serves them from a slice. " +
	"For \"quiet\" and \"history\", both read the page from the Backend. " +
	"All pages are from the masterchain, which has half of the blocks."

// allocations counts the allocations per query.
func allocations(ctx context.Context, size sizes, r *report) error {
	defer processors(1)()
	s, err := source.New()
	if err != nil {
		return err
	}
	all, err := callers(ctx, 1, s, goPeers...)
	if err != nil {
		return err
	}
	t := r.table("Allocations per query (count / bytes)", append(append([]string{"query"}, goPeers...),
		"the backend's part in that of chaingql")...)
	for _, q := range queries {
		row := []string{q.name}
		counts := map[string]float64{}
		for _, peer := range goPeers {
			n, bytes := allocated(size.calls, func(int) { all[peer][q.name][0].call(q.body) })
			counts[peer] = n
			row = append(row, fmt.Sprintf("%.0f / %.0f", n, bytes))
		}
		contract, bytes := allocated(size.calls, contract(ctx, s, q))
		t.add(append(row, fmt.Sprintf("%.0f / %.0f", contract, bytes))...)
		target := 4.0
		if q.stored {
			target = 8
		}
		r.atMost("in process, "+q.name+": allocations without the backend's part", counts[own]-contract, target)
	}
	t.note("For a balance, the backend's part is a context with a deadline and the call of Balance, " +
		"whose result is a copy for the caller. " +
		"For a page that is read from the Backend, it is the call of Blocks.")
	t.note(states)
	return nil
}

// contract returns a function that does what every caller of the Backend must do for a query.
func contract(ctx context.Context, s *source.Source, q query) func(int) {
	pages := map[string]string{"quiet latest": latestText, "quiet last 50": last50Text, "history": historyText}
	text, found := pages[q.name]
	switch {
	case q.name == "balance":
		return balanceContract(ctx, s)
	case !found:
		return func(int) {}
	}
	page := known.Pages[text]
	return func(int) {
		if _, err := s.Blocks(ctx, page); err != nil {
			panic(err) // the chain has the blocks
		}
	}
}

// balanceContract returns a function that calls Balance and does no more than every caller must do.
func balanceContract(ctx context.Context, s *source.Source) func(int) {
	addr := source.Address(7)
	return func(int) {
		ctx, cancel := context.WithTimeout(ctx, chaingql.DefaultLimits().BackendTimeout)
		if _, err := s.Balance(ctx, addr); err != nil {
			panic(err) // the account exists
		}
		cancel()
	}
}

// allocated calls f n times and returns the average number of allocations, and of allocated bytes, per
// call.
func allocated(n int, f func(int)) (count, bytes float64) {
	for i := range n / 10 {
		f(i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		f(i)
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

// sizes determine the amount of work in each part.
type sizes struct {
	rounds      int           // number of rounds
	processes   int           // number of processes that share the rounds, if one is not enough
	slice       time.Duration // time for one contender in one round in process
	calls       int           // number of calls whose allocations are counted
	load        time.Duration // time for one contender in one round over loopback
	connections int           // number of connections in a load over loopback
	subscribers int           // number of subscribers in the fan-out
	blocks      int           // number of blocks that are sent one by one
	bursts      int           // number of bursts
	steady      int           // number of steady subscribers during churn
	growth      []int         // numbers of connections in growth
	plans       []int         // numbers of cached plans
	short, long int           // numbers of short and of long documents in the floods
	windows     []int         // numbers of blocks in windows
	stored      int           // number of blocks of a long chain
}
