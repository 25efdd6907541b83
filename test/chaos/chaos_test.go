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
	blocks      = flag.Int("chaos.blocks", 900, "blocks of the chain, at least 300; the first are recorded ones")
	subscribers = flag.Int("chaos.subscribers", 24, "subscribers, a fifth of them slow")
	rate        = flag.Float64("chaos.rate", 200, "blocks a second")
	cuts        = flag.Int("chaos.cuts", 40, "connections to cut, at least")
	failures    = flag.Int("chaos.failures", 4, "failures of the source, at least")
	holes       = flag.Float64("chaos.holes", 0.01, "chance of each block to be left out by Follow, and to come behind the next one")
	rounds      = flag.Int("chaos.rounds", 1, "how often each fate of a hole comes up")
	seed        = flag.Uint64("chaos.seed", 0, "picks the mischief; 0 takes one from the clock")
	limit       = flag.Duration("chaos.for", 2*time.Minute, "how long the run may take")
	forget      = flag.Bool("chaos.forget", false, "have clients come back without a cursor, which must fail")
	logs        = flag.Bool("chaos.log", false, "show the service's log")
)

// patience is how long nothing may come to anybody who is to get more.
const patience = 15 * time.Second

// queriesDue is how many queries a run has answered, at least.
const queriesDue = 20

// most is how much the heap may have grown when all subscribers are gone: by the
// blocks, which remain, and what is left of pools and the like.
func (s size) most() int64 { return 2<<20 + int64(s.blocks)<<10 }

func thisSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return uint64(time.Now().UnixNano())
}

// live runs worlds at once and takes them down. It checks that nothing is left of
// them.
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
		if w.why != "" {
			t.Log(w.why)
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
			w.people()
			w.run(*limit)
			outcomes[i] = w.outcome()
			t.Log(w.table(outcomes[i], time.Since(start)))
			w.peers, w.subscribers = nil, nil // what they got is the test's own
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
	if stacks := leftBehind(goroutines); stacks != "" {
		t.Errorf("goroutines were left behind:\n%s", stacks)
	}
	if grown > most {
		t.Errorf("the heap has grown by %d kB", grown>>10)
	}
	return worlds, outcomes
}

// warm uses everything once, so that what is made at first use is there when
// the heap is measured.
func warm(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	for i, tr := range transports {
		p := newPeer(w, -i, casting{speaks: tr, filters: w.truth.filters()[:1], begins: w.before() - 1 - settling/6})
		s := p.subs[0]
		w.reading.Go(func() { p.read(ctx) })
		for got := 0; got < settling/6; {
			if !pause(ctx, 5*time.Millisecond) {
				t.Fatalf("subscriber %s has %d of %d blocks before the run, last end: %+v", s.name, got, settling/6, s.last)
			}
			s.mu.Lock()
			got = len(s.got)
			s.mu.Unlock()
		}
	}
	cancel()
	w.reading.Wait()
}

// The fates of holes, in a service that goes on and in one that is replaced.
var (
	found = fate{}
	lost  = fate{lost: true}
	late  = fate{late: true}

	foundByNext = fate{restart: true}
	lostAtNext  = fate{restart: true, lost: true}
)

// TestChaosLosesNothing has a service that goes on, from which Follow leaves out
// more than the source lacks, and one that is replaced in the worst moments. From
// that, nothing else is left out: what nobody has noticed yet, a new service does
// not know.
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
	for _, s := range slices.Concat(o.tellers, w.faults, missed(w.leasts(o))) {
		t.Error(s)
	}
}

// TestChaosCheckCanFail breaks the clients, and must see it.
func TestChaosCheckCanFail(t *testing.T) {
	small := size{blocks: 300, subscribers: 12, cuts: 30, failures: 2, rate: 200}
	forgetful, greedy, stubborn := small, small, small
	forgetful.patience = time.Second
	forgetful.resume, greedy.resume, stubborn.resume = fromNow, tooEarly, keeping
	stubborn.blocks, stubborn.fates = 400, []fate{found, found}
	_, outcomes := live(t, forgetful, greedy, stubborn)
	if o := outcomes[0]; o.lost == 0 {
		t.Errorf("clients came back without a cursor, and nothing was found lost: %+v", o.verdict)
	}
	if o := outcomes[1]; o.twice == 0 || o.lost > 0 || o.gaps > 0 {
		t.Errorf("clients came back a block too early, and not just blocks twice were found: %+v", o)
	}
	if o := outcomes[2]; o.twice == 0 || o.lost > 0 {
		t.Errorf("clients kept their blocks after STREAM_GAP, and not just blocks twice were found: %+v", o.verdict)
	}
}

// A run in which nothing happened must not pass.
func TestChaosMissesWhatDidNotHappen(t *testing.T) {
	all := []least{{"holes", 2, 3}, {"cuts", 3, 3}}
	if got := missed(all); len(got) != 1 || got[0] != "holes: 2, at least 3 were due" {
		t.Errorf("missed: %q", got)
	}
}
