package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var writersFor = flag.Duration("cluster.writers", 2*time.Second,
	"how long two Writers compete; if at least 10s, brokers are killed meanwhile")

// TestTwoWritersKeepReplicatedStreamIntact lets two Writers append to one stream with three
// replicas. They append single blocks and batches, and the blocks of both Writers are equal
// or different at random. The chain must remain readable and writable, and must contain
// every block whose Append succeeded. The same must hold for a stream that does not allow
// batches.
func TestTwoWritersKeepReplicatedStreamIntact(t *testing.T) {
	for _, batches := range []bool{true, false} {
		t.Run(fmt.Sprintf("batches=%v", batches), func(t *testing.T) { compete(t, batches) })
	}
}

func compete(t *testing.T, batches bool) {
	ctx, cancel := context.WithTimeout(context.Background(), *writersFor+3*time.Minute)
	defer cancel()
	b := replicated(ctx, t, ownProcess)
	if !batches {
		disallowBatches(ctx, t, b)
	}
	g := &contest{stored: map[uint64]chaingql.Block{}}
	var writing sync.WaitGroup
	for i := range 2 {
		w := newContestant(t, b, uint64(i+1))
		writing.Go(func() { g.compete(ctx, t, w) })
	}
	kills := 0
	for end := time.Now().Add(*writersFor); time.Now().Before(end) && !t.Failed(); {
		time.Sleep(time.Second)
		if *writersFor < 10*time.Second {
			continue
		}
		b.stop(kills % machines)
		time.Sleep(time.Second)
		if err := b.start(kills % machines); err != nil {
			t.Fatal(err)
		}
		if !b.current(kills%machines, patience) {
			t.Fatalf("broker %d did not catch up with the others within %v", kills%machines, patience)
		}
		kills++
	}
	g.over.Store(true)
	writing.Wait()
	t.Logf("%d appends of %d blocks succeeded, %d conflicted, %d failed; %d brokers were killed", g.appends,
		len(g.stored), g.conflicts, g.failures, kills)
	if g.conflicts == 0 || g.appends == 0 {
		t.Errorf("got %d successful and %d conflicting Append calls, want some of each", g.appends, g.conflicts)
	}
	g.check(ctx, t, newContestant(t, b, 0))
}

// TestSecondWriterDoesNotBreakReplicatedStream runs the shortest sequence of calls that once
// broke a stream permanently, because messages contained the expected ID of the message
// before them.
func TestSecondWriterDoesNotBreakReplicatedStream(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b := replicated(ctx, t, inProcess)
	first, second := newContestant(t, b, 1), newContestant(t, b, 2)
	if err := first.w.Append(ctx, first.blocks(1, 3)...); err != nil {
		t.Fatal(err)
	}
	if err := second.w.Append(ctx, second.blocks(4, 3)...); err != nil {
		t.Fatal(err)
	}
	if err := first.w.Append(ctx, first.blocks(4, 6)...); !errors.Is(err, natschain.ErrConflict) {
		t.Errorf("Append of blocks that conflict: got error %v, want ErrConflict", err)
	}
	if err := first.w.Append(ctx, first.blocks(7, 3)...); err != nil {
		t.Errorf("Append after the conflict: got error %v, want none", err)
	}
	if page, err := second.b.Blocks(ctx, chaingql.BlocksQuery{First: 20}); err != nil || len(page) != 9 {
		t.Errorf("got %d stored blocks and error %v, want 9", len(page), err)
	}
}

