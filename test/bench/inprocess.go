package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// goPeers lists chaingql and the peers that are written in Go.
var goPeers = []string{own, gqlgenGo, gophersGo, graphqlGo, handmade, constant}

// callers returns a caller for each peer. All peers serve the chain of s.
func callers(ctx context.Context, s *source.Source, peers ...string) (map[string]*caller, error) {
	all := map[string]*caller{}
	for _, peer := range peers {
		h, err := open(peer, s, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", peer, err)
		}
		c := newCaller(ctx, h)
		all[peer] = c
		for _, q := range queries {
			if _, err := respond(h, q.body); err != nil {
				return nil, fmt.Errorf("%s: %w", peer, err)
			}
		}
	}
	return all, nil
}

// singleProc sets GOMAXPROCS to 1 until undo is called. With a higher value, the garbage collector
// would use idle CPUs, and that CPU time would count as the cost of queries.
func singleProc() (undo func()) {
	before := runtime.GOMAXPROCS(1)
	return func() { runtime.GOMAXPROCS(before) }
}

// inProcess measures the cost of a query without a network connection.
func inProcess(ctx context.Context, size sizes, r *report) error {
	defer singleProc()()
	s, err := source.New()
	if err != nil {
		return err
	}
	all, err := callers(ctx, s, goPeers...)
	if err != nil {
		return err
	}
	targets := map[string]map[string]float64{
		gqlgenGo:  {"balance": 12, "latest": 18, "last 50": 50},
		gophersGo: {"balance": 30, "latest": 35, "last 50": 40},
		handmade:  {"balance": 2.5, "latest": 2.5, "last 50": 1.6},
	}
	t := r.table("In process: CPU per query (µs)", append([]string{"query"}, goPeers...)...)
	for _, q := range queries {
		var contenders []contender
		for _, peer := range goPeers {
			call := func(int) { all[peer].call(q.body) }
			n := callsIn(size.slice, call)
			contenders = append(contenders, contender{peer, func() (float64, error) { return cpuPerCall(n, call), nil }})
		}
		got, err := alternate(ctx, size.rounds, contenders)
		if err != nil {
			return err
		}
		row := []string{q.name}
		for _, peer := range goPeers {
			row = append(row, fmt.Sprintf("%.2f", got.median(peer)))
		}
		t.add(row...)
		for _, peer := range []string{gqlgenGo, gophersGo, handmade} {
			r.atLeast("in process, "+q.name+": CPU of "+peer+" over ours", got.ratio(peer, own), targets[peer][q.name])
		}
	}
	t.note("GOMAXPROCS is 1, so that only the query counts. With a higher value, the garbage collector would use idle CPUs.")
	return nil
}

// allocations counts the allocations per query.
func allocations(ctx context.Context, size sizes, r *report) error {
	defer singleProc()()
	s, err := source.New()
	if err != nil {
		return err
	}
	all, err := callers(ctx, s, goPeers...)
	if err != nil {
		return err
	}
	targets := map[string]float64{"balance": 4, "latest": 4, "last 50": 6}
	t := r.table("Allocations per query (count / bytes)", append(append([]string{"query"}, goPeers...), "the backend's part in that of chaingql")...)
	contracts := map[string]func(int){"balance": balanceContract(ctx, s), "latest": func(int) {}, "last 50": func(int) {}}
	for _, q := range queries {
		row := []string{q.name}
		counts := map[string]float64{}
		for _, peer := range goPeers {
			n, bytes := allocated(size.calls, func(int) { all[peer].call(q.body) })
			counts[peer] = n
			row = append(row, fmt.Sprintf("%.0f / %.0f", n, bytes))
		}
		contract, bytes := allocated(size.calls, contracts[q.name])
		t.add(append(row, fmt.Sprintf("%.0f / %.0f", contract, bytes))...)
		r.atMost("in process, "+q.name+": allocations without the backend's part", counts[own]-contract, targets[q.name])
	}
	t.note("For a balance, the backend's part is a context with a deadline and the call of Balance, whose result is a copy for the caller. " +
		"Pages of the newest blocks come from the window of recent blocks and need no backend call.")
	return nil
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
}
