package tonlite_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
)

// spread reports the median and the 99th percentile of the given durations.
func spread(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkBalance reads the balances of recorded masterchain accounts and verifies their proofs.
func BenchmarkBalance(b *testing.B) {
	chain, err := states()
	s := start(b, chain, err)
	backend := open(b, s.Config(), &unproven)
	accounts := recordedAccounts(b)
	var took []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		if _, err := backend.Balance(context.Background(), accounts[i%8].addr); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	spread(b, took)
}

// BenchmarkPage reads the last 50 recorded blocks, from the server with an empty cache (cold) and
// from the cache (warm).
func BenchmarkPage(b *testing.B) {
	chain, err := packs()
	s := start(b, chain, err)
	q := chaingql.BlocksQuery{Last: 50}
	b.Run("cold", func(b *testing.B) {
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			backend := open(b, s.Config(), &unproven)
			b.StartTimer()
			begin := time.Now()
			if page, err := backend.Blocks(context.Background(), q); err != nil || len(page) != 50 {
				b.Fatal(len(page), err)
			}
			took = append(took, time.Since(begin))
			b.StopTimer()
			backend.Close()
			b.StartTimer()
		}
		spread(b, took)
	})
	b.Run("warm", func(b *testing.B) {
		backend := open(b, s.Config(), &unproven)
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			begin := time.Now()
			if page, err := backend.Blocks(context.Background(), q); err != nil || len(page) != 50 {
				b.Fatal(len(page), err)
			}
			took = append(took, time.Since(begin))
		}
		spread(b, took)
	})
}

// BenchmarkFollow reads all 805 recorded blocks with Follow and an empty cache.
func BenchmarkFollow(b *testing.B) {
	chain, err := packs()
	s := start(b, chain, err)
	n := 0
	for b.Loop() {
		backend := open(b, s.Config(), &unproven)
		seen := 0
		for _, err := range backend.Follow(context.Background(), "") {
			if err != nil {
				b.Fatal(err)
			}
			if seen++; seen == 805 {
				break
			}
		}
		n += seen
		backend.Close()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkPush measures the time from the arrival of a masterchain block at the server until
// Follow yields that block. Follow yields the new shard blocks before it.
func BenchmarkPush(b *testing.B) {
	chain, err := packs()
	s := start(b, chain, err)
	first := uint32(20)
	var took []time.Duration
	for b.Loop() {
		s.Advance(first)
		backend := open(b, s.Config(), &unproven)
		var begin atomic.Int64
		for block, err := range backend.Follow(context.Background(), chaingql.ChainOrder(-1, 1<<63, first-1, 0)) {
			if err != nil {
				b.Fatal(err)
			}
			if block.Workchain != -1 {
				continue
			}
			if block.SeqNo > first {
				took = append(took, time.Duration(time.Now().UnixNano()-begin.Load()))
			}
			if block.SeqNo == chain.Last() {
				break
			}
			time.AfterFunc(3*time.Millisecond, func() { // by then, Follow waits for the next block
				begin.Store(time.Now().UnixNano())
				s.Advance(block.SeqNo + 1)
			})
		}
		backend.Close()
	}
	spread(b, took)
}

// BenchmarkOpen proves the newest block of a chain with 100 key blocks.
func BenchmarkOpen(b *testing.B) {
	chain := generate(1001)
	s := start(b, chain, nil)
	for b.Loop() {
		backend, err := tonlite.Open(context.Background(), s.Config(), nil)
		if err != nil {
			b.Fatal(err)
		}
		backend.Close()
	}
}

// BenchmarkMemory measures the memory that 805 cached blocks need.
func BenchmarkMemory(b *testing.B) {
	chain, err := packs()
	s := start(b, chain, err)
	held := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := held()
		backend := open(b, s.Config(), &unproven)
		if _, err := backend.Blocks(context.Background(), chaingql.BlocksQuery{First: 1000}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((held()-before)/805, "B/block")
		backend.Close()
	}
}
