package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// tripling returns a subscription with levels+1 fragments. Each fragment except the last spreads the next one three
// times, and the last one has the selections in end. Every spread has a directive that is not allowed there, so
// that each visit of a spread is reported.
func tripling(levels int, end string) string {
	var b strings.Builder
	b.WriteString("subscription{...F0 @skip(if:false)}")
	for i := range levels {
		spread := fmt.Sprintf(" ...F%d @skip(if:false)", i+1)
		fmt.Fprintf(&b, " fragment F%d on Subscription{%s}", i, strings.Repeat(spread, 3))
	}
	fmt.Fprintf(&b, " fragment F%d on Subscription{%s}", levels, end)
	return b.String()
}

// A rule reports an error each time that it visits a spread, and only validate drops repeated errors. So the number
// of reports is the number of visits.
func TestNumberOfVisitsByRulesIsBounded(t *testing.T) {
	c := testCache(t, defaultLimits)
	const levels = 8 // 9,841 visits if every spread were followed each time
	for _, end := range []string{"...X", "...X ...Y", "... {...X}", "ticks", "nope", "ticks b: ticks",
		"... on X{...Y}"} {
		text := tripling(levels, end)
		tree, parts := parsed(t, text)
		for _, rule := range c.rules {
			reports := 0
			v := &validation{schema: c.schema, parts: parts,
				invalid: func(at []Location, _ string, _ ...any) { reports += max(1, len(at)) }}
			rule.observe(v)
			v.walk(tree)
			if most := 6 * (levels + 2); reports > most {
				t.Errorf("%s: got %d reports for fragments that end in %s, want at most %d", rule.name, reports, end,
					most)
			}
		}
	}
}

func TestUnknownFragmentIsReportedWithOtherErrors(t *testing.T) {
	const text = `subscription{...A ...A a: ticks b: ticks} fragment A on Subscription{...X}`
	_, errs := testCache(t, defaultLimits).Prepare(text, "", nil)
	var got []string
	for _, e := range errs {
		got = append(got, e.Message)
	}
	want := `Unknown fragment "X".|Anonymous Subscription must select only one top level field.`
	if strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
}

// repeating returns a query with 2^levels paths to one fragment, which has the selections in end.
func repeating(levels int, end string) string {
	var b strings.Builder
	b.WriteString("{...F0}")
	for i := range levels {
		fmt.Fprintf(&b, " fragment F%d on Query{a:self{...F%d} b:self{...F%[2]d}}", i, i+1)
	}
	fmt.Fprintf(&b, " fragment F%d on Query{%s}", levels, end)
	return b.String()
}

// There can be hundreds of paths to a fragment of two fields. If the literals in the fragment did not count for
// each path, a document of 3 kB could make the server compare or coerce 700,000 literals.
func TestLiteralsAreCountedEachTimeAFragmentIsSpread(t *testing.T) {
	c := testCache(t, defaultLimits)
	literal := "echo(ll:[" + strings.Repeat("["+strings.Repeat("1 ", 80)+"]", 10) + "]) "
	for name, end := range map[string]string{"merged": strings.Repeat(literal, 2), "compiled": literal,
		"compiled with a variable": "echo(o:{any:[" + strings.Repeat("{min:1 max:$m}", 90) + "]})",
		"digits with a variable":   "echo(o:{max:1." + strings.Repeat("0", 1000) + " any:[{max:$m}]})"} {
		head := map[bool]string{true: "query($m:Float)"}[strings.Contains(end, "$m")]
		head += "#é\n" // prevents that literals become parameters
		if _, errs := c.Prepare(head+repeating(3, end), "", nil); errs != nil {
			t.Errorf("%s, 8 paths: got %v, want no error", name, errs)
		}
		if _, errs := c.Prepare(head+repeating(8, end), "", nil); errs == nil || errs[0].Limit != "Fields" {
			t.Errorf("%s, 256 paths: got %v, want the limit Fields", name, errs)
		}
	}
}

// wide returns a query for two equal fields, each with a list of n objects.
func wide(n int, object string) string {
	return "{echo(os:[" + strings.Repeat(object, n) + "]) echo(os:[" + strings.Repeat(object, n) + "])}"
}

