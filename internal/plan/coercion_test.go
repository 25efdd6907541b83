package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"
	gqlparser "github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// steps counts how often Prepare calls functions of the host: ParseLiteral of a scalar (literals), ParseValue of a
// scalar (values) and price functions (prices).
type steps struct{ literals, values, prices int }

// countingSchema returns the tests' schema with additional fields whose scalar and price functions count their
// calls in n.
func countingSchema(t *testing.T, n *steps) *Schema {
	t.Helper()
	counted := graphql.NewScalar(graphql.ScalarConfig{Name: "Counted",
		Serialize:    func(v any) any { return v },
		ParseValue:   func(v any) any { n.values++; return v },
		ParseLiteral: func(ast.Value) any { n.literals++; return 1 }})
	var in *graphql.InputObject
	in = graphql.NewInputObject(graphql.InputObjectConfig{Name: "Counts",
		Fields: graphql.InputObjectConfigFieldMapThunk(
			func() graphql.InputObjectConfigFieldMap {
				return graphql.InputObjectConfigFieldMap{"of": {Type: counted, DefaultValue: 1},
					"list": {Type: graphql.NewList(counted)}, "not": {Type: in}}
			})})
	args := func() graphql.FieldConfigArgument {
		list := graphql.NewList(counted)
		return graphql.FieldConfigArgument{"l": {Type: list}, "ll": {Type: graphql.NewList(list)},
			"o": {Type: in}, "os": {Type: graphql.NewList(in)}}
	}
	field := func(of graphql.Output) *graphql.Field { return &graphql.Field{Type: of, Args: args()} }
	price := func(map[string]any) Cost { n.prices++; return Cost{Calls: 1} }
	costs := map[string]func(map[string]any) Cost{"Query.counted": price}
	one := graphql.NewInterface(graphql.InterfaceConfig{Name: "One",
		Fields: graphql.Fields{"counted": field(graphql.Int)}})
	var types []*graphql.Object
	for i := range 60 {
		name := fmt.Sprintf("One%d", i)
		costs[name+".counted"] = price
		types = append(types, graphql.NewObject(graphql.ObjectConfig{Name: name, Interfaces: []*graphql.Interface{one},
			IsTypeOf: func(graphql.IsTypeOfParams) bool {
				return true
			}, Fields: graphql.Fields{"counted": field(graphql.Int)}}))
	}
	table, err := Extend(table(), Extension{Costs: costs, Query: graphql.Fields{
		"counted": field(graphql.Int), "ones": {Type: one},
		"union": {Type: graphql.NewUnion(graphql.UnionConfig{Name: "Ones", Types: types})}}})
	must(t, err)
	s, err := NewSchema(table)
	must(t, err)
	return s
}

// chained returns a document with 8 operations, each of which reaches 21 fragments. Each fragment except the last
// contains part and spreads the next one. head follows the name of each operation.
func chained(head, part string) string {
	text := many(8, "query Q%d"+head+"{...F0}")
	for i := range 20 {
		text += fmt.Sprintf("fragment F%d on Query{%s ...F%d}", i, part, i+1)
	}
	return text + "fragment F20 on Query{int}"
}

// repeatedLiterals returns documents that are within the limits and repeat literals, by name.
func repeatedLiterals() map[string]string {
	ones, fewer := strings.Repeat("1 ", 60), strings.Repeat("1 ", 40)
	return map[string]string{
		"one list":                  "{counted(l:[" + strings.Repeat("1 ", 100) + "])}",
		"lists":                     "{counted(ll:[" + strings.Repeat("["+strings.Repeat("1 ", 90)+"]", 19) + "])}",
		"defaults of input objects": "{counted(os:[" + strings.Repeat("{} ", 100) + "])}",
		"nested input": "{counted(o:" + strings.Repeat("{list:["+ones+"] not:", 17) + "{}" +
			strings.Repeat("}", 17) + ")}",
		"equal fields":                 "{" + strings.Repeat("...{counted(l:["+ones+"])}", 25) + "}",
		"aliases":                      "{" + many(25, "a%d:counted(l:["+ones+"])") + "}",
		"fragments of all operations":  chained("", "counted(l:["+fewer+"])"),
		"variables of all operations":  chained("($v:Counted=1)", "counted(l:["+fewer+"$v])"),
		"conditions of all operations": chained("($v:Boolean=true)", "counted(l:["+fewer+"]) @skip(if:$v)"),
		"defaults of all operations": many(8,
			"query Q%d($v:[[Counted]]=[["+ones+"]["+ones+"]["+ones+"]]){counted(ll:$v)}"),
		"wrong everywhere":           chained("", "counted(l:["+fewer+"] nope:1) nope"),
		"a few paths":                repeating(3, "counted(l:["+ones+"])"),
		"many paths":                 repeating(8, "counted(l:["+ones+"])"),
		"many paths to a few fields": repeating(8, many(3, "a%d:counted(l:["+ones+"])")),
		"many paths with a variable": "query($v:Counted)" + repeating(8, "counted(l:["+ones+"$v])"),
		"many paths with a condition": "query($v:Boolean=true)" +
			repeating(8, "counted(l:["+ones+"]) @include(if:$v)"),
		"each type":                 "{ones{counted(l:[" + ones + "])}}",
		"each type with a variable": "query($v:Counted){ones{counted(l:[" + ones + "$v])}}",
		"each type, many aliases":   "{" + many(36, "a%d:ones{counted(l:["+fewer+"])}") + "}",
		"each type of a union":      "{union{" + many(34, "...on One{a%d:counted(l:["+fewer+"])}") + "}}",
	}
}

