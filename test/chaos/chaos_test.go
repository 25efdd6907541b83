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
	blocks      = flag.Int("chaos.blocks", 900, "number of blocks, at least 300; the first ones are recorded")
	subscribers = flag.Int("chaos.subscribers", 24, "number of subscribers; a fifth of them is slow")
	rate        = flag.Float64("chaos.rate", 200, "blocks per second")
	cuts        = flag.Int("chaos.cuts", 40, "minimum number of connections to cut")
	failures    = flag.Int("chaos.failures", 4, "minimum number of source failures")
	holes       = flag.Float64("chaos.holes", 0.01, "probability that Follow omits a block, and that it swaps a block with the next one")
	rounds      = flag.Int("chaos.rounds", 1, "how often each kind of hole occurs")
	seed        = flag.Uint64("chaos.seed", 0, "random seed of the faults; 0 uses the clock")
	limit       = flag.Duration("chaos.for", 2*time.Minute, "time limit of the run")
	forget      = flag.Bool("chaos.forget", false, "let clients resume without a cursor; the run must then fail")
	logs        = flag.Bool("chaos.log", false, "show the service's log")
)

// progressTimeout is the maximum time without progress.
const progressTimeout = 15 * time.Second

// queriesDue is the minimum number of queries that a run must answer.
const queriesDue = 20

// most returns the maximum heap growth after all subscribers have left, in bytes: the blocks
// remain, and some pooled memory.
func (s size) most() int64 { return 2<<20 + int64(s.blocks)<<10 }

func thisSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return uint64(time.Now().UnixNano())
}

// live runs worlds in parallel, stops them, and checks that no goroutines and little memory remain.
func live(t *testing.T, sizes ...size) ([]*world, []outcome) {
	t.Helper()
	goroutines, seed := runtime.NumGoroutine(), thisSeed()
	t.Logf("-chaos.seed=%d", seed)
	var worlds []*world
	most := int64(0)
	for i, s := range sizes {
		w, err := newWorld(s, seed+uint64(i), *logs)
		if err != nil {
			t.Fatal(err)
		}
		warm(t, w)
		worlds, most = append(worlds, w), most+s.most()
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
			w.peers, w.subscribers = nil, nil // belongs to the test and would count as heap growth
		})
	}
	running.Wait()
	grown := heap() - baseline
	t.Logf("heap grown: %d kB", grown>>10)
	for _, w := range worlds {
		if err := w.close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if stacks := leakedGoroutines(goroutines); stacks != "" {
		t.Errorf("goroutines leaked:\n%s", stacks)
	}
	if grown > most {
		t.Errorf("the heap has grown by %d kB, limit %d kB", grown>>10, most>>10)
	}
	return worlds, outcomes
}

// warm uses every transport once, so that memory that is allocated on first use is part of the
// baseline.
func warm(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	for i, tr := range transports {
		p := newPeer(w, -i, peerConfig{speaks: tr, filters: w.truth.filters()[:1], begins: w.before() - 1 - settling/6})
		s := p.subs[0]
		w.reading.Go(func() { p.read(ctx) })
		for got := 0; got < settling/6; {
			if !pause(ctx, 5*time.Millisecond) {
				t.Fatalf("before the run, subscriber %s has %d of %d blocks; last end: %+v", s.name, got, settling/6, s.last)
			}
			s.mu.Lock()
			got = len(s.got)
			s.mu.Unlock()
		}
	}
	cancel()
	w.reading.Wait()
}

// Fates of holes in a service that keeps running and in one that is replaced.
var (
	found = fate{}
	lost  = fate{lost: true}
	late  = fate{late: true}

	foundByNext = fate{restart: true}
	lostAtNext  = fate{restart: true, lost: true}
)

// TestChaosLosesNothing runs two services. One keeps running, while Follow omits blocks that Blocks
// has, too. The other is replaced during searches for missing blocks. Its Follow omits no other
// blocks: a new service cannot know about a gap that the old one had not noticed.
func TestChaosLosesNothing(t *testing.T) {
	goesOn := size{
		blocks: *blocks, subscribers: *subscribers, cuts: *cuts, failures: *failures, rate: *rate, holes: *holes,
	}
	goesOn.fates = slices.Repeat([]fate{found, lost, found, late}, *rounds)[:4**rounds-1]
	replaced := size{blocks: 250 + 250**rounds, subscribers: *subscribers, cuts: 20, failures: 2, rate: 200}
	replaced.fates = slices.Repeat([]fate{foundByNext, lostAtNext}, *rounds)
	if *forget {
		goesOn.resume = fromNow
	}
	worlds, outcomes := live(t, goesOn, replaced)
	for i, w := range worlds {
		losesNothing(t, w, outcomes[i])
	}
}

func losesNothing(t *testing.T, w *world, o outcome) {
	t.Helper()
	if o.verdict != (verdict{}) {
		t.Errorf("%+v", o.verdict)
	}
	for _, s := range slices.Concat(o.problems, w.faults, missed(w.required(o))) {
		t.Error(s)
	}
}

// TestChaosCheckCanFail runs clients that violate the protocol. The check must notice.
func TestChaosCheckCanFail(t *testing.T) {
	small := size{blocks: 300, subscribers: 12, cuts: 30, failures: 2, rate: 200}
	forgetful, greedy, stubborn := small, small, small
	forgetful.progressTimeout = time.Second
	forgetful.resume, greedy.resume, stubborn.resume = fromNow, tooEarly, keeping
	stubborn.blocks, stubborn.fates = 400, []fate{found, found}
	_, outcomes := live(t, forgetful, greedy, stubborn)
	if o := outcomes[0]; o.lost == 0 {
		t.Errorf("clients resumed without a cursor, but no lost blocks were found: %+v", o.verdict)
	}
	if o := outcomes[1]; o.twice == 0 || o.lost > 0 || o.gaps > 0 {
		t.Errorf("clients resumed one block too early; want only duplicates: %+v", o)
	}
	if o := outcomes[2]; o.twice == 0 || o.lost > 0 {
		t.Errorf("clients kept their blocks after STREAM_GAP; want only duplicates: %+v", o.verdict)
	}
}

// A run fails for each event that missed lists.
func TestMissedListsEventsThatOccurredTooSeldom(t *testing.T) {
	all := []least{{"holes", 2, 3}, {"cuts", 3, 3}}
	if got := missed(all); len(got) != 1 || got[0] != "holes: 2, at least 3 were due" {
		t.Errorf("missed: %q", got)
	}
}
