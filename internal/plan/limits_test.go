package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// levels returns n nested selection sets, including the outermost one.
func levels(n int) string {
	return strings.Repeat("{self", n-1) + "{int}" + strings.Repeat("}", n-1)
}

// many returns n copies of format. If format has a verb, it formats the index of the copy.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if strings.Contains(format, "%") {
			fmt.Fprintf(&b, format+" ", i)
		} else {
			b.WriteString(format + " ")
		}
	}
	return b.String()
}

// within has, for each limit, a function that returns a document with n of the units that are limited. The document
// must be accepted if n is the limit (edge), and rejected if n is one more.
var within = []struct {
	name, limit string
	edge        int
	text        func(n int) string
}{
	{"bytes", "32768 bytes", 32 << 10, func(n int) string { return "{int}" + strings.Repeat(" ", n-5) }},
	{"tokens", "2000 tokens", 2000, func(n int) string { return "{int}" + strings.Repeat("#\n", n-3) }},
	{"selection sets", "20 nested levels", 20, levels},
	{"selection sets of inline fragments", "20 nested levels", 20, func(n int) string {
		return strings.Repeat("{...", n-1) + "{int}" + strings.Repeat("}", n-1)
	}},
	{"selection sets of a fragment", "20 nested levels", 20, func(n int) string {
		return "{self{...A}} fragment A on Query " + levels(n-1)
	}},
	{"selection sets of many fragments", "20 nested levels", 20, func(n int) string {
		var b strings.Builder
		b.WriteString("{self{...A1}}")
		for i := 1; i < n-1; i++ {
			fmt.Fprintf(&b, "fragment A%d on Query{self{...A%d}}", i, i+1)
		}
		return b.String() + fmt.Sprintf("fragment A%d on Query{int}", n-1)
	}},
	{"selection sets of a fragment that ends with a leaf", "20 nested levels", 20, func(n int) string {
		return "{self{self{...A}}} fragment A on Query{self" + levels(n-3) + " int}"
	}},
	{"objects", "20 nested levels", 20, func(n int) string { // types are checked later
		return "{x:echo(o:" + strings.Repeat("{not:", n-2) + "{}" + strings.Repeat("}", n-2) + ")}"
	}},
	{"lists and objects of a default", "20 nested levels", 20, func(n int) string {
		return "query($a: Filter = " + strings.Repeat("{any:[", n/2) + strings.Repeat("{}", n%2) +
			strings.Repeat("]}", n/2) + "){echo(o: $a)}"
	}},
	{"fields", "1500 fields", 1500, func(n int) string { // the fragment A has 107 fields
		return "{...A " + many(12, "x%d:self{...A}") + many(n-107-12*108, "...{int}") + "} fragment A on Query{" +
			strings.Repeat("...{int float string plain old color must}", 15) + "identity boolean}"
	}},
	// Each of the 3 types of node has peer, which has 99 fields for each of 3 types.
	{"fields of every type", "1500 fields", 1500, func(n int) string {
		return "{node{peer{" + strings.Repeat("...{id id id id id id id id}", 12) + "... on Node{id id id}}" +
			many((n-1-3*(1+3*99))/3, "...{id}") + "}" + strings.Repeat("...{int}", (n-1-3*(1+3*99))%3) + "}"
	}},
	{"aliases", "50 aliases", 50, func(n int) string { return "{" + many(n, "a%d:int") + "}" }},
	{"directives", "32 directives", 32, func(n int) string {
		return "{" + many(n/2, "a%d:int @skip(if:false) @include(if:true)") +
			strings.Repeat("int @skip(if:false)", n%2) + "}"
	}},
	{"fields of one name", "8 fields of one name", 8, func(n int) string {
		return "{" + strings.Repeat("int ", n) + "}"
	}},
	{"fields of one alias", "8 fields of one name", 8, func(n int) string {
		return "{" + strings.Repeat("a:int ", n) + "}"
	}},
	{"operations", "8 operations", 8, func(n int) string { return many(n, "query Q%d{int}") }},
	{"fragments", "32 fragments", 32, func(n int) string {
		return "{" + many(n, "...F%d") + "}" + many(n, "fragment F%d on Query{int}")
	}},
	{"variables", "32 variables", 32, func(n int) string {
		return "query(" + many(n, "$v%d:Int") + "){echo(l:[" + many(n, "$v%d") + "])}"
	}},
	{"items", "100 items", 100, func(n int) string { return "{echo(l:[" + many(n, "1") + "])}" }},
	{"items of a default", "100 items", 100, func(n int) string {
		return "query($a:[Int]=[" + many(n, "1") + "]){echo(l:$a)}"
	}},
	{"items of an inner list", "100 items", 100, func(n int) string {
		return "{echo(ll:[[],[" + many(n, "1") + "]])}"
	}},
}

