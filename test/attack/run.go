package attack

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// These are the kinds of failures.
const (
	wrong        = "wrong"        // the outcome is not permitted
	slow         = "slow"         // the attack took too much elapsed or CPU time
	unresponsive = "unresponsive" // an honest client was not served within a second
	dead         = "dead"         // the process exited
	memory       = "memory"       // the server used too much memory during or after the attacks
	goroutines   = "goroutines"   // the server did not release goroutines or files
)

// A failure describes one failed check. The field attack is the name of the attack that reproduces the
// failure.
type failure struct{ kind, attack, text string }

// A result summarizes the attacks of a family.
type result struct {
	family     string
	number     int
	classes    map[string]int
	slowest    time.Duration
	mostCPU    time.Duration // maximum CPU time of the attacks that limit it
	gap        time.Duration // longest time that an honest subscriber waited for a block
	growth     int64         // growth of the RSS until after the attacks, in bytes
	peak       int64         // maximum growth of the RSS, in bytes
	goroutines int           // increase in the number of goroutines
	files      int           // increase in the number of open files
	failures   []failure
}

// These limits apply to each family.
const (
	maxGrowth = 100 << 20
	maxPeak   = 100 << 20
	maxGap    = 2 * time.Second  // an honest subscriber's wait for a block while the server uses CPU time
	maxPause  = 10 * time.Second // an honest subscriber's wait for a block in any case
	maxRest   = 15 * time.Second // time until the server has released goroutines and files
)

// String returns the line of the family in the report.
func (r *result) String() string {
	var classes []string
	for _, class := range slices.Sorted(maps.Keys(r.classes)) {
		classes = append(classes, fmt.Sprintf("%s %d", class, r.classes[class]))
	}
	return fmt.Sprintf("%-20s %4d attacks, %d failed; slowest %v, most CPU %v, blocks waited %v, "+
		"RSS %+.1f MB (peak %+.1f), goroutines %+d, files %+d; %s",
		r.family, r.number, len(r.failures), r.slowest.Round(100*time.Microsecond),
		r.mostCPU.Round(100*time.Microsecond), r.gap.Round(time.Millisecond),
		float64(r.growth)/(1<<20), float64(r.peak)/(1<<20), r.goroutines, r.files, strings.Join(classes, ", "))
}

// maxFailures is the number of failures after which a family is aborted.
const maxFailures = 20

// A run executes the attacks of a family on a server.
type run struct {
	family  family
	server  *child
	timeout time.Duration
	enough  []string // kinds of failure that end the run
	result  result
	mu      sync.Mutex // guards result
}

// show, if not nil, is called after each attack with its outcome.
var show func(family string, a attack, o outcome, took usage)

// attackWith executes the attacks of a family. It stops early after a failure whose kind is in enough,
// after maxFailures failures, or if the server has exited.
func attackWith(f family, server *child, timeout time.Duration, enough ...string) result {
	r := &run{family: f, server: server, timeout: timeout, enough: enough}
	r.result = result{family: f.name, classes: map[string]int{}}
	before, err := server.resetPeaks()
	if err != nil {
		r.fail(dead, "before the attacks", err.Error())
		return r.result
	}
	w := watch(&target{addr: server.addr, timeout: timeout, server: server})
	if f.atOnce {
		var all sync.WaitGroup
		for _, a := range f.attacks {
			all.Go(func() { r.do(a) })
		}
		all.Wait()
	} else {
		for i := 0; i < len(f.attacks) && !r.finished(); i++ {
			r.do(f.attacks[i])
		}
	}
	r.result.gap, err = w.end()
	if err != nil && !server.dead() && server.kind != graphqlGo { // graphqlGo has no sockets
		r.fail(unresponsive, "an honest subscriber", err.Error())
	}
	if !server.dead() {
		r.checkReleased(before, max(f.peak, maxPeak))
	}
	return r.result
}

// checkReleased waits until the server has closed the attackers' connections and then compares its
// resource usage with the state before the attacks.
func (r *run) checkReleased(before state, peak int64) {
	after, err := r.server.settled(before, maxRest)
	if err != nil {
		r.fail(unresponsive, "after all attacks", err.Error())
		return
	}
	res := &r.result
	res.growth, res.peak = after.RSS-before.RSS, after.Peak-before.RSS
	res.goroutines, res.files = after.Goroutines-before.Goroutines, after.Files-before.Files
	if res.growth > maxGrowth || res.peak > peak {
		r.fail(memory, "all attacks", fmt.Sprintf("RSS grew by %d bytes after the attacks, and by %d bytes at its peak",
			res.growth, res.peak))
	}
	if res.goroutines > 0 || res.files > 0 {
		r.fail(goroutines, "all attacks", fmt.Sprintf("%d goroutines and %d files were not released:\n%.4000s",
			res.goroutines, res.files, r.server.stacks()))
	}
}

