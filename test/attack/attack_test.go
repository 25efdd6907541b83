package attack

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	full = flag.Bool("attack.full", false, "run attacks of all sizes")
	only = flag.String("attack.only", "", "run only attacks whose name contains this text")
	row  = flag.String("attack.size", "", "use this row of the table of sizes in docs/operations.md, such as 512 MB")
	each = flag.Bool("attack.each", false, "print the outcome of each attack")
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(serverKindEnv); kind != "" {
		fmt.Fprintln(os.Stderr, serve(kind))
		os.Exit(1)
	}
	flag.Parse()
	if *each {
		show = func(family string, a attack, o outcome, took usage) {
			fmt.Printf("    %s: %s: %.100s (%v)\n", family, a.name, o, took)
		}
	}
	os.Exit(m.Run())
}

func TestServerSurvivesEveryAttack(t *testing.T) {
	var (
		mu      sync.Mutex // guards results
		results []result
		many    sync.Mutex // held by a family that opens many connections
	)
	attacked := func(t *testing.T, f family, server *child) {
		if f.many {
			many.Lock()
			defer many.Unlock()
		}
		r := attackWith(f, server, 10*time.Second)
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(&r)
		for _, f := range r.failures {
			t.Errorf("%s: attack %q: %s", f.kind, f.attack, f.text)
		}
		results = append(results, r)
	}
	var together []family
	var busy, waiting []test
	for _, f := range families(*full) {
		switch f = chosen(f); {
		case len(f.attacks) == 0:
		case !f.separate:
			together = append(together, f)
		default:
			one := test{f.name, func(t *testing.T) { attacked(t, f, start(t, cmp.Or(f.kind, strong))) }}
			if f.busy {
				busy = append(busy, one)
			} else {
				waiting = append(waiting, one)
			}
		}
	}
	busy = append(busy, test{"one after the other", func(t *testing.T) {
		server := start(t, strong)
		for _, f := range together {
			t.Run(f.name, func(t *testing.T) { attacked(t, f, server) })
		}
	}})
	// One processor for the busy families, and one for the others, which need about a third of it each.
	var all sync.WaitGroup
	all.Go(func() { runAll(t, 1, busy) })
	runAll(t, 2, waiting)
	all.Wait()
	summary(results)
}

// A test is a subtest.
type test struct {
	name string
	run  func(t *testing.T)
}

// runAll runs tests, at most n at the same time. They start in their order, which t.Parallel does not ensure.
func runAll(t *testing.T, n int, tests []test) {
	next := make(chan test)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for test := range next {
				t.Run(test.name, test.run)
			}
		})
	}
	for _, test := range tests {
		next <- test
	}
	close(next)
	all.Wait()
}

func start(t *testing.T, kind string) *child {
	t.Helper()
	server, err := startChild(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.stop)
	s := &target{addr: server.addr}
	tries := 0
	for warm := 0; warm < 20; tries++ { // errors are ignored at first, because many servers start at once
		switch err := s.healthy(); {
		case err == nil:
			warm++
		case tries == 40:
			t.Fatal(err)
		}
	}
	return server
}

// chosen returns f without the attacks that -attack.only excludes.
func chosen(f family) family {
	var kept []attack
	for _, a := range f.attacks {
		if strings.Contains(a.name, *only) {
			kept = append(kept, a)
		}
	}
	f.attacks = kept
	return f
}

func summary(results []result) {
	passed, failed := 0, 0
	for _, r := range results {
		failed += len(r.failures)
		passed += r.number
	}
	fmt.Printf("%d passed, %d failed\n", max(0, passed-failed), failed)
}

func TestAttacksAreDistinct(t *testing.T) {
	names, bodies, n := map[string]bool{}, map[string]string{}, 0
	for _, f := range families(true) {
		for _, a := range f.attacks {
			n++
			name := f.name + ": " + a.name
			if names[name] {
				t.Errorf("duplicate attack name %s", name)
			}
			names[name] = true
			if a.body == nil {
				continue
			}
			if text := a.body(); len(text) < 1<<20 {
				if bodies[text] != "" {
					t.Errorf("attack %s has the same body as %s", name, bodies[text])
				}
				bodies[text] = name
			}
		}
	}
	if n < 500 {
		t.Errorf("found %d attacks, want at least 500", n)
	}
	fmt.Println(n, "attacks of all sizes")
}