// preparing has, by name, functions that return a document with n parts. Preparing the document must take linear
// time.
var preparing = map[string]func(n int) string{
	"fields":           func(n int) string { return "{" + many(n, "a%d:int") + "}" },
	"equal fields":     func(n int) string { return "{" + strings.Repeat("int ", n) + "}" },
	"inline fragments": func(n int) string { return "{" + strings.Repeat("...{int}", n) + "}" },
	"nested fields":    func(n int) string { return "{" + strings.Repeat("self{self{int}}", n) + "}" },
	"fields of an interface": func(n int) string {
		return "{node{" + strings.Repeat("id ...on Cat{id} ...on Node{name}", n) + "}}"
	},
	"fragments": func(n int) string {
		return "{" + many(n, "...F%d") + "}" + many(n, "fragment F%d on Query{int}")
	},
	"spreads of one": func(n int) string {
		return "{" + strings.Repeat("...F ", n) + "} fragment F on Query{int}"
	},
	"operations":     func(n int) string { return many(n, "query Q%d{int}") },
	"literals":       func(n int) string { return "{echo(l:[" + strings.Repeat("1 ", n) + "])}" },
	"equal literals": func(n int) string { return wide(n, "{min:1 max:2}") },
	"equal literals in another order": func(n int) string {
		return strings.Replace(wide(n, "{min:1 max:2}"), "{min:1 max:2}", "{max:2 min:1}", n)
	},
	"objects": func(n int) string { return "{echo(os:[" + strings.Repeat("{min:1 any:[{}]}", n) + "])}" },
	"defaults": func(n int) string {
		return "query($o:[Filter!]=[" + strings.Repeat("{min:1}", n) + "]){echo(os:$o)}"
	},
	"variables":  func(n int) string { return "query($a:Int){echo(l:[" + strings.Repeat("$a ", n) + "])}" },
	"conditions": func(n int) string { return "query($a:Boolean!){" + many(n, "a%d:int @skip(if:$a)") + "}" },
	"conditions of all kinds": func(n int) string {
		return "query($a:Boolean! $b:Boolean!){" + strings.Repeat("...@include(if:$a){int @skip(if:$b)}", n) + "}"
	},
	"conditions of fragments": func(n int) string {
		return "query($a:Boolean!){" + many(n, "...F%d @skip(if:$a)") + "}" +
			many(n, "fragment F%d on Query{int @include(if:$a)}")
	},
	"wrong fields":       func(n int) string { return "{" + strings.Repeat("nope ", n) + "}" },
	"wrong literals":     func(n int) string { return "{echo(l:[" + strings.Repeat(`"x" `, n) + "])}" },
	"wrong arguments":    func(n int) string { return "{echo(" + many(n, "a%d:1") + ")}" },
	"unknown fragments":  func(n int) string { return "{" + many(n, "...X%d") + "}" },
	"unknown variables":  func(n int) string { return "{echo(l:[" + many(n, "$v%d") + "])}" },
	"unknown types":      func(n int) string { return "{" + many(n, "...on X%d{int}") + "}" },
	"unknown directives": func(n int) string { return "{int" + many(n, "@x%d") + "}" },
	"conflicts":          func(n int) string { return "{" + strings.Repeat("a:int ", n) + "a:float}" },
	"fields of types": func(n int) string {
		return "{pets{" + strings.Repeat("...on Cat{id}...on Dog{id}", n) + "}}"
	},
	"literals to parameterize": func(n int) string { return "{" + strings.Repeat("echo(i:1) ", n) + "}" },
	"subscription's fields":    func(n int) string { return "subscription{" + strings.Repeat("ticks ", n) + "}" },
	"subscription's spreads": func(n int) string {
		return "subscription{" + many(n, "...F%d") + "}" + many(n, "fragment F%d on Subscription{ticks ...X}")
	},
}

func TestPreparingTakesLinearTime(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: times are not comparable under the race detector")
		return
	}
	c := testCache(t, Limits{})
	for name, text := range preparing {
		grown := 0.0
		for tries := 0; tries == 0 || tries < 3 && grown >= quadratic; tries++ {
			grown = growth(250, func(n int) func() {
				text := text(n)
				return func() { _, _ = c.Prepare(text, "", map[string]any{"a": true, "b": false}) }
			})
		}
		t.Logf("%-30s %.1f", name, grown)
		if grown >= quadratic {
			t.Errorf("%s: preparing 16 times as many parts takes %.0f times as long, want less than 64", name, grown)
		}
	}
}

