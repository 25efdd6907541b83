package chaingql_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// pricedFields returns options with host fields that have different kinds of costs.
func pricedFields() chaingql.Options {
	sides := graphql.NewEnum(graphql.EnumConfig{
		Name: "Side", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}, "TEN": {Value: 10}},
	})
	inner := newObject("Inner", graphql.Fields{"a": constField(graphql.Int, 1), "free": constField(graphql.Int, 1)})
	outer := newObject("Outer", graphql.Fields{
		"inner": constField(listOf(inner), []int{}), "plain": constField(inner, 1),
	})
	sided := graphql.NewInputObject(graphql.InputObjectConfig{
		Name: "Sided", Fields: graphql.InputObjectConfigFieldMap{"sides": {Type: listOf(sides)}},
	})
	args := graphql.FieldConfigArgument{
		"first": {Type: graphql.Int, DefaultValue: 3}, "side": {Type: sides}, "in": {Type: sided},
	}
	list := constField(listOf(outer), nil)
	list.Args = args
	return chaingql.Options{ShowCost: true, Limits: chaingql.Limits{BackendCalls: 1000, QueryBlocks: 2000},
		Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{
				"plain": constField(graphql.Int, 1),
				"list":  list,
				"odd":   {Type: outer, Args: args},
				"huge":  {Type: listOf(outer)},
			},
			Costs: map[string]func(map[string]any) chaingql.Cost{
				"Query.list": func(args map[string]any) chaingql.Cost {
					c := chaingql.Cost{Calls: 1, Items: args["first"].(int)}
					if side, ok := args["side"].(int); ok { // the enum's internal value
						c.Blocks = side
					}
					if in, ok := args["in"].(map[string]any); ok {
						c.Blocks = in["sides"].([]any)[0].(int)
					}
					return c
				},
				"Outer.inner": func(map[string]any) chaingql.Cost {
					return chaingql.Cost{Calls: 2, Blocks: 1, Items: 7}
				},
				"Inner.a": func(map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 1} },
				"Query.huge": func(map[string]any) chaingql.Cost {
					return chaingql.Cost{Items: math.MaxInt, Blocks: math.MaxInt}
				},
				"Query.odd": func(args map[string]any) chaingql.Cost {
					n := args["first"].(int)
					return chaingql.Cost{Calls: n, Blocks: n * 1000, Items: n}
				},
			},
		}}
}

func TestHostFieldCostsAreComputedBeforeExecution(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), pricedFields())
	for _, row := range []struct{ document, variables, want string }{
		{`{plain}`, ``, `"calls":1,"blocks":0`},
		{`{plain again:plain}`, ``, `"calls":2,"blocks":0`},
		{`{list{plain{free}}}`, ``, `"calls":1,"blocks":0`},
		{`{list(first:5){inner{free}}}`, ``, `"calls":11,"blocks":5`},
		{`query($n:Int){list(first:$n){inner{free}}}`, `{"n":6}`, `"calls":13,"blocks":6`},
		{`query($n:Int){list(first:$n){inner{free}}}`, ``, `"calls":7,"blocks":3`},
		{`{list(first:2){inner{a free}}}`, ``, `"calls":19,"blocks":2`},
		{`{list(first:2){plain{a}}}`, ``, `"calls":3,"blocks":0`},
		{`{list(side:TEN){__typename}}`, ``, `"calls":1,"blocks":10`},
		{`query($s:Side){list(side:$s){__typename}}`, `{"s":"TEN"}`, `"calls":1,"blocks":10`},
		{`query($s:Side){list(in:{sides:[$s]}){__typename}}`, `{"s":"TEN"}`, `"calls":1,"blocks":10`},
		{`query($no:Boolean!){plain list @skip(if:$no){inner{a}}}`, `{"no":true}`, `"calls":1,"blocks":0`},
		{`{odd(first:-5){inner{a}}}`, ``, `"calls":9,"blocks":1`},
		{`{odd(first:1001){__typename}}`, ``, `costs 1001 calls of the backend, more than the limit of 1000`},
		{`{odd(first:3){__typename}}`, ``, `costs 3000 blocks, more than the limit of 2000`},
		{`{list(first:5){inner{free}} plain}`, ``, `"calls":12,"blocks":5`},
		{`{odd(first:2147483647){inner{a}}}`, ``, `costs 1073741824 calls`},
		{`{list(first:2147483647){inner{a}}}`, ``, `costs 1073741824 calls`},
		{`{huge{inner{a}}}`, ``, `costs 1073741824 calls`},
		{`{huge{plain{free}} again:huge{plain{free}}}`, ``, `costs 1073741824 blocks`},
		{`{list(first:200){inner{a}}}`, ``, `costs 1801 calls`},
	} {
		var v map[string]any
		if row.variables != "" {
			v = variables(t, row.variables)
		}
		if got := query(h, row.document, v); !strings.Contains(got, row.want) {
			t.Errorf("%s %s\n got %s\nwant %s", row.document, row.variables, got, row.want)
		}
	}
}

// A fragment's arguments may have thousands of values, and may be coerced for every price.
func TestAFragmentThatIsSpreadOftenIsPricedOnce(t *testing.T) {
	opts, priced := pricedFields(), 0
	args := graphql.FieldConfigArgument{"n": {Type: graphql.Int}, "in": {Type: listOf(graphql.Int)}}
	item := newObject("Item", graphql.Fields{"of": {Type: graphql.Int, Args: args}})
	opts.Schema.Queries["items"] = &graphql.Field{Type: listOf(item)}
	opts.Schema.Costs["Item.of"] = func(args map[string]any) chaingql.Cost {
		priced++
		return chaingql.Cost{Calls: args["n"].(int)}
	}
	h, _ := newHandler(t, memchain.New(), opts)
	document := "query($n:Int,$v:Int){"
	for i := range 40 {
		document += fmt.Sprintf("a%d:items{...F}", i)
	}
	document += "items{of(n:5)}} fragment F on Item{of(n:$n in:[1 2 $v 3]) b:of(n:2)}"
	got := query(h, document, variables(t, `{"n":3,"v":4}`))
	if want := fmt.Sprintf(`"calls":%d,`, 41+40*(3+2)+5); !strings.Contains(got, want) || priced != 3 {
		t.Errorf("three fields were priced %d times; got %s, want %s", priced, got, want)
	}
}

func TestHostSubscriptionThatCostsTooMuchIsRefused(t *testing.T) {
	schema := (&tickSource{events: untilDone}).schema()
	schema.Costs = map[string]func(map[string]any) chaingql.Cost{
		"Subscription.tick": func(args map[string]any) chaingql.Cost { return chaingql.Cost{Calls: args["to"].(int)} },
	}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Schema: schema})
	for to, good := range map[int]bool{50: true, 51: false} {
		stop, err := h.Subscribe(fmt.Sprintf(`subscription{tick(to:%d)}`, to), nil)
		switch {
		case good && err == nil:
			stop()
		case good || err == nil || !strings.Contains(err.Error(), "costs 51 calls"):
			t.Errorf("Subscribe to a field that costs %d calls returned %v, want success: %v", to, err, good)
		}
	}
}
