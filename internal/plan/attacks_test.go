package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// doublingFragments returns n fragments, each of which spreads the next one twice.
func doublingFragments(n int) string {
	var b strings.Builder
	b.WriteString("{...F0}")
	for i := range n {
		name, next := letters(i), letters(i+1)
		b.WriteString(" fragment F" + name + " on Query{a:self{...F" + next + "}b:self{...F" + next + "}}")
	}
	return strings.Replace(b.String(), "F0", "F"+letters(0), 1) + " fragment F" + letters(n) + " on Query{int}"
}

func letters(n int) string { return string([]byte{byte('a' + n/26), byte('a' + n%26)}) }

func conflictingAliases(n int) string {
	return "{" + strings.Repeat("a:self{b:int a:self{b:float}} ", n) + "}"
}

// attacks maps the name of each attack to a document that crashes a process that runs graphql-go or keeps it busy
// for a long time.
var attacks = map[string]string{
	"a cycle of one fragment": "{...A}fragment A on Query{...A}",
	"an unused cycle":         "{int}fragment A on Query{...A}",
	"a ring": "{...A}fragment A on Query{...B}" +
		"fragment B on Query{...C}fragment C on Query{...A}",
	"a cycle below a field":           "{...A}fragment A on Query{self{...A}}",
	"a cycle in a second fragment A":  "{...A}fragment A on Query{int}fragment A on Query{...A}",
	"600 kB of brackets":              strings.Repeat("[", 600_000),
	"brackets in an argument":         "{echo(l:" + strings.Repeat("[", 600_000),
	"brackets in a type":              "query($a:" + strings.Repeat("[", 600_000),
	"braces":                          strings.Repeat("{self", 100_000),
	"objects":                         "{echo(o:" + strings.Repeat("{not:", 100_000),
	"a type that ends at once":        "query($a:]){a}",
	"nested lists":                    "{echo(l:" + strings.Repeat("[", 999) + strings.Repeat("]", 999) + ")}",
	"doubling fragments":              doublingFragments(30),
	"conflicting aliases":             conflictingAliases(400),
	"equal fields":                    "{" + strings.Repeat("int ", 20_000) + "}",
	"equal fields apart":              "{" + strings.Repeat("...{int int int int} ", 5_000) + "}",
	"a long chain of fragments":       chain(20_000),
	"doubled nesting":                 "{" + nested(12) + "}",
	"many operations":                 strings.Repeat("query A{int} ", 5_000),
	"many directives":                 "{int" + strings.Repeat(" @skip(if:false)", 5_000) + "}",
	"many variables":                  "query(" + strings.Repeat("$a:Int ", 5_000) + "){int}",
	"many errors":                     "{" + strings.Repeat("x ", 20_000) + "}",
	"introspection in circles":        "{__schema{types{fields{type{fields{type{fields{type{name}}}}}}}}}",
	"comments":                        "{int}" + strings.Repeat("#\n", 100_000),
	"a long list":                     "{echo(l:[" + strings.Repeat("1 ", 20_000) + "])}",
	"an object with many fields":      "{echo(o:{" + strings.Repeat("min:1 ", 5_000) + "})}",
	"inline fragments without a type": "{" + strings.Repeat("...{", 500) + "int" + strings.Repeat("}", 500) + "}",
	"types that multiply":             "{node{" + strings.Repeat("peer{", 15) + "id" + strings.Repeat("}", 15) + "}}",
	"types that multiply for nothing": "{node{" + strings.Repeat("peer{", 15) + "...on Cat{id}" +
		strings.Repeat("}", 15) + "}}",
}

func chain(n int) string {
	var b strings.Builder
	b.WriteString("{...F0}")
	for i := range n {
		fmt.Fprintf(&b, " fragment F%d on Query{...F%d}", i, i+1)
	}
	return b.String() + fmt.Sprintf(" fragment F%d on Query{int}", n)
}

func nested(n int) string {
	if n == 0 {
		return "int"
	}
	return "self{" + nested(n-1) + "} self{" + nested(n-1) + "}"
}

func TestAttacksAreRejectedQuickly(t *testing.T) {
	for name, text := range attacks {
		var errs Errors
		took := shortestTime(2*time.Second, func() { _, errs = testCache(t, defaultLimits).Prepare(text, "", nil) })
		if took > 2*time.Second { // normally 5 ms
			t.Errorf("%s: took %v, want at most 2s", name, took)
		}
		if errs == nil {
			t.Errorf("%s: accepted, want errors", name)
		}
		if len(errs) > 10 || len(errs.AppendJSON(nil)) > 8<<10 {
			t.Errorf("%s: got %d errors with %d bytes of JSON, want at most 10 errors and 8 KiB",
				name, len(errs), len(errs.AppendJSON(nil)))
		}
	}
}

// gqlparser has its own limit of 1000 nested levels and returns its own error for it.
func TestNestingErrorOfParserIsReportedAsDepthLimit(t *testing.T) {
	deep := "{echo(l:" + strings.Repeat("[", 1200)
	for limits, want := range map[Limits]string{defaultLimits: "limit of 20 nested levels",
		{}: "limit of 1000 nested levels"} {
		_, errs := testCache(t, limits).Prepare(deep, "", nil)
		if errs == nil || errs[0].Code != CodeLimit || !strings.Contains(errs[0].Message, want) {
			t.Errorf("with limits %+v: got errors %v, want the %s", limits, errs, want)
		}
	}
}