func TestEachLimitIsExact(t *testing.T) {
	c := testCache(t, defaultLimits)
	for _, test := range within {
		if _, errs := c.Prepare(test.text(test.edge), "", nil); errs != nil && errs[0].Code != CodeInput {
			t.Errorf("%s: %d units: got %v, want no error", test.name, test.edge, errs)
		}
		_, errs := c.Prepare(test.text(test.edge+1), "", nil)
		if errs == nil || errs[0].Code != CodeLimit || !strings.Contains(errs[0].Message, test.limit) ||
			len(errs) != 1 {
			t.Errorf("%s: %d units: got %v, want only the limit of %s", test.name, test.edge+1, errs, test.limit)
		}
		off := testCache(t, Limits{})
		if _, errs := off.Prepare(test.text(test.edge+1), "", nil); errs != nil && errs[0].Code != CodeInput {
			t.Errorf("%s: %d units without limits: got %v, want no error", test.name, test.edge+1, errs)
		}
	}
}

// Validation rules run after the limits are checked, so a document that exceeds a limit never reaches them.
func TestRulesDoNotRunIfLimitIsExceeded(t *testing.T) {
	c := testCache(t, defaultLimits)
	for _, test := range within {
		switch test.name {
		case "bytes", "tokens", "fields of every type": // the last one is detected when it is compiled
			continue
		}
		text := test.text(test.edge+1) + " fragment Unused on Nope{nope(x: $y)}"
		if _, errs := c.Prepare(text, "", nil); errs == nil || errs[0].Code != CodeLimit {
			t.Errorf("%s: got %v, want a limit error", test.name, errs)
		}
	}
}

func TestListItemLimitAppliesToVariables(t *testing.T) {
	c := testCache(t, defaultLimits)
	list := func(n int) []any {
		items := make([]any, n)
		for i := range items {
			items[i] = json.Number("1")
		}
		return items
	}
	for text, wrap := range map[string]func([]any) any{
		`query($v: [Int]){echo(l: $v)}`:     func(l []any) any { return l },
		`query($v: [[Int!]]){echo(ll: $v)}`: func(l []any) any { return []any{[]any{}, l} },
		`query($v: Filter){echo(o: $v)}`:    func(l []any) any { return map[string]any{"flags": l} },
	} {
		_, errs := c.Prepare(text, "", map[string]any{"v": wrap(list(101))})
		if errs == nil || errs[0].Code != CodeLimit || !strings.Contains(errs[0].Message, "limit of 100 items") {
			t.Errorf("%s: got %v, want the limit of 100 items", text, errs)
		}
		if !strings.Contains(text, "Filter") {
			prepare(t, c, text, map[string]any{"v": wrap(list(100))})
			prepare(t, testCache(t, Limits{}), text, map[string]any{"v": wrap(list(1000))})
		}
	}
}

func TestTokenLimitAppliesToValuesOfVariables(t *testing.T) {
	objects := func(n int) any {
		all := make([]any, n)
		for i := range all {
			all[i] = map[string]any{} // each has three defaults
		}
		return all
	}
	numbers := []any{json.Number("1"), json.Number("2"), nil}
	const one, two = "query($v:[Filter!]){echo(os:$v)}", "query($v:[Filter!],$w:[Int]){echo(os:$v,l:$w)}"
	c := testCache(t, Limits{Tokens: 41})
	for _, row := range []struct {
		text  string
		v, w  any
		valid bool
	}{
		{one, objects(10), nil, true},
		{one, objects(11), nil, false},
		{two, objects(9), numbers, true},
		{two, objects(9), []any{nil, nil, nil, nil}, false},
	} {
		_, errs := c.Prepare(row.text, "", map[string]any{"v": row.v, "w": row.w})
		const want = "The variables exceed the limit of 41 values."
		if row.valid && errs != nil {
			t.Errorf("%s: got %v, want no error", row.text, errs)
		}
		if !row.valid && (errs == nil || errs[0].Limit != "Tokens" || errs[0].Message != want) {
			t.Errorf("%s: got %v, want %q", row.text, errs, want)
		}
	}
}

