package plan

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/chaingql/chaingql/internal/testkit"
)

// gqlparser's rule, which compares all pairs of fields, is fast enough for documents of this size.
func TestFieldConflictsMatchPairwiseComparison(t *testing.T) {
	s := testSchema(t)
	g := rand.New(rand.NewPCG(5, 6))
	good, bad := 0, 0
	texts := testkit.Sample(t, 30_000)
	for range texts {
		text := "{" + overlapping(g, s, "Node", 4) + "}"
		text = "{node" + text + "}"
		for name, on := range map[string]string{"A": "Cat", "B": "Node"} {
			if strings.Contains(text, "..."+name) {
				text += " fragment " + name + " on " + on + "{" + overlapping(g, s, on, 2) + "}"
			}
		}
		tree, _ := parsed(t, text)
		theirs := 0
		events := &core.Events{}
		rules.OverlappingFieldsCanBeMergedRule.RuleFunc(events, func(...core.ErrorOption) { theirs++ })
		core.Walk(s.types, tree, events)
		if errs := newMerger(s).merge(tree.Operations[0], 10_000); (errs != nil) != (theirs > 0) {
			t.Fatalf("%s\ngot errors %v, but pairwise comparison finds %d conflicts", text, errs, theirs)
		} else if errs != nil {
			bad++
		} else {
			good++
		}
	}
	if t.Logf("%d without and %d with conflicts", good, bad); good < texts/10 || bad < texts/10 {
		t.Error("too few documents with conflicts or without conflicts")
	}
}

func overlapping(g *rand.Rand, s *Schema, on string, depth int) string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		switch n := g.IntN(10); {
		case n < 4 && depth > 0 && on != "Named":
			field := []string{"peer", "x:peer", "peer(step:2)", "peers"}[min(g.IntN(9), 3)%4]
			if g.IntN(3) > 0 {
				field = "peer"
			}
			b.WriteString(field + "{" + overlapping(g, s, "Node", depth-1) + "}")
		case n < 6 && depth > 0:
			to := []string{"Cat", "Dog", "Node", "Named"}[g.IntN(4)]
			if on == "Cat" && to == "Dog" {
				to = "Cat"
			}
			b.WriteString("...on " + to + "{" + overlapping(g, s, to, depth-1) + "}")
		case n < 7 && depth > 2:
			b.WriteString([]string{"...A ", "...B "}[g.IntN(2)])
		default:
			b.WriteString([]string{"name ", "x:name ", "name ", "__typename ", "y:__typename "}[g.IntN(5)])
			if on == "Cat" || on == "Dog" {
				b.WriteString([]string{"mood ", "z:mood ", "z:mood ", "z:id "}[g.IntN(4)])
			}
		}
	}
	return strings.ReplaceAll(b.String(), "peer{}", "")
}
