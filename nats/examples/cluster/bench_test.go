package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// BenchmarkCluster measures figures for docs/scaling.md: it appends to a stream with three
// replicas on three brokers, and delivers blocks to the Follow calls of up to ten hosts.
// All of them run in this process.
func BenchmarkCluster(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := newCluster(ctx, b.TempDir(), "127.0.0.1:0", inProcess, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.close(); err != nil {
			b.Error(err)
		}
	}()
	open := func() *natschain.Backend {
		backend, err := natschain.Open(ctx, c.brokers.urls(), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(backend.Close)
		return backend
	}
	w, err := open().Writer(ctx)
	if err != nil {
		b.Fatal(err)
	}
	n := uint64(0)
	next := func(many int) (blocks []chaingql.Block) {
		for range many {
			n++
			blocks = append(blocks,
				chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: uint32(n), Cursor: chaingql.SeqCursor(n)})
		}
		return blocks
	}
	b.Run("appendInBatchesOf5000", func(b *testing.B) {
		for range 20 {
			if err := w.Append(ctx, next(5000)...); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(20*5000/b.Elapsed().Seconds(), "blocks/s")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			if err := w.Append(ctx, next(1)...); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, row := range []struct {
		name      string
		followers int
	}{{"deliveryToOneHost", 1}, {"deliveryToTenHosts", 10}} {
		b.Run(row.name, func(b *testing.B) { deliver(b, w, open, row.followers, next, chaingql.SeqCursor(n)) })
	}
}

// deliver measures the time from the start of Append until all Follow calls have yielded
// the block, at 100 blocks per second.
func deliver(b *testing.B, w *natschain.Writer, open func() *natschain.Backend, followers int,
	next func(int) []chaingql.Block, from chaingql.Cursor) {
	const blocks = 500
	ctx, cancel := context.WithCancel(context.Background())
	arrived := make(chan time.Time, followers)
	var following sync.WaitGroup
	for range followers {
		backend := open()
		following.Go(func() {
			for _, err := range backend.Follow(ctx, from) {
				if err != nil {
					return
				}
				arrived <- time.Now()
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // until all Follow calls have started, so that their start is not measured
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var took []time.Duration
	before := spent()
	for range blocks {
		<-tick.C
		start := time.Now()
		if err := w.Append(ctx, next(1)...); err != nil {
			b.Fatal(err)
		}
		var last time.Time
		for range followers {
			if at := <-arrived; at.After(last) {
				last = at
			}
		}
		took = append(took, last.Sub(start))
	}
	used := spent() - before
	cancel()
	following.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[blocks/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[blocks*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(used.Microseconds())/blocks, "CPU-µs/block") // brokers, producer and followers together
	b.ReportMetric(0, "ns/op")
}

// spent returns the processor time that this process has used so far.
func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkArrival measures the cost of a subscriber that moves to a host from another one.
// The subscriber connects directly to the host, subscribes after a cursor, receives its
// first block and disconnects. The cost includes that of the client.
func BenchmarkArrival(b *testing.B) {
	c, err := newCluster(context.Background(), b.TempDir(), "127.0.0.1:0", inProcess, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.close(); err != nil {
			b.Error(err)
		}
	}()
	w, err := c.hosts[0].backend.Writer(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	const stored = 3000 // the newest 1,024 blocks are in the Handler's window
	chain := make([]chaingql.Block, stored)
	for n := range chain {
		c := chaingql.SeqCursor(uint64(n))
		chain[n] = chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: uint32(n + 1), Cursor: c}
	}
	if err := w.Append(context.Background(), chain...); err != nil {
		b.Fatal(err)
	}
	wire := &http.Transport{DisableKeepAlives: true}
	one := func(begin chaingql.Cursor) {
		s := &subscriber{address: c.hosts[0].addr, begin: begin, socket: true, client: &http.Client{Transport: wire}}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s.heard = cancel
		s.overSocket(ctx, map[string]any{"after": begin})
		if len(s.got) == 0 {
			b.Fatal("the subscriber received no block")
		}
	}
	one(chaingql.SeqCursor(stored - 10))
	for _, row := range []struct {
		name  string
		begin uint64
	}{{"inTheWindow", stored - 10}, {"aPageFromTheBrokers", 10}} {
		b.Run(row.name, func(b *testing.B) {
			before := spent()
			for b.Loop() {
				one(chaingql.SeqCursor(row.begin))
			}
			b.ReportMetric(float64((spent()-before).Microseconds())/float64(b.N), "CPU-µs/op")
		})
	}
}