// finished reports whether the remaining attacks would be pointless.
func (r *run) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server.dead() || len(r.result.failures) >= maxFailures ||
		slices.ContainsFunc(r.result.failures, func(f failure) bool { return slices.Contains(r.enough, f.kind) })
}

func (r *run) fail(kind, attack, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.failures = append(r.result.failures, failure{kind, attack, text})
}

// These errors can also be caused by a busy machine. An attack that fails with one of them is repeated.
var (
	errLate      = errors.New("response was late")
	errUnhealthy = errors.New("honest query failed")
)

// do executes one attack and then checks the server. If the attack or an honest query took too long,
// do repeats the attack, because only a slow server is slow each time.
func (r *run) do(a attack) {
	s := &target{r.server.addr, max(r.timeout, a.within+time.Second), r.family.recent, r.server}
	if a.do == nil {
		text := a.body()
		a.do = func(s *target) (outcome, error) { return s.post(text) }
	}
	again := 1
	if a.within <= usual && r.enough == nil { // a weak server is expected to be slow
		again = 4
	}
	o, took, f := r.attempt(s, a)
	for ; again > 0 && f != nil && (f.kind == slow || f.kind == unresponsive); again-- {
		o, took, f = r.attempt(s, a)
	}
	if show != nil {
		show(r.result.family, a, o, took)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.number++
	if o.class == "" {
		o.class = "failed"
	}
	r.result.classes[o.class]++
	r.result.slowest = max(r.result.slowest, took.time)
	r.result.mostCPU = max(r.result.mostCPU, took.cpu)
	if f != nil {
		r.result.failures = append(r.result.failures, *f)
	}
}

// A usage holds the elapsed and CPU time of an attack.
type usage struct{ time, cpu time.Duration }

func (t usage) String() string {
	text := t.time.Round(time.Microsecond).String()
	if t.cpu > 0 {
		text += ", " + t.cpu.Round(time.Microsecond).String() + " CPU"
	}
	return text
}

// measured executes an attack and measures its usage.
func (r *run) measured(s *target, a attack) (o outcome, took usage, err error) {
	var before, after time.Duration
	if a.cpu > 0 {
		if before, err = r.server.spent(); err != nil {
			return o, took, err
		}
	}
	start := time.Now()
	o, err = a.do(s)
	took.time = time.Since(start)
	if a.cpu > 0 && !r.server.dead() {
		var silent error
		after, silent = r.server.spent()
		took.cpu = after - before
		err = errors.Join(err, silent)
	}
	return o, took, err
}

func (r *run) attempt(s *target, a attack) (outcome, usage, *failure) {
	o, took, err := r.measured(s, a)
	well := s.healthy()
	if well != nil {
		// The process may be exiting. Wait, because its error output may arrive late.
		select {
		case <-r.server.died:
		case <-time.After(time.Second):
		}
	}
	kind, text := wrong, ""
	switch {
	case r.server.dead():
		kind, text = dead, fmt.Sprintf("the server exited: %.300q", r.server.errorOutput())
	case well != nil:
		kind, text = unresponsive, fmt.Sprintf("after the attack: %v (outcome of the attack: %v, %v)", well, o, err)
	case took.time > a.within:
		kind, text = slow, fmt.Sprintf("took %v, limit %v; outcome %v, %v", took, a.within, o, err)
	case took.cpu > a.cpu:
		kind, text = slow, fmt.Sprintf("took %v, CPU limit %v; outcome %v, %v", took, a.cpu, o, err)
	case errors.Is(err, errUnhealthy):
		kind, text = unresponsive, err.Error()
	case errors.Is(err, errLate):
		kind, text = slow, err.Error()
	case err != nil:
		text = err.Error()
	case !o.meets(a.want):
		text = fmt.Sprintf("outcome %q, want %q", o, a.want)
	default:
		return o, took, nil
	}
	if err != nil {
		o.class = ""
	}
	return o, took, &failure{kind, a.name, text}
}