// replicated starts three brokers and creates a chain with three replicas.
func replicated(ctx context.Context, t *testing.T, l launch) *brokers {
	t.Helper()
	b, err := newBrokers(t.TempDir(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	if err := (&cluster{brokers: b}).createChain(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

// disallowBatches changes the block stream so that it does not allow atomic batches, like the
// streams that earlier versions created.
func disallowBatches(ctx context.Context, t *testing.T, b *brokers) {
	t.Helper()
	nc, err := nats.Connect(b.urls())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.AllowAtomicPublish = false
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
}

// A contestant is one of the Writers that append to the same chain, with its Backend.
type contestant struct {
	b    *natschain.Backend
	w    *natschain.Writer
	mark uint64 // distinguishes its blocks from those of other contestants
}

func newContestant(t *testing.T, b *brokers, mark uint64) *contestant {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		backend, err := natschain.Open(ctx, b.urls(), nil)
		if err == nil {
			t.Cleanup(backend.Close)
			var w *natschain.Writer
			if w, err = backend.Writer(ctx); err == nil {
				return &contestant{b: backend, w: w, mark: mark}
			}
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// blocks returns count blocks with consecutive numbers, of which from is the first. Their
// hashes contain the contestant's mark.
func (c *contestant) blocks(from uint64, count int) []chaingql.Block {
	blocks := make([]chaingql.Block, count)
	for i := range blocks {
		n := from + uint64(i)
		blocks[i] = chaingql.Block{Workchain: -1, Shard: wholeShard, SeqNo: uint32(n), Cursor: chaingql.SeqCursor(n)}
		blocks[i].Time = time.Unix(1_700_000_000+int64(n), 0).UTC()
		blocks[i].Hash[0] = byte(c.mark)
	}
	return blocks
}

// A contest records the results of the Append calls of several contestants.
type contest struct {
	over atomic.Bool

	mu                           sync.Mutex
	stored                       map[uint64]chaingql.Block // blocks of successful Append calls, by number
	appends, conflicts, failures int
}

// compete appends blocks until the contest is over. At random, the blocks have the mark 0
// instead of the contestant's own mark, so that several contestants append equal blocks.
func (g *contest) compete(ctx context.Context, t *testing.T, c *contestant) {
	rng := rand.New(rand.NewPCG(c.mark, 7))
	for !g.over.Load() && ctx.Err() == nil {
		newest, err := c.b.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
		if err != nil {
			g.count(func() { g.failures++ })
			continue
		}
		from := uint64(1)
		if len(newest) > 0 {
			from = uint64(newest[0].SeqNo) + 1
		}
		count, own := 1, *c
		if rng.IntN(2) == 0 {
			count = 2 + rng.IntN(40)
		}
		if rng.IntN(2) == 0 {
			own.mark = 0
		}
		blocks := own.blocks(from, count)
		switch err := c.w.Append(ctx, blocks...); {
		case err == nil:
			g.count(func() {
				g.appends++
				for _, b := range blocks {
					if other, known := g.stored[uint64(b.SeqNo)]; known && other != b {
						t.Errorf("two different blocks with number %d were acknowledged", b.SeqNo)
					}
					g.stored[uint64(b.SeqNo)] = b
				}
			})
		case errors.Is(err, natschain.ErrConflict):
			g.count(func() { g.conflicts++ })
		default:
			t.Log(err)
			g.count(func() { g.failures++ })
		}
	}
}

func (g *contest) count(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// check reads the whole chain. The chain must have no gap, contain each block whose Append
// succeeded, and accept more blocks.
func (g *contest) check(ctx context.Context, t *testing.T, c *contestant) {
	t.Helper()
	n := uint64(0)
	for q := (chaingql.BlocksQuery{First: chaingql.MaxPage}); ; {
		page, err := c.b.Blocks(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page {
			if n++; uint64(b.SeqNo) != n {
				t.Fatalf("got block number %d after block number %d, want no gap", b.SeqNo, n-1)
			}
			if acknowledged, known := g.stored[n]; known && acknowledged != b {
				t.Fatalf("stored block %d: got mark %d, want mark %d of the acknowledged block", n, b.Hash[0],
					acknowledged.Hash[0])
			}
			delete(g.stored, n)
		}
		if len(page) < chaingql.MaxPage {
			break
		}
		q.After = page[len(page)-1].Cursor
	}
	if len(g.stored) > 0 {
		t.Errorf("%d acknowledged blocks are not stored", len(g.stored))
	}
	if err := c.w.Append(ctx, c.blocks(n+1, 20)...); err != nil {
		t.Errorf("Append after the contest: got error %v, want none", err)
	}
}