// A default is larger than its text if the host's input types have defaults, too.
func TestTokensLimitsTheValuesOfADefault(t *testing.T) {
	c := testCache(t, Limits{Tokens: 60})
	for n, valid := range map[int]bool{14: true, 15: false} {
		_, errs := c.Prepare("query($v:[Filter!]=["+strings.Repeat("{}", n)+"]){echo(os:$v)}", "", nil)
		if valid != (errs == nil) || errs != nil && errs[0].Limit != "Tokens" {
			t.Errorf("%d objects: got %v, want an error: %v", n, errs, !valid)
		}
	}
}

func TestCommonDocumentsAreWithinDefaultLimits(t *testing.T) {
	c := testCache(t, defaultLimits)
	full, err := os.ReadFile("testdata/introspection.graphql")
	must(t, err)
	relay := "query Q{" + many(10, "...F%d") + "__typename}"
	for i := range 10 {
		relay += fmt.Sprintf(" fragment F%d on Query{__typename node{__typename id ...G%[1]d "+
			"... on Cat{__typename id} ... on Dog{__typename id}}}", i)
		relay += fmt.Sprintf(" fragment G%d on Node{__typename id name __typename id}", i)
	}
	documents := map[string]string{"introspection": string(full), "relay": relay, "empty variables": "query{info:int}"}
	for name, text := range documents {
		if _, errs := c.Prepare(text, "", nil); errs != nil {
			t.Errorf("%s: got %v, want no error", name, errs)
		}
	}
}

func TestResponseLimitIsExact(t *testing.T) {
	const text = `{node{id} pets{... on Cat{kittens{id name}}}}`
	whole := ask(testCache(t, Limits{}), text, nil)
	data := len(whole) - len(`{"data":}`)
	if got := ask(testCache(t, Limits{Answer: data}), text, nil); got != whole {
		t.Errorf("limit of exactly the size: got %s, want %s", got, whole)
	}
	want := fmt.Sprintf(`{"data":null,"errors":[{"message":"The response exceeds the limit of %d bytes.",`+
		`"extensions":{"code":"LIMIT_EXCEEDED"}}]}`, data-1)
	if got := ask(testCache(t, Limits{Answer: data - 1}), text, nil); got != want {
		t.Errorf("limit of one byte less: got %s, want %s", got, want)
	}
	got := ask(testCache(t, Limits{Answer: 100}), `{must(mode: 4) `+text[1:], nil)
	if strings.Count(got, "message") != 1 || !strings.Contains(got, `"data":null`) {
		t.Errorf("after a field error: got %s, want one error and no data", got)
	}
	b := prepare(t, testCache(t, Limits{Answer: 30}), "{int}", nil) // the initial contents of dst do not count
	if got, _ := b.Run(context.Background(), world{}, make([]byte, 100)); !strings.HasSuffix(string(got),
		`{"data":{"int":42}}`) {
		t.Errorf("with 100 bytes in dst: got %s, want data", got)
	}
}

