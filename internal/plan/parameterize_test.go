package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/testkit"
)

// Two texts that differ only in the literals a and b share a plan, unless another is set.
func TestDocumentsThatDifferInLiteralsShareAPlan(t *testing.T) {
	for _, test := range []struct {
		text    string
		a, b    string
		another bool // each text must have a plan of its own
	}{
		{text: `{echo(i: %s)}`, a: "1", b: "-20"},
		{text: `{echo(s: %s)}`, a: `"a"`, b: `"longer, with # and { and ("`},
		{text: `{echo(s: %s)}`, a: `"a"`, b: `""`},
		{text: `{echo(f: %s)}`, a: "1.5", b: "-2e7"},
		{text: `{echo(f: %s)}`, a: "1", b: "2"},
		{text: `{echo(l: %s)}`, a: "1", b: "2"},
		{text: `{echo(l: [1, %s])}`, a: "1", b: "2"},
		{text: `{echo(o: {min: %s})}`, a: "1", b: "2"},
		{text: `{echo(os: [{min: 1}, {min: %s, any: []}])}`, a: "1", b: "2"},
		{text: `query Q($n: Int = 5){a: echo(i: $n) node(n: %s){...F}} fragment F on Node{id}`, a: "1", b: "2"},
		{text: `{node(n: 1){...F}} fragment F on Node{peer(step: %s){id}}`, a: "1", b: "2"},
		{text: `{echo(i: %s) @skip(if: false) # 5` + "\n}", a: "1", b: "2"},
		{text: `{echo(i: 1) @skip(if: false) b: echo(s: %s)}`, a: `"a"`, b: `"b"`},

		{text: `{echo(f: %s)}`, a: "1", b: "1.5", another: true},
		{text: `{echo(l: [%s])}`, a: "1", b: "1, 2", another: true},
		{text: `{echo(s: %s)}`, a: `"a"`, b: `"\u0061"`, another: true},
		{text: `{echo(s: %s)}`, a: `"a"`, b: `"""a"""`, another: true},
		{text: `{echo(s: %s)}`, a: `"a"`, b: `"é"`, another: true},
		{text: `{echo(c: %s)}`, a: "RED", b: "BLUE", another: true},
		{text: `{echo(i: %s)}`, a: "1", b: "null", another: true},
		{text: `{int @skip(if: %s)}`, a: "true", b: "false", another: true},
		{text: `query($n: Int = %s){echo(i: $n)}`, a: "1", b: "2", another: true},
		{text: `query($n: Int = 1){echo(i: $n, l: [1]) %s: int}`, a: "a", b: "b", another: true},
		{text: `{echo(i: 1) echo(i: %s)}`, a: "1", b: "01", another: true},
		{text: `{...{echo(i: %s)} echo(i: 7)}`, a: "7", b: "7 ", another: true},
		{text: `{echo(i: %s) int #` + "\n}", a: "1", b: "1 ", another: true},
		{text: `query A{echo(i: %s)} query B{int}`, a: "1", b: "2", another: true},
		{text: `query($on: Boolean = true){echo(i: %s) int @skip(if: $on)}`, a: "1", b: "2", another: true},
	} {
		c := testCache(t, defaultLimits)
		operation := map[bool]string{true: "A"}[strings.HasPrefix(test.text, "query A")]
		var plans [2]*Plan
		for i, literal := range []string{test.a, test.b} {
			text := fmt.Sprintf(test.text, literal)
			b, errs := c.Prepare(text, operation, nil)
			if errs != nil {
				if literal == "01" {
					continue
				}
				t.Fatal(text, errs)
			}
			fresh, errs := testCache(t, defaultLimits).Prepare(text, operation, nil)
			if errs != nil {
				t.Fatal(text, errs)
			}
			sameOperation(t, text, b, fresh)
			plans[i] = b.plan
		}
		if another := plans[0] != plans[1]; another != test.another {
			t.Errorf("%s with %s and %s: different plans: %v, want %v",
				test.text, test.a, test.b, another, test.another)
		}
	}
}

