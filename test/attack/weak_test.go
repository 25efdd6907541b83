package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A weakness states that a kind of server is harmed by at least one of the selected attacks. A refusal
// with an unexpected message is not harm.
type weakness struct {
	kind, family string   // kind of the server and family of the attacks
	attacks      string   // selects the attacks whose names contain this text
	harm         []string // kinds of failure that count as harm
}

// weak lists the harm that weak servers must suffer. It proves that the attacks are effective.
var weak = []weakness{
	{epochless, "epochs", "~other", []string{wrong}}, // pages of the other chain
	{graphqlGo, "fragments", "cycle", []string{dead}},
	{graphqlGo, "nesting", "nil type", []string{dead, unresponsive, slow}},
	{graphqlGo, "nesting", "lists,", []string{dead, unresponsive, slow}},
	{graphqlGo, "nesting", "brackets alone", []string{dead, unresponsive, slow}},
	{graphqlGo, "same names", "one field,", []string{slow, unresponsive}},
	{graphqlGo, "aliases", "of pages", []string{slow, unresponsive}},
	{graphqlGo, "slow peers", "a body", []string{slow}},
	{unlimited, "arguments of host fields", "20 variables", []string{wrong}},                 // all are accepted
	{unlimited, "single blocks", "aliases and once without", []string{wrong}},                // all are answered
	{unlimited, "ranges of masterchain blocks", "aliases and once without", []string{wrong}}, // all are answered
	{unlimited, "bodies", "100 MB", []string{memory}},
	{unlimited, "floods", "endless expensive queries", []string{slow, unresponsive, memory}},
	{unlimited, "unread responses", "sockets that do not read", []string{slow, unresponsive, memory, dead}},
	{unlimited, "variants", "operations that spread", []string{slow, unresponsive}},
	{unlimited, "full sockets", "64 queries that wait", []string{wrong}}, // all 64 run
	{unlimited, "full sockets", "257 subscriptions", []string{wrong}},    // all 257 are accepted
	{unlimited, "incomplete messages", "most of a frame (", []string{wrong, memory}},
	{unlimited, "slow peers", "a body", []string{slow}},
	{unlimited, "stalled backend", "200 clients ask for a balance", []string{wrong}}, // 200 calls run
}

// weakTimeout is the timeout of requests to weak servers.
const weakTimeout = 2 * time.Second

func TestAttacksHarmServersWithKnownWeaknesses(t *testing.T) {
	byName := map[string]family{}
	for _, f := range families(false) {
		byName[f.name] = f
	}
	harmed := func(t *testing.T, w weakness) {
		f := byName[w.family]
		f.attacks = slices.DeleteFunc(slices.Clone(f.attacks), func(a attack) bool {
			return !strings.Contains(a.name, w.attacks)
		})
		r := attackWith(f, start(t, w.kind), weakTimeout, w.harm...)
		harm := slices.IndexFunc(r.failures, func(f failure) bool { return slices.Contains(w.harm, f.kind) })
		if harm < 0 {
			t.Fatalf("none of %d attacks harmed the server", r.number)
		}
		fmt.Printf("%s, %s: %s by %.150s\n", w.kind, w.family, r.failures[harm].kind,
			r.failures[harm].attack+": "+r.failures[harm].text)
	}
	var together []weakness
	var tests []test
	for _, w := range weak {
		if byName[w.family].separate {
			tests = append(tests, test{w.String(), func(t *testing.T) { harmed(t, w) }})
		} else {
			together = append(together, w)
		}
	}
	runAll(t, 8, append(tests, test{"one after the other", func(t *testing.T) {
		for _, w := range together {
			t.Run(w.String(), func(t *testing.T) { harmed(t, w) })
		}
	}}))
}

func (w weakness) String() string { return w.kind + "/" + w.family + "/" + w.attacks }
