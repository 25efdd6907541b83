package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// BenchmarkIndexes compares writes to tables that lack some of the indexes for lookups. The tables take turns in random
// order. The result is the median ratio of the server's processor time to that for the table without these indexes.
func BenchmarkIndexes(b *testing.B) {
	const (
		rounds  = 15
		commits = 200 // of one block each, in each round
		batches = 2   // in each round
		size    = commits + batches*batch
	)
	s := ownServer(b)
	ctx := context.Background()
	type table struct {
		name    string
		lacks   []string // names of indexes
		w       *postgres.Writer
		single  []time.Duration // by round
		batched []time.Duration
	}
	spent := processorTime(b, s)
	const hash, number, at = "blocks_by_hash", "blocks_by_seq_no", "blocks_by_time"
	tables := []*table{
		{name: "none", lacks: []string{hash, number, at}},
		{name: "hash", lacks: []string{number, at}},
		{name: "number", lacks: []string{hash, at}},
		{name: "time", lacks: []string{hash, number}},
		{name: "all"},
	}
	for _, t := range tables {
		t.w = writer(b, open(b, s.dsn("postgres"), &postgres.Options{Schema: "indexes_" + t.name}))
		for _, index := range t.lacks {
			s.admin(b, "DROP INDEX indexes_"+t.name+"."+index)
		}
	}
	all := backendtest.Chain(rounds*size, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		for round := range rounds {
			coming := all[round*size:]
			turn := func(times func(t *table) *[]time.Duration, from, n, count int) {
				for _, i := range rng.Perm(len(tables)) {
					begun := spent()
					for j := range count {
						if err := tables[i].w.Append(ctx, coming[from+j*n:][:n]...); err != nil {
							b.Fatal(err)
						}
					}
					took := times(tables[i])
					*took = append(*took, spent()-begun)
				}
			}
			turn(func(t *table) *[]time.Duration { return &t.single }, 0, 1, commits)
			turn(func(t *table) *[]time.Duration { return &t.batched }, commits, batch, batches)
		}
	}
	b.ReportMetric(0, "ns/op")
	ratio := func(of, to []time.Duration) float64 {
		ratios := make([]float64, len(of))
		for i := range of {
			ratios[i] = float64(of[i]) / float64(to[i])
		}
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	for _, t := range tables[1:] {
		b.ReportMetric(ratio(t.single, tables[0].single), t.name+"-by-one")
		b.ReportMetric(ratio(t.batched, tables[0].batched), t.name+"-in-batches")
	}
}

// processorTime returns a function that returns the processor time of all processes of a server since their start. It
// needs Linux.
func processorTime(b *testing.B, s *server) func() time.Duration {
	conn, err := pgx.Connect(b.Context(), s.dsn("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	parent := func(pid string) string {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat") // pid (name) state parent
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.Fields(rest + " - -")[1]
	}
	postmaster := parent(fmt.Sprint(conn.PgConn().PID()))
	return func() (sum time.Duration) {
		processes, err := filepath.Glob("/proc/[0-9]*/schedstat")
		if err != nil || len(processes) == 0 {
			b.Fatal("processor times need Linux")
		}
		for _, path := range processes {
			if parent(filepath.Base(filepath.Dir(path))) != postmaster {
				continue
			}
			var ns time.Duration
			if text, err := os.ReadFile(path); err == nil { // the process may have ended
				_, _ = fmt.Sscan(string(text), &ns)
			}
			sum += ns
		}
		return sum
	}
}