// sameOperation checks that two Bounds have the same response, hash, name and kind.
func sameOperation(t *testing.T, text string, got, want *Bound) {
	t.Helper()
	a, b := got.run(world{}), want.run(world{})
	if string(a) != string(b) {
		t.Fatalf("%s\n got %s\nwant %s", text, a, b)
	}
	if got.Hash() != want.Hash() || got.Name() != want.Name() || got.Kind() != want.Kind() {
		t.Fatalf("%s: got %s %s %s, want %s %s %s", text,
			got.Kind(), got.Name(), got.Hash(), want.Kind(), want.Name(), want.Hash())
	}
}

// withOtherLiterals returns text with random literals at the placeholders.
func withOtherLiterals(g *rand.Rand, text string, placeholders []placeholder) string {
	others := map[ast.ValueKind][]string{
		ast.IntValue:    {"0", "-1", "3", "12", "2147483647", "2147483648", "-99999999999999999999"},
		ast.FloatValue:  {"0.5", "-1.25e2", "1e300", "1e999"},
		ast.StringValue: {"", "x", "RED", "a string that is longer than others", "7"},
	}
	var b strings.Builder
	from := 0
	for _, h := range placeholders {
		some := others[h.kind]
		b.WriteString(text[from:h.start] + some[min(g.IntN(2*len(some)), g.IntN(len(some)))])
		from = h.end
	}
	return b.String() + text[from:]
}

// checkLikeFresh checks that the cache c, which has a document with the same fingerprint as text, handles text like
// the new cache fresh: with the same errors, responses, locations and hashes. known reports whether Find found a
// plan in c.
func checkLikeFresh(t *testing.T, c, fresh *Cache, text string, variables map[string]any) (accepted, known bool) {
	t.Helper()
	want, wrong := fresh.Prepare(text, "", variables)
	into := findQuery(c, text, variables)
	if into != nil {
		if wrong != nil {
			t.Fatalf("%s %v\nFind reports true, want %v", text, variables, wrong)
		}
		sameOperation(t, text, into, want)
	}
	got, errs := c.Prepare(text, "", variables)
	if errs != nil || wrong != nil {
		a, b := errs.AppendJSON(nil), wrong.AppendJSON(nil)
		if string(a) != string(b) {
			t.Fatalf("%s %v\n got %s\nwant %s", text, variables, a, b)
		}
		return false, into != nil
	}
	sameOperation(t, text, got, want)
	return true, into != nil
}

func TestSharedPlanReturnsTheSameResponseAsANewPlan(t *testing.T) {
	g := &generator{Rand: rand.New(rand.NewPCG(41, 42)), s: testSchema(t)}
	shared, accepted, rejected := 0, 0, 0
	texts := testkit.Sample(t, 6000)
	for range texts {
		text, variables := g.document()
		var s parameterizer
		if !s.parameterize([]byte(text)) {
			continue
		}
		c := NewCache(g.s, defaultLimits, masked, nil)
		if _, errs := c.Prepare(text, "", variables); errs != nil {
			continue
		}
		for range 2 {
			other := withOtherLiterals(g.Rand, text, s.placeholders)
			ok, found := checkLikeFresh(t, c, NewCache(g.s, defaultLimits, masked, nil), other, variables)
			if found && other != text {
				shared++
			}
			if ok {
				accepted++
			} else {
				rejected++
			}
		}
	}
	t.Logf("Find found a plan for %d texts with other literals; %d accepted, %d rejected", shared, accepted, rejected)
	if shared < texts/6 || rejected < texts/12 {
		t.Error("too few texts shared a plan or were rejected")
	}
}

