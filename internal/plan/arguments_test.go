package plan

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
)

// sortedSchema returns the tests' schema with a field sorted of a host in Query and in Subscription. Its resolver calls
// seen. Subscription also has a field events without a resolver.
func sortedSchema(t *testing.T, seen func(args map[string]any)) *Schema {
	t.Helper()
	page := graphql.NewInputObject(graphql.InputObjectConfig{Name: "Page", Fields: graphql.InputObjectConfigFieldMap{
		"size": {Type: graphql.Int, DefaultValue: 10}, "from": {Type: graphql.Int, DefaultValue: 0},
		"to": {Type: graphql.Int},
	}})
	sort := graphql.NewInputObject(graphql.InputObjectConfig{Name: "Sort", Fields: graphql.InputObjectConfigFieldMap{
		"page": {Type: page, DefaultValue: map[string]any{}}, "by": {Type: graphql.String, DefaultValue: "id"},
		"up": {Type: graphql.Boolean, DefaultValue: true},
	}})
	sorted := &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{
		"by": {Type: graphql.NewList(sort)}, "first": {Type: sort, DefaultValue: map[string]any{}},
	}, Resolve: func(p graphql.ResolveParams) (any, error) { seen(p.Args); return 1, nil }}
	events := &graphql.Field{Type: graphql.Int, Args: sorted.Args}
	table, err := Extend(table(), Extension{Query: graphql.Fields{"sorted": sorted},
		Subscription: graphql.Fields{"sorted": sorted, "events": events}})
	must(t, err)
	s, err := NewSchema(table)
	must(t, err)
	return s
}

// Each run copies the arguments of the host's fields. They are larger than their text if the host's input types have
// defaults.
func TestTokensLimitsTheValuesOfHostArguments(t *testing.T) {
	values := 0 // of all arguments, with those nested in them
	s := sortedSchema(t, func(args map[string]any) { values += countValues(args) - len(args) })
	const twenty = "[" + "{}{}{}{}{}{}{}{}{}{}" + "{}{}{}{}{}{}{}{}{}{}" + "]"
	// A Sort has 5 values, and 6 as an item of a list. The argument first has 5 by default.
	for text, want := range map[string]int{
		"{sorted(by:" + twenty + ")}":                                             5 + 20*6,
		"{sorted(by:{})}":                                                         5 + 6,
		"{sorted(by:[null{}null] first:null)}":                                    8,
		"{a:sorted b:sorted}":                                                     10,
		"{a:sorted(by:" + twenty + ") b:sorted(by:" + twenty + ")}":               10 + 40*6,
		"{...F ...F} fragment F on Query{sorted(by:" + twenty + ")}":              5 + 20*6,
		"{sorted(by:[{page:{size:1}}{}])}":                                        5 + 2*6,
		"{sorted(by:[{page:{to:1}}])}":                                            5 + 7,
		"{echo(os:[{}{}]) sorted}":                                                5, // a built-in field copies nothing
		"query A{sorted(by:" + twenty + ")}query B{sorted}":                       5 + 20*6,
		"subscription{sorted(by:" + twenty + ")}":                                 5 + 20*6,
		"query($i:Boolean!){sorted(by:" + twenty + ")@include(if:$i)}":            5 + 20*6,
		"query($b:String){sorted(first:{by:$b}by:" + twenty + ")}":                5 + 20*6,
		"query($b:String){sorted(by:[" + strings.Repeat("{by:$b}", 20) + "])}":    5 + 20*6,
		"query($p:Page){sorted(by:[" + strings.Repeat("{page:$p}", 20) + "])}":    5 + 20*6, // if $p is absent
		"query($f:Sort){sorted(first:$f)}":                                        5,
		"query($l:[Sort]=" + twenty + "){sorted(by:$l)}":                          5, // bind counts the default of $l
		"query($f:Sort=null){sorted(by:[{}$f{}])}":                                5 + 13,
		"query($u:Boolean){sorted(by:[{page:{size:2}up:$u}{}] first:{up:false})}": 5 + 2*6,
	} {
		given := map[string]any{"i": true}
		loose := NewCache(s, Limits{}, masked, nil)
		tree, _, errs := loose.parse(text)
		if errs != nil {
			t.Fatalf("%s: %v", text, errs)
		}
		for limit, valid := range map[int]bool{want: true, want - 1: false} {
			c := NewCache(s, Limits{Tokens: limit}, masked, nil)
			def := tree.Operations[0]
			_, err := c.compile(tree, def, c.newOperation(def), given)
			message := fmt.Sprintf("The arguments exceed the limit of %d values.", limit)
			if valid != (err == nil) || err != nil && (err.Limit != "Tokens" || err.Message != message) {
				t.Errorf("%s: limit of %d: got error %v, want one: %v", text, limit, err, !valid)
			}
		}
		b, errs := loose.Prepare(text, tree.Operations[0].Name, given)
		if errs != nil {
			t.Fatalf("%s: %v", text, errs)
		}
		values = 0
		b.Run(context.Background(), world{}, nil)
		if !strings.Contains(text, "$l") && values != want {
			t.Errorf("%s: the resolvers received %d values, want %d", text, values, want)
		}
	}
}

func TestEventsWithoutAResolverNeedNoArguments(t *testing.T) {
	c := NewCache(sortedSchema(t, nil), Limits{CacheBytes: 1 << 20}, masked, nil)
	allocations := func(text string) float64 {
		b, errs := c.Prepare(text, "", nil)
		if errs != nil {
			t.Fatal(errs)
		}
		var dst []byte
		n := testing.AllocsPerRun(20, func() { dst, _ = b.Run(context.Background(), 7, dst[:0]) })
		if string(dst) != `{"data":{"events":7}}` {
			t.Errorf("%s: got %s, want the event", text, dst)
		}
		return n
	}
	few := allocations("subscription{events}")
	many := allocations("subscription{events(by:[" + strings.Repeat("{}", 50) + "])}")
	some := allocations("subscription($b:String){events(by:[" + strings.Repeat("{by:$b}", 50) + "])}")
	if many > few+5 || some > few+5 {
		t.Errorf("an event takes %v allocations, %v with 50 objects, and %v if they have variables", few, many, some)
	}
}