// For a document within the limits, the work is at most
//   - for all rules together: one visit of each selection, literal and directive for each operation, and one more;
//   - for merging and for compiling: stepsPerField steps for each of Limits.Fields, plus the literals of one field.
func TestWorkForEachDocumentStaysWithinBudget(t *testing.T) {
	s := testSchema(t)
	l := defaultLimits
	budget := stepsPerField * l.Fields
	docs := expensiveDocuments()
	docs["conflicting fields"] = "{" + strings.Repeat("...{a:int b:float c:string}", 200) + "a:float}"
	docs["literals on many paths"] = repeating(9, "echo(l:["+strings.Repeat("1 ", 90)+"])")
	docs["equal literals on many paths"] = repeating(9, strings.Repeat("echo(l:["+strings.Repeat("1 ", 90)+"])", 2))
	docs["spreads on many paths"] = repeating(9, strings.Repeat("...{int} ", 100))
	for name, text := range docs {
		tree, parts := parsed(t, text)
		nodes, visits := 0, 0
		count := func(tree *ast.QueryDocument, total *int) {
			v := &validation{schema: s}
			v.OnField(func(*core.Walker, *ast.Field) { *total++ })
			v.OnInlineFragment(func(*core.Walker, *ast.InlineFragment) { *total++ })
			v.OnFragmentSpread(func(*core.Walker, *ast.FragmentSpread) { *total++ })
			v.OnDirective(func(*core.Walker, *ast.Directive) { *total++ })
			v.OnValue(func(*core.Walker, *ast.Value) { *total++ })
			v.walk(tree)
		}
		for _, op := range tree.Operations { // without the fragments, so that spreads are not followed
			count(&ast.QueryDocument{Operations: ast.OperationList{op}}, &nodes)
		}
		for _, f := range tree.Fragments {
			op := &ast.OperationDefinition{Operation: ast.Query, SelectionSet: f.SelectionSet}
			count(&ast.QueryDocument{Operations: ast.OperationList{op}}, &nodes)
		}
		count(tree, &visits)
		if most := (l.Operations+1)*nodes + len(tree.Fragments); visits > most {
			t.Errorf("%s: got %d visits by rules, want at most %d", name, visits, most)
		}
		if c := NewCache(s, l, masked, nil); c.validate(tree, parts) == nil {
			m := newMerger(s)
			for _, op := range tree.Operations {
				_ = m.merge(op, l.Fields)
				k := compiler{c: c, tree: tree, def: op, op: c.newOperation(op), fields: l.Fields, steps: budget,
					compiled: map[*ast.Field]bool{}, sharing: newSharing(), plan: &Plan{}}
				k.selection(s.types.Query, op.SelectionSet)
				merging, compiling := budget-m.budget, budget-k.steps
				t.Logf("%s: %d visits of %d nodes, %d steps for merging and %d for compiling",
					name, visits, nodes, merging, compiling)
				if m.budget < -2*l.Tokens || k.steps < -2*l.Tokens {
					t.Errorf("%s: got %d steps for merging and %d for compiling, want at most %d each",
						name, merging, compiling, budget+2*l.Tokens)
				}
			}
		}
	}
}

// Without sharing, 8 operations take 8 times as many steps as one, and each spread of a fragment takes as many steps as
// the fragment.
func TestFragmentsAreMergedOnceForAllOperationsAndSpreads(t *testing.T) {
	const fragments = ` fragment F on Query{a0:self{...G} a1:self{...G} a2:self{...G} a3:self{...G} a4:self{...G}}
		fragment G on Query{b0:self{...H} b1:self{...H} b2:self{...H} b3:self{...H} b4:self{...H}}
		fragment H on Query{node{id ...on Cat{name} ...on Node{name}} int float string boolean c0:int c1:int c2:int}`
	c := testCache(t, defaultLimits)
	steps := func(operations string) (n int) {
		tree, parts := parsed(t, operations+fragments)
		if errs := c.validate(tree, parts); errs != nil {
			t.Fatal(errs)
		}
		m := newMerger(c.schema)
		for _, op := range tree.Operations {
			if errs := m.merge(op, defaultLimits.Fields); errs != nil {
				t.Fatal(errs)
			}
			n += stepsPerField*defaultLimits.Fields - m.budget
		}
		return n
	}
	one, eight := steps("{...F}"), steps(many(8, "query Q%d{...F}"))
	if one > 250 {
		t.Errorf("one operation: got %d steps, want at most 250 for 28 selections in fragments", one)
	}
	if eight > 2*one {
		t.Errorf("8 operations: got %d steps, want at most twice the %d of one operation", eight, one)
	}
}
