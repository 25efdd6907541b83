package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A weakness is that a server comes to harm by at least one attack of a family:
// that it refuses in other words than wanted is none.
type weakness struct {
	kind, family string
	attacks      string // that have this in their names
	harm         []string
}

// weak servers show that the attacks are ones.
var weak = []weakness{
	{graphqlGo, "fragments", "cycle", []string{dead}},
	{graphqlGo, "nesting", "nil type", []string{dead, sick, slow}},
	{graphqlGo, "nesting", "lists,", []string{dead, sick, slow}},
	{graphqlGo, "nesting", "brackets alone", []string{dead, sick, slow}},
	{graphqlGo, "same names", "one field,", []string{slow, sick}},
	{graphqlGo, "aliases", "of pages", []string{slow, sick}},
	{graphqlGo, "slow peers", "a body", []string{slow}},
	{unlimited, "bodies", "100 MB", []string{memory}},
	{unlimited, "floods", "queries for much", []string{slow, sick, memory}},
	{unlimited, "unread answers", "deaf sockets", []string{slow, sick, memory, dead}},
	{unlimited, "variants", "operations that spread", []string{slow, sick}},
	{unlimited, "full sockets", "64 queries that wait", []string{wrong}}, // all of them are under way
	{unlimited, "full sockets", "257 subscriptions", []string{wrong}},    // are all accepted
	{unlimited, "half messages", "most of a frame (", []string{wrong, memory}},
	{unlimited, "slow peers", "a body", []string{slow}},
	{unlimited, "stalled backend", "200 clients ask for a balance", []string{wrong}}, // 200 calls are under way
}

// patience is how long a weak server is waited for.
const patience = 2 * time.Second

func TestWeakServersComeToHarm(t *testing.T) {
	byName := map[string]family{}
	for _, f := range families(false) {
		byName[f.name] = f
	}
	harmed := func(t *testing.T, w weakness) {
		f := byName[w.family]
		f.attacks = slices.DeleteFunc(slices.Clone(f.attacks), func(a attack) bool { return !strings.Contains(a.name, w.attacks) })
		r := attackWith(f, start(t, w.kind), patience, w.harm...)
		harm := slices.IndexFunc(r.failures, func(f failure) bool { return slices.Contains(w.harm, f.kind) })
		if harm < 0 {
			t.Fatalf("came through %d attacks", r.number)
		}
		fmt.Printf("%s, %s: %s by %.150s\n", w.kind, w.family, r.failures[harm].kind, r.failures[harm].attack+": "+r.failures[harm].text)
	}
	var together []weakness
	for _, w := range weak {
		if !byName[w.family].apart {
			together = append(together, w)
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			harmed(t, w)
		})
	}
	t.Run("one after the other", func(t *testing.T) {
		t.Parallel()
		for _, w := range together {
			t.Run(w.String(), func(t *testing.T) { harmed(t, w) })
		}
	})
}

func (w weakness) String() string { return w.kind + "/" + w.family + "/" + w.attacks }
