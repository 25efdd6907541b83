package soak_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

var (
	length = flag.Duration("soak.for", 2*time.Second,
		"duration of the load, without the warm-up of a tenth and the shutdown")
	restarts = flag.Int("soak.restarts", 1, "number of restarts of the service")
	busy     = flag.Float64("soak.busy", 0.6, "share of the machine's CPU time to use")
	leakFlag = flag.Bool("soak.leak", false, "let the service keep some data of each request; the run must then fail")
	forget   = flag.Bool("soak.forget", false, "let subscribers resume without a cursor; the run must then fail")
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(serviceKindEnv); kind != "" {
		if err := serve(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 5*time.Second))
}

// sizeFor returns the parameters of a run that takes the time length.
func sizeFor(length time.Duration) size {
	within := func(least, d, most time.Duration) time.Duration { return min(max(least, d), most) }
	return size{
		length: length, restarts: *restarts, busy: *busy,
		warm:        within(time.Second, length/10, time.Minute),
		every:       within(time.Second, length/20, 30*time.Second),
		stay:        within(time.Second, length/30, 20*time.Second),
		releaseTime: 20 * time.Second,
	}
}

func TestSoakReleasesAllResources(t *testing.T) {
	s := sizeFor(*length)
	s.leak, s.forget = *leakFlag, *forget
	for _, fault := range soak(t, s) {
		t.Error(fault)
	}
}

func TestSoakDetectsLeaksAndLostBlocks(t *testing.T) {
	s := sizeFor(2 * time.Second)
	s.leak, s.forget, s.releaseTime = true, true, 2*time.Second
	faults := strings.Join(soak(t, s), "\n")
	due := []string{"lost or duplicate", "goroutines"}
	if !raceEnabled {
		due = append(due, "memory")
	}
	for _, word := range due {
		if !strings.Contains(faults, word) {
			t.Errorf("no fault mentions %s: %s", word, faults)
		}
	}
}

// soak runs a world and returns its faults.
func soak(t *testing.T, s size) (faults []string) {
	t.Helper()
	if _, err := stat("/proc/stat", "cpu "); err != nil {
		testkit.Missing(t, "/proc")
	}
	kind := sound
	if s.leak {
		kind = leaking
	}
	c, err := startChild(kind)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	warming := &world{size: s, t: t, child: c}
	warming.every = s.length + s.warm
	if err := warming.load(s.warm, 1); err != nil {
		t.Fatal(err)
	}
	before, err := c.settled(nil, s.releaseTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("warm: %v", before)
	w := &world{size: s, t: t, child: c}
	w.pace.Store(warming.pace.Load())
	if err := w.load(s.length, s.restarts); err != nil {
		t.Fatal(err)
	}
	after, err := c.settled(&before, s.releaseTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(w.table(before, after))
	faults = append(warming.faults, w.faults...)
	most := before.memory() / 10
	if s.length < time.Minute {
		most += 8 << 20 // a short warm-up does not fill all caches and pools
	}
	// The race detector does not return its own memory.
	if grown := after.memory() - before.memory(); grown > most && !raceEnabled {
		faults = append(faults, fmt.Sprintf("memory has grown by %.1f MB: %v, then %v", float64(grown)/1e6, before,
			after))
	}
	if after.Goroutines > before.Goroutines || after.files > before.files {
		h, err := c.ask("stacks")
		faults = append(faults, fmt.Sprintf("goroutines or files leaked: %v, then %v (%v)\n%s", before, after, err,
			h.Stacks))
	}
	return faults
}

// table formats the figures of a run.
func (w *world) table(before, after usage) string {
	var t strings.Builder
	for _, row := range [][2]any{
		{"load", fmt.Sprintf("%v, after a warm-up of %v", w.length, w.warm)},
		{"restarts of the service, failures of its source", fmt.Sprintf("%d, %d", w.restarted,
			w.blocks/interruptEvery)},
		{"CPU", w.mean},
		{"honest queries", fmt.Sprintf("%d, %v", w.answered.Load(), &w.latency)},
		{"blocks to honest subscribers", fmt.Sprintf("%d (of %d committed), from commit to receipt %v",
			w.delivered.Load(), w.blocks, &w.delivery)},
		{"hostile connections", w.hostilities.Load()},
		{"responses by code", &w.codes},
		{"SERVICE_UNAVAILABLE during restarts", w.unavailable.Load()},
		{"wrong responses, lost blocks, other errors", w.wrong.Load()},
		{"after warm-up", before},
		{"at the end", after},
		{"memory without free pages", fmt.Sprintf("%+.1f %%",
			100*float64(after.memory()-before.memory())/float64(before.memory()))},
	} {
		fmt.Fprintf(&t, "\n| %s | %v |", row[0], row[1])
	}
	return t.String()
}
