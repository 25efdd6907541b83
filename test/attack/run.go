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

// Kinds of failures.
const (
	wrong      = "wrong"      // came to something else than wanted, or to what no answer may be
	slow       = "slow"       // took too long, or too much processor time
	sick       = "sick"       // an honest client was not served within a second
	dead       = "dead"       // the process ended
	memory     = "memory"     // the server kept, or took, too much of it
	goroutines = "goroutines" // or files: not all came back
)

// A failure is something that must not be; attack is what to do to see it again.
type failure struct{ kind, attack, text string }

// A result is what came of a family.
type result struct {
	family     string
	number     int
	classes    map[string]int
	slowest    time.Duration
	dearest    time.Duration // in processor time, of those held to some
	gap        time.Duration // longest between two rounds of blocks for an honest subscriber
	growth     int64         // of RSS, bytes
	peak       int64         // what RSS grew by at most
	goroutines int           // more, or fewer, than before
	files      int           // so, too: file descriptors
	failures   []failure
}

// Bounds of a family.
const (
	maxGrowth = 100 << 20
	maxPeak   = 100 << 20
	maxGap    = 2 * time.Second  // in which the server is at work: others take of the same processors
	maxPause  = 10 * time.Second // in which it may do nothing
	maxRest   = 15 * time.Second // until goroutines are back
)

// String is the family's line of the table.
func (r *result) String() string {
	var classes []string
	for _, class := range slices.Sorted(maps.Keys(r.classes)) {
		classes = append(classes, fmt.Sprintf("%s %d", class, r.classes[class]))
	}
	return fmt.Sprintf("%-20s %4d attacks, %d failed; slowest %v, dearest %v, blocks waited %v, RSS %+.1f MB (peak %+.1f), goroutines %+d, files %+d; %s",
		r.family, r.number, len(r.failures), r.slowest.Round(100*time.Microsecond), r.dearest.Round(100*time.Microsecond), r.gap.Round(time.Millisecond),
		float64(r.growth)/(1<<20), float64(r.peak)/(1<<20), r.goroutines, r.files, strings.Join(classes, ", "))
}

// tired is how many failures of a family are enough.
const tired = 20

// A run does a family's attacks on a server.
type run struct {
	family   family
	server   *child
	patience time.Duration
	enough   []string // kinds of failures of which one ends the run
	result   result
	mu       sync.Mutex // guards result while attacks are done at once
}

// show is told of each attack and what it came to, if it is not nil.
var show func(family string, a attack, o outcome, took toll)

// attackWith does all attacks of a family on a server, up to a failure that is
// enough.
func attackWith(f family, server *child, patience time.Duration, enough ...string) result {
	r := &run{family: f, server: server, patience: patience, enough: enough}
	r.result = result{family: f.name, classes: map[string]int{}}
	before, err := server.anew()
	if err != nil {
		r.fail(dead, "before the first", err.Error())
		return r.result
	}
	w := watch(&site{addr: server.addr, patience: patience, server: server})
	if f.atOnce {
		var all sync.WaitGroup
		for _, a := range f.attacks {
			all.Go(func() { r.do(a) })
		}
		all.Wait()
	} else {
		for i := 0; i < len(f.attacks) && !r.over(); i++ {
			r.do(f.attacks[i])
		}
	}
	r.result.gap, err = w.end()
	if err != nil && !server.dead() && server.kind != graphqlGo { // which has no sockets
		r.fail(sick, "an honest subscriber beside them", err.Error())
	}
	if !server.dead() {
		r.rest(before, max(f.peak, maxPeak))
	}
	return r.result
}

