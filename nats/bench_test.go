package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

const million = 1_000_000

// BenchmarkStored appends a million blocks to a stream in batches of 5,000. Then it reads pages, balances
// and the whole chain.
func BenchmarkStored(b *testing.B) {
	s := newBroker(b)
	backend := open(b, s.ClientURL(), nil)
	w, ctx := writer(b, open(b, s.ClientURL(), nil)), context.Background()
	all := long(million)
	b.Run("appendInBatchesOf5000", func(b *testing.B) {
		for n := 0; n < million; n += 5000 { // b.N is ignored: in a second run, all blocks would be stored already
			if err := w.Append(ctx, all[n:n+5000]...); err != nil {
				b.Fatal(err)
			}
		}
		stream, err := raw(b, s.ClientURL()).Stream(ctx, "chain_blocks")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(million/b.Elapsed().Seconds(), "blocks/s")
		b.ReportMetric(float64(stream.CachedInfo().State.Bytes)/million, "stored-B/block")
		b.ReportMetric(0, "ns/op")
	})
	var accounts []chaingql.Address
	for i := range 50 {
		accounts = append(accounts, chaingql.Address{ID: [32]byte{byte(i)}})
		if err := w.SetBalance(ctx, accounts[i], big.NewInt(int64(i))); err != nil {
			b.Fatal(err)
		}
	}
	workchain, shard, few, part := int32(-1), uint64(1<<62), uint64(3<<62), uint64(1<<61)
	base := int32(0)
	rng := rand.New(rand.NewPCG(1, 2))
	page := func(q chaingql.BlocksQuery) func() error {
		return func() error {
			_, err := backend.Blocks(ctx, q)
			return err
		}
	}
	// The cursors from which clients continue are close to each other.
	somewhere := func() chaingql.Cursor { return all[million*3/5+rng.IntN(5000)].Cursor }
	old := func(q chaingql.BlocksQuery) func() error {
		return func() error {
			q.Before = somewhere()
			_, err := backend.Blocks(ctx, q)
			return err
		}
	}
	past := func(q chaingql.BlocksQuery) func() error {
		return func() error {
			q.After = somewhere()
			_, err := backend.Blocks(ctx, q)
			return err
		}
	}
	for _, row := range []struct {
		name string
		do   func() error
	}{
		{"newest", page(chaingql.BlocksQuery{Last: 1})},
		{"last10", page(chaingql.BlocksQuery{Last: 10})},
		{"last10OfShard", page(chaingql.BlocksQuery{Workchain: &base, Shard: &shard, Last: 10})},
		{"last10OfWorkchain", page(chaingql.BlocksQuery{Workchain: &workchain, Last: 10})},
		{"last10OfShardLongAgo", page(chaingql.BlocksQuery{Workchain: &base, Shard: &few, Last: 10})},
		{"last10OfShardWithManyLongAgo", page(chaingql.BlocksQuery{Workchain: &base, Shard: &part, Last: 10})},
		{"last50OfShardBeforeOld", old(chaingql.BlocksQuery{Workchain: &base, Shard: &shard, Last: 50})},
		{"last50OfWorkchainBeforeOld", old(chaingql.BlocksQuery{Workchain: &base, Last: 50})},
		{"last50OfMasterchainBeforeOld", old(chaingql.BlocksQuery{Workchain: &workchain, Last: 50})},
		{"last50OfSparseShardBeforeOld", old(chaingql.BlocksQuery{Workchain: &base, Shard: &few, Last: 50})},
		{"first50OfMasterchainPastOld", past(chaingql.BlocksQuery{Workchain: &workchain, First: 50})},
		{"first50PastKnown", page(chaingql.BlocksQuery{First: 50, After: all[million/2].Cursor})},
		{"first50PastUnknown", func() error {
			_, err := backend.Blocks(ctx, chaingql.BlocksQuery{First: 50, After: all[rng.IntN(million-100)].Cursor})
			return err
		}},
		{"first1000", page(chaingql.BlocksQuery{First: 1000})},
		{"byHash", func() error {
			_, err := backend.BlockByHash(ctx, all[rng.IntN(million)].Hash)
			return err
		}},
		{"byUnknownHash", func() error {
			_, err := backend.BlockByHash(ctx, chaingql.Hash{byte(rng.Uint32()), byte(rng.Uint32())})
			if errors.Is(err, chaingql.ErrBlockNotFound) {
				return nil
			}
			return fmt.Errorf("an unknown block: %w", err)
		}},
		{"balance", func() error {
			_, err := backend.Balance(ctx, accounts[7])
			return err
		}},
		{"balances50", func() error {
			_, err := backend.Balances(ctx, accounts)
			return err
		}},
	} {
		b.Run(row.name, func(b *testing.B) { measure(b, row.do) })
	}
	b.Run("catchUp", func(b *testing.B) {
		left := million
		for _, err := range backend.Follow(ctx, "") {
			if err != nil {
				b.Fatal(err)
			}
			if left--; left == 0 {
				break
			}
		}
		b.ReportMetric(million/b.Elapsed().Seconds(), "blocks/s")
		b.ReportMetric(0, "ns/op")
	})
}

// measure calls do repeatedly and reports the mean duration and percentiles.
func measure(b *testing.B, do func() error) {
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkAppend appends one block per call.
func BenchmarkAppend(b *testing.B) {
	w, n := writer(b, open(b, newBroker(b).ClientURL(), nil)), uint64(0)
	measure(b, func() error {
		n++
		return w.Append(context.Background(),
			chaingql.Block{Shard: 1 << 63, SeqNo: uint32(n), Cursor: chaingql.SeqCursor(n)})
	})
}

// BenchmarkDelivery measures the time from the start of Append until Follow yields the block, at 100
// blocks per second.
func BenchmarkDelivery(b *testing.B) {
	s := newBroker(b)
	w := writer(b, open(b, s.ClientURL(), nil))
	report(b, deliver(b, w, open(b, s.ClientURL(), nil), 500))
	b.ReportMetric(0, "ns/op")
}

func deliver(b *testing.B, w *natschain.Writer, backend *natschain.Backend, blocks int) (took []time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	arrived := make(chan time.Time, blocks)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, err := range backend.Follow(ctx, "") {
			if err != nil {
				return
			}
			arrived <- time.Now()
		}
	}()
	time.Sleep(100 * time.Millisecond) // until Follow has started, so that its start is not measured
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range blocks {
		<-tick.C
		start := time.Now()
		if err := w.Append(ctx,
			chaingql.Block{Shard: 1 << 63, SeqNo: uint32(i), Cursor: chaingql.SeqCursor(uint64(i))}); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-arrived).Sub(start))
	}
	cancel()
	<-over
	return took
}
