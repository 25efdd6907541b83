package chaos_test

import (
	"context"
	"flag"
	"runtime"
	"testing"
	"time"
)

var (
	blocks      = flag.Int("chaos.blocks", 400, "blocks of the chain, at least 200; the first are recorded ones")
	subscribers = flag.Int("chaos.subscribers", 24, "subscribers, a fifth of them slow")
	rate        = flag.Float64("chaos.rate", 100, "blocks a second")
	cuts        = flag.Int("chaos.cuts", 40, "connections to cut, at least")
	failures    = flag.Int("chaos.failures", 4, "failures of the source, at least")
	holes       = flag.Float64("chaos.holes", 0.01, "chance of each block to be left out by the source, and to come behind the next one")
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

// live runs a world and takes it down. It checks that nothing is left of it.
func live(t *testing.T, s size, patience time.Duration) (*world, outcome) {
	t.Helper()
	start, seed := time.Now(), thisSeed()
	t.Logf("-chaos.seed=%d", seed)
	goroutines := runtime.NumGoroutine()
	w, err := newWorld(s, seed, *logs)
	if err != nil {
		t.Fatal(err)
	}
	if w.why != "" {
		t.Log(w.why)
	}
	warm(t, w)
	baseline := heap()
	w.people()
	w.run(*limit, patience)
	o := w.outcome()
	for _, s := range w.subscribers {
		*s = subscriber{slow: s.slow} // what it got is the test's own
	}
	grown := heap() - baseline
	if err := w.close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if stacks := leftBehind(goroutines); stacks != "" {
		t.Errorf("goroutines were left behind:\n%s", stacks)
	}
	if grown > s.most() {
		t.Errorf("the heap has grown by %d kB", grown>>10)
	}
	t.Log(w.table(o, time.Since(start), grown))
	return w, o
}

// warm uses everything once, so that what is made at first use is there when
// the heap is measured.
func warm(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	for i, tr := range transports {
		s := newSubscriber(w, -i, false, tr, w.truth.filters()[0], w.before()-1-settling/6, byCursor)
		w.reading.Go(func() { s.read(ctx) })
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

func TestChaosLosesNothing(t *testing.T) {
	s := size{blocks: *blocks, subscribers: *subscribers, cuts: *cuts, failures: *failures, rate: *rate, holes: *holes}
	if *forget {
		s.resume = fromNow
	}
	w, o := live(t, s, patience)
	losesNothing(t, w, o)
}

// TestChaosServiceIsReplaced has no holes: what the old service left out, and
// did not come to tell, the new one does not know.
func TestChaosServiceIsReplaced(t *testing.T) {
	w, o := live(t, size{blocks: 240, subscribers: 24, cuts: 20, failures: 2, rate: 200, replaced: true}, patience)
	losesNothing(t, w, o)
	if o.told == 0 {
		t.Error("nobody was told where it stood when the service was replaced")
	}
}

func losesNothing(t *testing.T, w *world, o outcome) {
	t.Helper()
	if o.verdict != (verdict{}) {
		t.Errorf("lost %d, twice %d, out of order %d, strange %d", o.lost, o.twice, o.disordered, o.strange)
	}
	for _, s := range o.tellers {
		t.Error(s)
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
	n := w.chaos.Counts()
	for _, least := range []struct {
		what       string
		n, atLeast int
	}{
		{"failures of the source", n.Failures, w.failures},
		{"connections cut", int(w.cutsMade()), w.cuts},
		{"subscribers told CURSOR_TOO_OLD", int(w.told.Load()), len(transports)},
		{"queries answered", int(w.queries.answered.Load()), queriesDue},
		{"blocks caught up from the window", int(w.host.recent.Load()), 1},
		{"blocks caught up from the backend", int(w.host.stored.Load()), 1},
	} {
		if least.n < least.atLeast {
			t.Errorf("%s: %d, at least %d were due", least.what, least.n, least.atLeast)
		}
	}
}

// TestChaosCheckCanFail breaks the clients, and must see it.
func TestChaosCheckCanFail(t *testing.T) {
	small := size{blocks: 200, subscribers: 12, cuts: 30, failures: 2, rate: 200}
	t.Run("clients that come back without a cursor lose blocks", func(t *testing.T) {
		small.resume = fromNow
		if _, o := live(t, small, time.Second); o.lost == 0 {
			t.Errorf("nothing was found lost: %+v", o)
		}
	})
	t.Run("clients that come back a block too early get it twice", func(t *testing.T) {
		small.resume = tooEarly
		if _, o := live(t, small, patience); o.twice == 0 || o.lost > 0 {
			t.Errorf("not just blocks twice were found: %+v", o)
		}
	})
}
