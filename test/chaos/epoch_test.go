package chaos_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// TestChaosStreamsNeverMixBlocksOfTwoChains replaces the chain under 60 subscribers, whose connections are cut and
// whose sessions expire. The new chain has other blocks at the positions of the old one, and grows past them. All
// streams must end with EPOCH_CHANGED and without a cursor, and without a block of the new chain. All subscribers then
// start before the first block of the new chain, and must receive each of its blocks. Then 1,000 clients resume with
// cursors of the old chain, and all must receive the same error.
func TestChaosStreamsNeverMixBlocksOfTwoChains(t *testing.T) {
	seed := chosenSeed()
	t.Logf("-chaos.seed=%d", seed)
	w, err := newWorld(size{blocks: 1000, subscribers: 60, cuts: 30, failures: 4, rate: 200, epoch: "mk2p9q"}, seed,
		*logs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Errorf("closing the service failed: %v", err)
		}
	}()
	w.addSubscribers()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer w.reading.Wait()
	defer cancel()
	for _, p := range w.peers {
		w.reading.Go(func() { p.read(ctx) })
	}
	w.reading.Go(func() { w.cut(ctx) })
	committed := w.before()
	all := func(when func(s *subscriber) bool) bool {
		for _, s := range w.subscribers {
			s.mu.Lock()
			ok := when(s)
			s.mu.Unlock()
			if !ok {
				return false
			}
		}
		return true
	}
	began := func(s *subscriber) bool { return len(s.got) > 0 || s.filter.name != "all" && s.tally.connections > 0 }
	for ; committed < w.blocks/4 || !all(began); committed++ {
		if committed == w.blocks || !pause(ctx, 5*time.Millisecond) {
			t.Fatalf("some subscribers received no block of the old chain:\n%s", w.lagging())
		}
		if err := w.source.Append(w.truth.blocks[committed]); err != nil {
			t.Fatal(err)
		}
	}

	w.allCommitted.Store(true) // no more cuts
	w.replaceChain(ctx, t, committed, seed)
	w.wait(ctx, progressTimeout, func() bool {
		return all(func(s *subscriber) bool { return s.truth == w.next && s.done() })
	})
	direct := map[string]int{}
	for _, s := range w.subscribers {
		s.mu.Lock()
		switch {
		case s.truth != w.next:
			t.Errorf("subscriber %s did not end with %s; its last end: %+v", s.name, epochChanged, s.last)
		case s.until > 0 && s.peer.steady && s.directly:
			direct[s.peer.speaks.name]++
		case s.until > 0 && s.peer.steady:
			t.Errorf("subscriber %s had to subscribe again to receive %s", s.name, epochChanged)
		}
		if s.wrong != "" {
			t.Errorf("subscriber %s: %s", s.name, s.wrong)
		}
		if due := s.matching(); !slices.Equal(s.got, due) {
			t.Errorf("subscriber %s received %d blocks of the new chain, want exactly the %d that match; "+
				"its last end: %+v", s.name, len(s.got), len(due), s.last)
		}
		s.mu.Unlock()
	}
	for _, tr := range transports {
		if direct[tr.name] == 0 {
			t.Errorf("no running stream over %s ended with %s", tr.name, epochChanged)
		}
	}
	if n := w.resumeAll(ctx, t, 1000); n != 1000 {
		t.Errorf("of 1000 clients that resumed, %d received %s", n, epochChanged)
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
}

// replaceChain replaces the chain, of which some blocks have been committed, and lets the new one grow past it.
func (w *world) replaceChain(ctx context.Context, t *testing.T, committed int, seed uint64) {
	t.Helper()
	blocks := extend(nil, 3*w.blocks, rand.New(rand.NewPCG(seed, 9)))
	next := slices.IndexFunc(blocks, func(b chaingql.Block) bool { return b.Cursor > w.truth.blocks[committed].Cursor })
	if next < 0 || next+settling > len(blocks) {
		t.Fatal("the new chain is shorter than the old one")
	}
	blocks = blocks[:next+settling]
	w.next = truthOf(blocks)
	w.next.epoch = "x7"
	for _, s := range w.subscribers {
		s.mu.Lock()
		if s.connected {
			s.until = s.tally.connections
		}
		s.mu.Unlock()
	}
	w.replacing.Store(true)
	w.source.Replace(w.next.epoch)
	if err := w.source.Append(blocks[:next]...); err != nil {
		t.Fatal(err)
	}
	w.reading.Go(func() {
		for ; next < len(blocks) && pause(ctx, 5*time.Millisecond); next++ {
			if err := w.source.Append(blocks[next]); err != nil {
				w.fault("appending a block to the new chain failed: %v", err)
			}
		}
	})
}

// resumeAll lets n clients resume once from positions of the subscribers. It returns how many received EPOCH_CHANGED.
func (w *world) resumeAll(ctx context.Context, t *testing.T, n int) int {
	var next, refused atomic.Int64
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				from := w.subscribers[i%len(w.subscribers)]
				p := newPeer(w, w.size.subscribers+i, peerConfig{
					speaks: transports[i%len(transports)], filters: []filter{from.filter}, steady: true, own: i%2 == 0,
				})
				p.once = true
				s := p.subs[0]
				s.at, s.tally.connections = from.refused, 1
				reason := p.speaks.connect(ctx, p)
				p.client.CloseIdleConnections()
				switch {
				case s.wrong != "" || len(s.got) > 0:
					t.Errorf("client %s resumed from %q, received %d blocks: %s", s.name, from.refused, len(s.got),
						s.wrong)
				case s.truth == w.next:
					refused.Add(1)
				default:
					t.Logf("client %s resumed from %q: %s, %+v", s.name, from.refused, reason, s.last)
				}
			}
		})
	}
	running.Wait()
	return int(refused.Load())
}