// FuzzParameterize replaces the literals of a document that has a fingerprint, and checks the shared plan.
func FuzzParameterize(f *testing.F) {
	s := testSchema(f)
	for _, text := range accepted {
		f.Add(text, `{"a":1}`, uint64(1))
	}
	for _, text := range []string{
		`{a: echo(i: 1) must(mode: 1)}`, `{echo(i: 1) b: echo(i: 1, s: "x")}`, `{echo(i: 1) echo(i: 1)}`,
		"{\r\n echo(i: 1) \r must(mode: 3) }",
		`query($n: Int = 1 @a(b: 1)){echo(i: 1)}`, `{__type(name: "Cat"){name}}`,
		`{echo(i: 1 s: "@(" f: 1.5e-3 ){a(b:1)}}`, "{echo(i: 1#\"\n)}",
	} {
		f.Add(text, `{}`, uint64(2))
	}
	g := &generator{Rand: rand.New(rand.NewPCG(19, 20)), s: s}
	for i := range 100 {
		text, variables := g.document()
		given, err := json.Marshal(variables)
		must(f, err)
		f.Add(text, string(given), uint64(i))
	}
	f.Fuzz(func(t *testing.T, text, given string, seed uint64) {
		if len(text) > 2048 || len(given) > 1024 {
			return
		}
		var variables map[string]any
		d := json.NewDecoder(strings.NewReader(given))
		d.UseNumber()
		if d.Decode(&variables) != nil {
			return
		}
		c := NewCache(s, defaultLimits, masked, nil)
		b, errs := c.Prepare(text, "", variables)
		var sh parameterizer
		if !sh.parameterize([]byte(text)) || errs != nil || b.Kind() != ast.Query {
			return
		}
		g := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			other := withOtherLiterals(g, text, sh.placeholders)
			checkLikeFresh(t, c, NewCache(s, defaultLimits, masked, nil), other, variables)
		}
	})
}

// The errors of an invalid document have locations in this document, not in the one with the same fingerprint that
// was compiled before.
func TestInvalidLiteralIsReportedAtItsOwnLocation(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, `{a: echo(s: "x", i: 1) b: int}`, nil)
	_, errs := c.Prepare(`{a: echo(s: "longer", i: 2147483648) b: int}`, "", nil)
	if len(errs) != 1 || errs[0].Code != CodeValidation || errs[0].Locations[0] != (Location{1, 26}) {
		t.Errorf("got errors %+v, want one at line 1, column 26", errs)
	}
}

func TestFieldErrorAfterLongerLiteralHasCorrectColumn(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = "{a: echo(s: %q) string(mode: 1)\n b: echo(s: %q) c: string(mode: 1)}"
	for _, s := range []string{"x", "longer", ""} {
		got := ask(c, fmt.Sprintf(text, s, s), nil)
		for line := 1; line <= 2; line++ {
			want := fmt.Sprintf(`"locations":[{"line":%d,"column":%d}]`, line, 17+len(s))
			if !strings.Contains(got, want) {
				t.Errorf("%q: got %s, want it to contain %s", s, got, want)
			}
		}
	}
}

func TestQueryBoundByFindStopsWhenContextIsCanceled(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = `{a: echo(i: 1) int string}`
	want := prepare(t, c, text, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a, _ := findQuery(c, text, nil).Run(ctx, world{}, nil)
	if b, _ := want.Run(ctx, world{}, nil); string(a) != string(b) || !strings.Contains(string(a), "errors") {
		t.Errorf("got %s\nwant %s with errors", a, b)
	}
}

func TestFindAndRunAllocateNothing(t *testing.T) {
	c := testCache(t, defaultLimits)
	var b Bound
	var dst []byte
	text := []byte(`{self{self{old plain}} a: echo(s: "x") @skip(if: true)}`)
	prepare(t, c, string(text), nil)
	if n := testing.AllocsPerRun(100, func() {
		if !c.Find(&b, text, "", nil) {
			t.Fatal("Find reports false for a cached document")
		}
		dst, _ = b.Run(context.Background(), world{}, dst[:0])
	}); n != 0 && !raceEnabled {
		t.Errorf("got %v allocations for the response %s, want none", n, dst)
	}
}
