package postgres_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

const (
	stored = 1_000_000 // number of blocks that are stored before pages are measured
	spare  = 200_000   // number of further blocks for the benchmarks that append
	batch  = 5_000     // number of blocks in one Append
)

// BenchmarkPostgres uses a server with the settings of initdb, including fsync, through its Unix
// socket. As a baseline, it also measures plain statements on a connection without a pool.
func BenchmarkPostgres(b *testing.B) {
	s := ownServer(b)
	ctx := context.Background()
	backend := open(b, s.dsn("postgres"), &postgres.Options{Schema: "live"})
	w := writer(b, backend)
	bare, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close(ctx)
	if _, err := bare.Exec(ctx, "CREATE TABLE bare (id serial PRIMARY KEY)"); err != nil {
		b.Fatal(err)
	}
	all := backendtest.Chain(stored+spare, 1)
	coming := all
	commit := func(b *testing.B, n int) {
		if err := w.Append(ctx, coming[:n]...); err != nil {
			b.Fatal(err)
		}
		coming = coming[n:]
	}

	b.Run("write in batches of 5000", func(b *testing.B) {
		for len(coming) > spare { // only once, regardless of b.N
			commit(b, batch)
		}
		b.ReportMetric(stored/b.Elapsed().Seconds(), "blocks/s")
		b.ReportMetric(0, "ns/op")
	})
	var n int
	if err := bare.QueryRow(ctx, "SELECT count(*) FROM live.blocks").Scan(&n); err != nil || n != stored {
		b.Fatalf("got %d stored blocks and error %v, want %d", n, err, stored)
	}
	if _, err := bare.Exec(ctx, "ANALYZE"); err != nil {
		b.Fatal(err)
	}

	timed(b, "bare: SELECT 1", func() error { _, err := bare.Exec(ctx, "SELECT 1"); return err })
	workchain, shard := int32(0), coming[0].Shard
	deep := all[stored/2].Cursor
	for _, q := range []struct {
		name  string
		query chaingql.BlocksQuery
	}{
		{"last 10 of 1M", chaingql.BlocksQuery{Last: 10}},
		{"last 10 of a shard", chaingql.BlocksQuery{Last: 10, Workchain: &workchain, Shard: &shard}},
		{"first 50 past a cursor", chaingql.BlocksQuery{First: 50, After: deep}},
		{"first 1000", chaingql.BlocksQuery{First: 1000}},
	} {
		timed(b, q.name, func() error { _, err := backend.Blocks(ctx, q.query); return err })
	}
	timed(b, "balance", func() error { _, err := backend.Balances(ctx, make([]chaingql.Address, 1)); return err })
	timed(b, "bare: INSERT and commit", func() error {
		_, err := bare.Exec(ctx, "INSERT INTO bare DEFAULT VALUES")
		return err
	})
	timed(b, "commit of one block", func() error { commit(b, 1); return nil })

	b.Run("delivery at 100 blocks a second", func(b *testing.B) {
		const n = 500
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		begun, came := make(chan time.Time, n), make([]time.Duration, 0, n)
		newest, err := backend.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, err := range backend.Follow(ctx, newest[0].Cursor) {
				if err != nil {
					b.Error(err)
					return
				}
				if came = append(came, time.Since(<-begun)); len(came) == n {
					return
				}
			}
		}()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range n {
			<-tick.C
			begun <- time.Now() // the measured time includes the commit
			commit(b, 1)
		}
		<-done
		percentiles(b, came)
		b.ReportMetric(0, "ns/op")
	})
}

func timed(b *testing.B, name string, do func() error) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			if err := do(); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		percentiles(b, took)
	})
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
