package chaos_test

import (
	"context"
	"flag"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

var (
	blocks = flag.Int("chaos.blocks", 900,
		"number of blocks, at least 300; up to half of them are from a recording")
	subscribers = flag.Int("chaos.subscribers", 24, "number of subscribers, a fifth of which are slow")
	rate        = flag.Float64("chaos.rate", 200, "number of blocks per second")
	cuts        = flag.Int("chaos.cuts", 40, "minimum number of connections to cut")
	failures    = flag.Int("chaos.failures", 4, "minimum number of source failures")
	holes       = flag.Float64("chaos.holes", 0.01,
		"probability that Follow omits a block, and probability that it swaps a block with the next one")
	rounds = flag.Int("chaos.rounds", 1, "number of times that each kind of hole occurs")
	seed   = flag.Uint64("chaos.seed", 0, "random seed of the faults; 0 means a seed from the clock")
	limit  = flag.Duration("chaos.for", 2*time.Minute, "time limit of the run")
	forget = flag.Bool("chaos.forget", false, "let clients resume without a cursor, so that the run fails")
	logs   = flag.Bool("chaos.log", false, "print the log of the service")
)

// progressTimeout is the maximum time that a run may take to make any progress.
const progressTimeout = 15 * time.Second

// queriesDue is the minimum number of queries that the service must answer in a run.
const queriesDue = 20

// maxHeapGrowth returns the maximum heap growth, in bytes, after all subscribers have left. The blocks
// and some pooled memory remain.
func (s size) maxHeapGrowth() int64 { return 2<<20 + int64(s.blocks)<<10 }

// chosenSeed returns the value of -chaos.seed, or a seed from the clock.
func chosenSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return uint64(time.Now().UnixNano())
}

// runWorlds runs one world of each size in parallel and stops them. It checks that no goroutines and
// little memory remain.
func runWorlds(t *testing.T, sizes ...size) ([]*world, []outcome) {
	t.Helper()
	goroutines, seed := runtime.NumGoroutine(), chosenSeed()
	t.Logf("-chaos.seed=%d", seed)
	var worlds []*world
	growthLimit := int64(0)
	for i, s := range sizes {
		w, err := newWorld(s, seed+uint64(i), *logs)
		if err != nil {
			t.Fatal(err)
		}
		warmUp(t, w)
		worlds, growthLimit = append(worlds, w), growthLimit+s.maxHeapGrowth()
	}
	baseline := heap()
	var running sync.WaitGroup
	outcomes := make([]outcome, len(worlds))
	for i, w := range worlds {
		running.Go(func() {
			start := time.Now()
			w.addSubscribers()
			w.run(*limit)
			outcomes[i] = w.outcome()
			t.Log(w.table(outcomes[i], time.Since(start)))
			w.peers, w.subscribers = nil, nil // their memory must not count as heap growth of the service
		})
	}
	running.Wait()
	grown := heap() - baseline
	t.Logf("heap grown: %d kB", grown>>10)
	for _, w := range worlds {
		if err := w.close(); err != nil {
			t.Errorf("closing the service failed: %v", err)
		}
	}
	if stacks := leakedGoroutines(goroutines); stacks != "" {
		t.Errorf("goroutines did not end:\n%s", stacks)
	}
	if grown > growthLimit {
		t.Errorf("heap grew by %d kB, limit %d kB", grown>>10, growthLimit>>10)
	}
	return worlds, outcomes
}

// warmUp subscribes once over each transport. Memory that is allocated on first use thus belongs to the
// baseline and does not count as growth.
func warmUp(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	for i, tr := range transports {
		p := newPeer(w, -i, peerConfig{speaks: tr, filters: w.truth.filters()[:1], begins: w.before() - 1 - settling/6})
		s := p.subs[0]
		w.reading.Go(func() { p.read(ctx) })
		for got := 0; got < settling/6; {
			if !pause(ctx, 5*time.Millisecond) {
				t.Fatalf("before the run, subscriber %s received only %d of %d blocks; "+
					"its last subscription ended with %+v", s.name, got, settling/6, s.last)
			}
			s.mu.Lock()
			got = len(s.got)
			s.mu.Unlock()
		}
	}
	cancel()
	w.reading.Wait()
}