// rest compares what the server holds, once it has let go of connections, with
// what it held before.
func (r *run) rest(before state, peak int64) {
	after, err := r.server.settled(before, maxRest)
	if err != nil {
		r.fail(sick, "after all", err.Error())
		return
	}
	res := &r.result
	res.growth, res.peak = after.RSS-before.RSS, after.Peak-before.RSS
	res.goroutines, res.files = after.Goroutines-before.Goroutines, after.Files-before.Files
	if res.growth > maxGrowth || res.peak > peak {
		r.fail(memory, "all of them", fmt.Sprintf("RSS grew by %d bytes, by %d at most", res.growth, res.peak))
	}
	if res.goroutines > 0 || res.files > 0 {
		r.fail(goroutines, "all of them", fmt.Sprintf("%d goroutines and %d files more than before:\n%.4000s",
			res.goroutines, res.files, r.server.stacks()))
	}
}

// over reports whether it is no use to go on.
func (r *run) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server.dead() || len(r.result.failures) >= tired ||
		slices.ContainsFunc(r.result.failures, func(f failure) bool { return slices.Contains(r.enough, f.kind) })
}

func (r *run) fail(kind, attack, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.failures = append(r.result.failures, failure{kind, attack, text})
}

// Errors of attacks that may be the machine's, which is busy with other things.
var (
	errLate   = errors.New("late")
	errUnwell = errors.New("an honest query")
)

// do does one attack and looks after the server. Where something took too long
// it does so again: what is slow of itself is so each time.
func (r *run) do(a attack) {
	s := &site{r.server.addr, max(r.patience, a.within+time.Second), r.family.recent, r.server, r.family.honest}
	if a.do == nil {
		text := a.body()
		a.do = func(s *site) (outcome, error) { return s.post(text) }
	}
	again := 1
	if a.within <= usual && r.enough == nil { // weak servers are slow enough
		again = 4
	}
	o, took, f := r.attempt(s, a)
	for ; again > 0 && f != nil && (f.kind == slow || f.kind == sick); again-- {
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
	r.result.dearest = max(r.result.dearest, took.effort)
	if f != nil {
		r.result.failures = append(r.result.failures, *f)
	}
}

// A toll is what an attack took.
type toll struct{ time, effort time.Duration }

func (t toll) String() string {
	text := t.time.Round(time.Microsecond).String()
	if t.effort > 0 {
		text += ", " + t.effort.Round(time.Microsecond).String() + " of processors"
	}
	return text
}

// measured does what an attack does.
func (r *run) measured(s *site, a attack) (o outcome, took toll, err error) {
	var before, after time.Duration
	if a.effort > 0 {
		if before, err = r.server.spent(); err != nil {
			return o, took, err
		}
	}
	start := time.Now()
	o, err = a.do(s)
	took.time = time.Since(start)
	if a.effort > 0 && !r.server.dead() {
		var silent error
		after, silent = r.server.spent()
		took.effort = after - before
		err = errors.Join(err, silent)
	}
	return o, took, err
}

func (r *run) attempt(s *site, a attack) (outcome, toll, *failure) {
	o, took, err := r.measured(s, a)
	well := s.healthy()
	if well != nil {
		// Of a process that is ending, the output comes a little later.
		select {
		case <-r.server.died:
		case <-time.After(time.Second):
		}
	}
	kind, text := wrong, ""
	switch {
	case r.server.dead():
		kind, text = dead, fmt.Sprintf("the server died: %.300q", r.server.said())
	case well != nil:
		kind, text = sick, fmt.Sprintf("afterwards: %v (came to %v, %v)", well, o, err)
	case took.time > a.within:
		kind, text = slow, fmt.Sprintf("took %v, may take %v; came to %v, %v", took, a.within, o, err)
	case took.effort > a.effort:
		kind, text = slow, fmt.Sprintf("took %v, may take %v of them; came to %v, %v", took, a.effort, o, err)
	case errors.Is(err, errUnwell):
		kind, text = sick, err.Error()
	case errors.Is(err, errLate):
		kind, text = slow, err.Error()
	case err != nil:
		text = err.Error()
	case !o.meets(a.want):
		text = fmt.Sprintf("came to %q, wanted %q", o, a.want)
	default:
		return o, took, nil
	}
	if err != nil {
		o.class = ""
	}
	return o, took, &failure{kind, a.name, text}
}