// expensiveDocuments returns the documents within the limits that are known to take the longest to prepare, by
// name.
func expensiveDocuments() map[string]string {
	docs := map[string]string{}
	docs["equal fields"] = "{" + strings.Repeat("...{int int int int int int int int}", 132) + "}"
	docs["equal fields nested"] = "{" + strings.Repeat("...{"+strings.Repeat("self{int}", 8)+"}", 45) + "}"
	docs["fragments of equal fields"] = "{" + many(31, "...F%d") + "}" +
		many(31, "fragment F%d on Query{...{int int int int int int int int}...{int int int int int int int int}"+
			"...{int int int int int int int int}...{int int int int}}")
	var b strings.Builder
	b.WriteString(many(8, "query Q%d{...F0}"))
	for i := range 32 {
		fmt.Fprintf(&b, "fragment F%d on Query{%s ", i,
			strings.Repeat("int float string boolean color plain identity must old ", 5))
		if i < 31 {
			fmt.Fprintf(&b, "...F%d", i+1)
		}
		b.WriteString("}")
	}
	docs["operations that share a chain"] = b.String()
	b.Reset()
	b.WriteString(many(8, "query Q%d{...F0}"))
	for i := range 10 {
		fmt.Fprintf(&b, "fragment F%d on Query{", i)
		for j := i + 1; j < 10; j++ {
			fmt.Fprintf(&b, "...F%d ", j)
		}
		b.WriteString(strings.Repeat("...{int float}", 1) + "}")
	}
	docs["fragments that spread each other"] = b.String()
	docs["many literals"] = "{echo(ll:[" + strings.Repeat("[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6]", 100) + "])}"
	docs["many objects"] = "{echo(os:[" + strings.Repeat("{min:1 max:2 any:{min:1} not:{min:2}},", 80) + "])}"
	docs["literals in every fragment"] = "{...F0 x:int}" + strings.ReplaceAll(many(30,
		"fragment F%d on Query{echo(l:[1"+strings.Repeat(" 1", 39)+"]) ...G%[1]d}"), "x", "y")
	for i := range 30 {
		docs["literals in every fragment"] = strings.Replace(docs["literals in every fragment"],
			fmt.Sprintf("...G%d}", i), map[bool]string{true: fmt.Sprintf("...F%d}", i+1), false: "}"}[i < 29], 1)
	}
	docs["types that multiply"] = "{node{" + strings.Repeat("...on Cat{peer{peer{id}}}", 40) + "}}"
	docs["equal fields of types"] = "{node{peer{" + strings.Repeat("...{id id id id id id id id}", 24) + "}}}"
	docs["wrong everywhere"] = "{" + strings.Repeat("...{zz zz zz zz zz zz zz zz}", 130) + "}"
	docs["wrong types everywhere"] = "{" + many(8, "int(mode:\"x\" nope:$a)") +
		strings.Repeat("...{int(mode:{}) @skip node}", 31) + "}"
	docs["strings with escapes"] = `{echo(s:"` + strings.Repeat(`\ud83d\ude00`, 2600) + `")}`
	docs["a block string"] = `{echo(s:"""` + strings.Repeat(" \n", 16_000) + `""")}`
	docs["many block strings"] = "{echo(s:\"\"\"" + strings.Repeat("x", 29_000) + "\"\"\") " +
		strings.Repeat("...{b:echo(s:\"\"\"é\n\"\"\")}", 50) + "}"
	docs["a long name"] = "{" + strings.Repeat("x", 32_000) + ":int}"
	docs["introspection"] = introspectionFlood()
	return docs
}

// introspectionFlood returns a query that selects every field of every type many times.
func introspectionFlood() string {
	const deep = "{description ofType{description}}"
	return "{" + many(2, "a%d:__schema{types{...T}}") + "} fragment T on __Type{" +
		many(3, "b%d:fields{type{...U ofType{...U ofType{ofType{...U}}}}}") +
		"} fragment U on __Type{" + many(7, "c%d:fields{type"+deep+"}") + "}"
}

// shortestTime returns the processor time that do takes. If the time exceeds limit, shortestTime calls do up to
// four times and returns the shortest time, because other processes may have slowed it down.
func shortestTime(limit time.Duration, do func()) time.Duration {
	best := time.Hour
	for tries := 0; tries < 4 && best > limit; tries++ {
		start := processorTime()
		do()
		best = min(best, processorTime()-start)
	}
	return best
}

// The limit of one second is generous, because the test runs on all kinds of machines.
func TestDocumentsWithinLimitsAreCheapToPrepare(t *testing.T) {
	s := testSchema(t)
	for name, text := range expensiveDocuments() {
		var errs Errors
		took := shortestTime(time.Second, func() {
			_, errs = NewCache(s, defaultLimits, masked, nil).Prepare(text, "", nil)
		})
		said := ""
		if errs != nil {
			said = errs[0].Message
		}
		t.Logf("%-34s %6d bytes %10v  %s", name, len(text), took.Round(time.Microsecond), said)
		if took > time.Second {
			t.Errorf("%s: took %v, want at most 1s", name, took)
		}
	}
}

func TestResponseLimitStopsIntrospectionFlood(t *testing.T) {
	limits := defaultLimits
	b := prepare(t, testCache(t, limits), introspectionFlood(), nil)
	flood := len(b.run(world{}))
	limits.Answer = 1 << 20
	bounded := prepare(t, testCache(t, limits), introspectionFlood(), nil).run(world{})
	if t.Logf("%d bytes without a limit", flood); len(bounded) > 300 || flood < limits.Answer {
		t.Errorf("got %d bytes with a limit and %d without, want at most 300 and at least %d",
			len(bounded), flood, limits.Answer)
	}
}