// Fates of holes. The first group is for a service that keeps running, the second for a service that is
// replaced.
var (
	found = fate{}
	lost  = fate{lost: true}
	late  = fate{late: true}

	foundByNext = fate{restart: true}
	lostAtNext  = fate{restart: true, lost: true}
)

// TestChaosSubscribersLoseNoBlocks runs three services. The first keeps running. Its source has holes, and
// its Follow also omits blocks that Blocks has. The second service is replaced while it searches for
// missing blocks. Its Follow omits no other blocks, because a new service cannot know about a gap that
// the old service had not noticed. The chain of the third service has an epoch.
func TestChaosSubscribersLoseNoBlocks(t *testing.T) {
	continuing := size{
		blocks: *blocks, subscribers: *subscribers, cuts: *cuts, failures: *failures, rate: *rate, holes: *holes,
	}
	continuing.fates = slices.Repeat([]fate{found, lost, found, late}, *rounds)[:4**rounds-1]
	replaced := size{blocks: 250 + 250**rounds, subscribers: *subscribers, cuts: 20, failures: 2, rate: 200}
	replaced.fates = slices.Repeat([]fate{foundByNext, lostAtNext}, *rounds)
	epochs := size{
		blocks: 400, subscribers: *subscribers / 2, cuts: 20, failures: 2, rate: 200, fates: []fate{found, lost},
		epoch: "mk2p9q",
	}
	if *forget {
		continuing.resume = fromNow
	}
	worlds, outcomes := runWorlds(t, continuing, replaced, epochs)
	for i, w := range worlds {
		checkOutcome(t, w, outcomes[i])
	}
}

// checkOutcome reports all errors of a run.
func checkOutcome(t *testing.T, w *world, o outcome) {
	t.Helper()
	if o.verdict != (verdict{}) {
		t.Errorf("subscribers received wrong blocks: %+v", o.verdict)
	}
	for _, s := range slices.Concat(o.problems, w.faults, missed(w.required(o))) {
		t.Error(s)
	}
}

// TestChaosDetectsClientsThatViolateProtocol runs clients that violate the protocol. The checks must
// detect the lost or duplicate blocks.
func TestChaosDetectsClientsThatViolateProtocol(t *testing.T) {
	small := size{blocks: 300, subscribers: 12, cuts: 30, failures: 2, rate: 200}
	forgetful, greedy, stubborn := small, small, small
	forgetful.progressTimeout = time.Second
	forgetful.resume, greedy.resume, stubborn.resume = fromNow, tooEarly, keepBlocks
	stubborn.blocks, stubborn.fates = 400, []fate{found, found}
	_, outcomes := runWorlds(t, forgetful, greedy, stubborn)
	if o := outcomes[0]; o.lost == 0 {
		t.Errorf("clients resumed without a cursor, and the check found no lost blocks: %+v", o.verdict)
	}
	if o := outcomes[1]; o.twice == 0 || o.lost > 0 || o.gaps > 0 {
		t.Errorf("clients resumed one block too early, and the check did not find just duplicates: %+v", o)
	}
	if o := outcomes[2]; o.twice == 0 || o.lost > 0 {
		t.Errorf("clients kept their blocks after STREAM_GAP, and the check did not find just duplicates: %+v",
			o.verdict)
	}
}

func TestMissedListsUnmetRequirements(t *testing.T) {
	all := []requirement{{"holes", 2, 3}, {"cuts", 3, 3}}
	if got := missed(all); len(got) != 1 || got[0] != "holes: 2, want at least 3" {
		t.Errorf("missed returns %q, want only the requirement for holes", got)
	}
}