func TestAttacksFinishWithinTenSecondsWithoutLimits(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: times are not comparable under the race detector")
		return
	}
	c := testCache(t, Limits{})
	for name, text := range attacks {
		start := time.Now()
		b, errs := c.Prepare(text, "", nil)
		if errs == nil && len(text) < 10_000 {
			b.run(world{})
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v, want at most 10s", name, took)
		}
	}
}

// graphql-go handles each of these documents wrongly: it rejects a valid document, accepts an invalid one or
// returns a wrong response.
func TestKnownBugsOfGraphqlGoAreAbsent(t *testing.T) {
	c := testCache(t, defaultLimits)
	n := func(v any) map[string]any { return map[string]any{"n": v} }
	for _, test := range []struct {
		name, text string
		variables  map[string]any
		want       string
	}{
		{"a null literal", `{echo(i: null, l: [null, 1])}`, nil,
			`{"data":{"echo":"[null,null,null,null,null,null,[null,1],null,null,null]"}}`},
		{"null over a default", `{defaults(i: null, o: null, s: null, l: null, c: null)}`, nil,
			`{"data":{"defaults":"[null,3,null,null,null,null]"}}`},
		{"a default of a non-null variable", `query($n: Int! = 2){cat{peers(count: $n){__typename}}}`, nil,
			`{"data":{"cat":{"peers":[{"__typename":"Cat"},{"__typename":"Dog"}]}}}`},
		{"a comment with non-ASCII text", "{int # é 漢 🐈\n}", nil, `{"data":{"int":42}}`},
		{"fragments without a type in lists", `{pets{... {...on Cat{lives}}}}`, nil,
			`{"data":{"pets":[{"lives":1},{},null,{"lives":4}]}}`},
		{"a block string", `{required(i: 1, l: []) echo(s: """ab"c\d""")}`, nil,
			`{"data":{"required":"[1,[]]","echo":"[null,null,null,\"ab\\\"c\\\\d\",null,null,null,null,null,null]"}}`},
		{"the order of keys", `{string int float b:boolean a:must}`, nil,
			`{"data":{"string":"text","int":42,"float":2.5,"b":true,"a":"must"}}`},
		{"the order of merged keys", `{self{string} int ...A self{int float}} fragment A on Query{self{int}}`, nil,
			`{"data":{"self":{"string":"text","int":42,"float":2.5},"int":42}}`},
		{"a whole number with a point", `query($n: Int){defaults(i: $n)}`, n(json.Number("5.0")),
			`{"data":{"defaults":"[5,3,\"GREEN\",[1,2],\"a \\\"b\\\"\",` +
				`{\"any\":[{\"color\":\"BLUE\",\"min\":1,\"name\":\"x\"}],` +
				`\"color\":\"RED\",\"min\":4,\"name\":\"x\"}]"}}`},
		{"a fraction for an Int", `query($n: Int){int(mode: $n)}`, n(json.Number("1.9")), "BAD_USER_INPUT"},
		{"a string for an Int", `query($n: Int){int(mode: $n)}`, n("5"), "BAD_USER_INPUT"},
		{"a boolean for an Int", `query($n: Int){int(mode: $n)}`, n(true), "BAD_USER_INPUT"},
		{"an Int past 32 bits", `query($n: Int){int(mode: $n)}`, n(json.Number("2147483648")), "BAD_USER_INPUT"},
		{"an Int below 32 bits", `query($n: Int){int(mode: $n)}`, n(json.Number("-2147483649")), "BAD_USER_INPUT"},
		{"a huge number", `query($n: Float){echo(f: $n)}`, n(json.Number("1e400")), "BAD_USER_INPUT"},
		{"a result past 32 bits", `{int(mode: 5)}`, nil,
			`{"data":{"int":null},"errors":[{"message":"Internal server error",` +
				`"locations":[{"line":1,"column":2}],"path":["int"],"extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}`},
		{"all digits of an ID", `query($n: ID){echo(id: $n)}`, n(json.Number("9007199254740993")),
			`{"data":{"echo":"[null,null,null,null,\"9007199254740993\",null,null,null,null,null]"}}`},
		{"two root fields", `subscription{ticks tocks{int}}`, nil,
			`Anonymous Subscription must select only one top level field.`},
		{"null for a non-null variable", `query($n: Int! = 2){defaults(n: $n)}`, n(nil), "must not be null"},
		{"a missing variable", `query($n: Int!){defaults(n: $n)}`, nil, "was not provided"},
		{"null in a list of non-null items", `query($n: [Int!]){echo(ll: [$n])}`, n([]any{nil}), `at \"n[0]\"`},
		{"a single item for a list", `query($n: [[Int!]]){echo(ll: $n)}`, n(json.Number("7")),
			`[null,null,null,null,null,null,null,[[7]],null,null]`},
		{"an unknown field of an object", `query($n: Filter){echo(o: $n)}`, n(map[string]any{"nope": "x"}),
			`Field \"nope\" is not defined`},
		{"an unknown enum value", `query($n: Color){echo(c: $n)}`, n("PINK"),
			`Value does not exist in \"Color\" enum.`},
		{"an object for a scalar", `query($n: String){echo(s: $n)}`, n(map[string]any{}),
			`got invalid value {...}; String cannot represent`},
		{"the path of an invalid value", `query($n: Filter){echo(o: $n)}`,
			n(map[string]any{"any": []any{map[string]any{"not": map[string]any{"min": "x"}}}}),
			`at \"n.any[0].not.min\"`},
	} {
		if got := ask(c, test.text, test.variables); !strings.Contains(got, test.want) || test.want[0] == '{' &&
			got != test.want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", test.name, test.text, got, test.want)
		}
	}
}