// The validation rules coerce a literal once for each operation and each fragment that reaches it. The compiler
// coerces it once for each field of the plan, within its steps. If a field has a price and its arguments contain
// variables, its literals are coerced once more to compute the price.
func TestNumberOfLiteralCoercionsIsBounded(t *testing.T) {
	for name, text := range repeatedLiterals() {
		var n steps
		l := defaultLimits
		l.Calls = 1000
		s := countingSchema(t, &n)
		n = steps{}
		c := NewCache(s, l, masked, nil)
		literals := 0
		for _, literal := range []string{"1 ", "1]", "{}", "$v:Counted=1"} {
			literals += strings.Count(text, literal)
		}
		_, errs := c.Prepare(text, "", nil)
		said := ""
		if errs != nil {
			said = errs[0].Message
		}
		rules := (strings.Count(text, "query Q") + strings.Count(text, "fragment ") + 1) * literals
		compiled := stepsPerField*l.Fields + l.Tokens
		t.Logf("%-30s %d literals, coerced %d times, %d prices: %.60s", name, literals, n.literals, n.prices, said)
		most := rules + compiled
		if strings.Contains(text, "$v:Counted") {
			most += compiled
		}
		if n.literals > most || literals < 50 {
			t.Errorf("%s: %d literals were coerced %d times, want at most %d", name, literals, n.literals, most)
		}
		if n.prices > l.Fields {
			t.Errorf("%s: %d fields were priced, want at most %d", name, n.prices, l.Fields)
		}
	}
}

func TestSelectionsYieldsEachSelectionOnce(t *testing.T) {
	docs := expensiveDocuments()
	for name, text := range repeatedLiterals() {
		docs[name] = text
	}
	for name, text := range docs {
		tree, _ := parsed(t, text)
		all, visits := map[gqlparser.Selection]bool{}, 0
		for sel := range selections(tree, tree.Operations...) {
			all[sel] = true
			visits++
		}
		events := &core.Events{} // a walk that follows spreads
		events.OnField(func(_ *core.Walker, f *gqlparser.Field) { delete(all, f) })
		events.OnInlineFragment(func(_ *core.Walker, f *gqlparser.InlineFragment) { delete(all, f) })
		events.OnFragmentSpread(func(_ *core.Walker, f *gqlparser.FragmentSpread) { delete(all, f) })
		n := len(all)
		if core.Walk(testSchema(t).types, tree, events); visits != n || len(all) != 0 {
			t.Errorf("%s: got %d visits of %d selections, of which core.Walk does not reach %d",
				name, visits, n, len(all))
		}
	}
}

// A variable's value is coerced once, even if the variable is used many times.
func TestVariableValuesAreCoercedOnce(t *testing.T) {
	var n steps
	limits := defaultLimits
	limits.Tokens = 10_000
	c := NewCache(countingSchema(t, &n), limits, masked, nil)
	for name, test := range map[string]struct {
		typ, arg, value string
		want            int
	}{
		"one":          {"[Counted]", "l", "1", 1},
		"a list":       {"[Counted]", "l", ninety("1"), 91},
		"too many":     {"[Counted]", "l", "[" + strings.Repeat("1,", 100) + "1]", 0},
		"lists":        {"[[Counted]]", "ll", ninety(ninety("1")), 91 * 91},
		"nothing":      {"[[Counted]]", "ll", ninety("null"), 0},
		"a wrong item": {"[[Counted]]", "ll", "[[1,1]," + ninety("null") + `,[null,{"a":[1,1]}]]`, 3},
		"objects":      {"[Counts]", "os", ninety(`{"of":1,"list":[1,2]}`), 91 * 3},
		"nested objects": {"Counts", "o",
			strings.Repeat(`{"list":[1,1],"not":`, 15) + "{}" + strings.Repeat("}", 15), 30},
	} {
		fields := strings.ReplaceAll(many(20, "a%d:counted(ARG:$v)"), "ARG", test.arg)
		text := "query($v:" + test.typ + "){" + fields + "}"
		d := json.NewDecoder(strings.NewReader(test.value))
		d.UseNumber()
		var value any
		must(t, d.Decode(&value))
		c.Prepare(text, "", map[string]any{"v": nil}) // caches the document
		n = steps{}
		_, errs := c.Prepare(text, "", map[string]any{"v": value})
		if n.values != test.want || (errs != nil) != (test.want == 0 && name == "too many") {
			t.Errorf("%s: %d values were coerced, want %d; errors: %v", name, n.values, test.want, errs)
		}
	}
}

// A number can have 30,000 digits, and a client can send a known document by its hash. So each request may coerce only
// the literals that are in one argument with a variable.
func TestLiteralsOfKnownDocumentsAreCoercedOnce(t *testing.T) {
	var n steps
	c := NewCache(countingSchema(t, &n), defaultLimits, masked, nil)
	for text, want := range map[string]int{
		"query($v:[Counted]){counted(l:$v ll:[[1 2 3]] o:{of:1})}":    0,
		"query($v:[Counted]){counted(ll:[[1 2 3]] o:{of:1 list:$v})}": 1,
		"query($v:Counted){counted(l:[1 2 $v])}":                      2,
	} {
		prepare(t, c, text, nil)
		n = steps{}
		b := prepare(t, c, text, nil)
		b.Cost()
		if n.literals > 3*want { // for the price, its limit and the call
			t.Errorf("%s: literals were coerced %d times, want at most three times %d", text, n.literals, want)
		}
	}
}

// twoInterfaces returns the tests' schema with two additional interfaces, each with n object types.
func twoInterfaces(t *testing.T, n int) *Schema {
	t.Helper()
	x := Extension{Query: graphql.Fields{}}
	for _, name := range []string{"One", "Two"} {
		fields := graphql.Fields{"size": {Type: graphql.Int}}
		of := graphql.NewInterface(graphql.InterfaceConfig{Name: name, Fields: fields})
		x.Query[strings.ToLower(name)] = &graphql.Field{Type: of}
		for i := range n {
			x.Types = append(x.Types, graphql.NewObject(graphql.ObjectConfig{Name: fmt.Sprintf("%s%02d", name, i),
				Interfaces: []*graphql.Interface{of}, IsTypeOf: func(graphql.IsTypeOfParams) bool {
					return true
				}, Fields: fields}))
		}
	}
	table, err := Extend(table(), x)
	must(t, err)
	s, err := NewSchema(table)
	must(t, err)
	return s
}

// The document of 5 kB has 800 spreads that 37 operations and fragments reach. If each visit of a spread compared
// 60 types with 60 other types, preparing the document would take seconds.
func TestTimeOfSpreadCheckDoesNotGrowWithNumberOfTypes(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: times are not comparable under the race detector")
		return
	}
	text := many(7, "query Q%d{...F0}") + "query Q7{two{...T}} fragment T on Two{size}"
	for i := range 29 {
		text += fmt.Sprintf("fragment F%d on Query{...F%d}", i, i+1)
	}
	text += "fragment F29 on Query{one{" + strings.Repeat("...T ", 800) + "}}"
	shortest := func(types int) time.Duration {
		c := NewCache(twoInterfaces(t, types), defaultLimits, masked, nil)
		return shortestTime(0, func() {
			if _, errs := c.Prepare(text, "", nil); errs == nil ||
				!strings.HasPrefix(errs[0].Message, `Fragment "T" cannot be spread here`) {
				t.Fatal(errs)
			}
		})
	}
	for tries := 0; ; tries++ {
		small, large := shortest(1), shortest(60)
		if t.Logf("%v with 1 type, %v with 60", small, large); large < 5*small {
			return
		}
		if tries == 2 {
			t.Fatal("with 60 types, preparing takes at least 5 times as long as with 1, want less")
		}
	}
}

// A body can contain thousands of numbers. To format one near 1e308 without an exponent takes microseconds.
func TestNumbersOutOfRangeAreNotFormattedAsIDs(t *testing.T) {
	var usual float64
	for _, number := range []json.Number{"1.5", "1e308", "-1e308", "9007199254740993e0", "1e309"} {
		n := testing.AllocsPerRun(100, func() {
			if value, ok := scalarJSON("ID", number); ok {
				t.Fatalf("%s is the ID %v, want an error", number, value)
			}
		})
		if number == "1.5" {
			usual = n
		} else if n > usual {
			t.Errorf("%s as an ID takes %v allocations, and 1.5 takes %v", number, n, usual)
		}
	}
}
