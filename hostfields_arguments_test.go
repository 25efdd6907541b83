package chaingql_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// filteredFields returns options with host fields whose argument has a recursive input type. Their resolver calls seen.
func filteredFields(seen func(args map[string]any)) chaingql.Options {
	var filter *graphql.InputObject
	filter = graphql.NewInputObject(graphql.InputObjectConfig{Name: "TransferFilter",
		Fields: graphql.InputObjectConfigFieldMapThunk(func() graphql.InputObjectConfigFieldMap {
			return graphql.InputObjectConfigFieldMap{
				"and":  {Type: graphql.NewList(filter)},
				"kind": {Type: kinds},
				"min":  {Type: graphql.Int, DefaultValue: 0},
			}
		})})
	args := graphql.FieldConfigArgument{
		"filter": {Type: filter, DefaultValue: map[string]any{"kind": "p"}}, "page": {Type: graphql.Int},
		"times": {Type: nonNull(graphql.Int), DefaultValue: 1},
	}
	count := &graphql.Field{Type: graphql.Int, Args: args,
		Resolve: func(p graphql.ResolveParams) (any, error) { seen(p.Args); return 1, nil }}
	wallet := graphql.NewObject(graphql.ObjectConfig{Name: "Wallet", Fields: graphql.Fields{"count": count}})
	wallets := &graphql.Field{Type: graphql.NewList(wallet),
		Resolve: func(graphql.ResolveParams) (any, error) { return make([]struct{}, 100), nil }}
	return chaingql.Options{Schema: chaingql.SchemaExtension{
		Queries: graphql.Fields{"count": count, "wallets": wallets},
	}}
}

// The memory of the arguments must not grow with the number of aliases or of list items.
func TestArgumentsOfHostFieldsAreAllocatedOncePerRequest(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	h, _ := newHandler(t, memchain.New(), filteredFields(func(map[string]any) {}))
	aliases := func(field string) string {
		var b strings.Builder
		for i := range 45 {
			fmt.Fprintf(&b, "a%d:%s ", i, field)
		}
		return b.String()
	}
	literal := "{and:[" + strings.Repeat("{and:["+strings.Repeat("{}", 90)+"]}", 7) + "]}"
	var filter any
	objects := `{"and":[` + strings.Repeat(`{"and":[`+strings.Repeat("{},", 89)+"{}]},", 6) + "{}]}"
	if err := json.Unmarshal([]byte(objects), &filter); err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{"f": filter}
	const invalid = "an invalid argument and items"
	for name, request := range map[string]string{
		invalid: body("query($n:Int){"+aliases("wallets{...F}")+
			"} fragment F on Wallet{count(times:$n filter:"+literal+")}", map[string]any{"n": nil}),
		"a literal": body(
			"{"+aliases("wallets{...F}")+"} fragment F on Wallet{count(filter:"+literal+")}", nil),
		"a variable":           body("query($f:TransferFilter){"+aliases("count(filter:$f)")+"}", variables),
		"a variable and items": body("query($f:TransferFilter){"+aliases("wallets{count(filter:$f)}")+"}", variables),
	} {
		post(h, request)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		response := post(h, request).Body.String()
		runtime.ReadMemStats(&after)
		if strings.Contains(response, "errors") != (name == invalid) {
			t.Errorf("%s: the response has errors: %.300s", name, response)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%s: a request of %d bytes allocates %d bytes, want at most %d", name, len(request), took, 16<<20)
		} else {
			t.Logf("%s: a request of %d bytes allocates %d bytes", name, len(request), took)
		}
	}
}

// Without a limit, the variables of one body could have 40,000 objects and keep 28 MB while a query runs.
func TestNumberOfValuesInHostArgumentsIsLimited(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), filteredFields(func(map[string]any) {}))
	list := `{"and":[` + strings.Repeat(`{"and":[`+strings.Repeat("{},", 99)+"{}]},", 99) + "{}]}"
	request := `{"query":"query($f:TransferFilter){count(filter:$f)}","variables":{"f":` + list + `}}`
	equal(t, "code", parse(t, post(h, request).Body.String()).code(), "LIMIT_EXCEEDED")
}

// If a resolver changes its arguments, the arguments of other requests must not change.
func TestArgumentsChangedByAResolverDoNotAffectOtherRequests(t *testing.T) {
	var found any
	h, _ := newHandler(t, memchain.New(), filteredFields(func(args map[string]any) {
		filter := args["filter"].(map[string]any)
		found = filter["kind"]
		filter["kind"] = "changed"
		delete(args, "filter")
	}))
	for _, document := range []string{
		`{count(filter:{kind:PAID})}`, `query($f:TransferFilter={kind:PAID}){count(filter:$f)}`,
		`query($n:Int=1){count(filter:{kind:PAID,min:$n})}`,
		`{count}`, `query($p:Int){count(page:$p)}`, `query($f:TransferFilter){count(filter:$f)}`,
	} {
		for range 3 {
			equal(t, "response", query(h, document, nil), `{"data":{"count":1}}`)
			equal[any](t, document, found, "p")
		}
	}
}

// The document is compiled for each type, but the arguments are the same for all that have no others.
func TestTypesOfAnInterfaceShareArguments(t *testing.T) {
	parsed := 0
	number := graphql.NewScalar(graphql.ScalarConfig{Name: "Number", Serialize: graphql.Int.Serialize,
		ParseValue:   graphql.Int.ParseValue,
		ParseLiteral: func(v ast.Value) any { parsed++; return graphql.Int.ParseLiteral(v) },
	})
	in := graphql.FieldConfigArgument{"in": {Type: listOf(number)}}
	sized := graphql.NewInterface(graphql.InterfaceConfig{
		Name: "Sized", Fields: graphql.Fields{"size": {Type: graphql.Int, Args: in}},
	})
	var schema chaingql.SchemaExtension
	items, costs := []int{}, map[string]func(map[string]any) chaingql.Cost{}
	for i := range 60 {
		args := graphql.FieldConfigArgument{"in": in["in"]}
		if i%20 == 0 {
			args["extra"] = &graphql.ArgumentConfig{Type: graphql.Int, DefaultValue: i}
		}
		name := fmt.Sprintf("Sized%d", i)
		costs[name+".size"] = func(map[string]any) chaingql.Cost { return chaingql.Cost{Blocks: i} }
		schema.Types = append(schema.Types, graphql.NewObject(graphql.ObjectConfig{
			Name: name, Interfaces: []*graphql.Interface{sized},
			IsTypeOf: func(p graphql.IsTypeOfParams) bool { return p.Value == i },
			Fields: graphql.Fields{"size": {Type: graphql.Int, Args: args,
				Resolve: func(p graphql.ResolveParams) (any, error) {
					extra, _ := p.Args["extra"].(int)
					return 1000*extra + len(p.Args["in"].([]any)), nil
				}}},
		}))
		items = append(items, i)
	}
	schema.Queries, schema.Costs = graphql.Fields{"items": constField(listOf(sized), items)}, costs
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Schema: schema, ShowCost: true,
		Limits: chaingql.Limits{QueryBlocks: 59 * 60 / 2}})
	got := query(h, "{items{size(in:["+strings.Repeat("1 ", 90)+"])}}", nil)
	for i := range items {
		want := fmt.Sprintf(`{"size":%d}`, 90+1000*i)
		if i%20 != 0 {
			want = `{"size":90}`
		}
		if !strings.Contains(got, want) {
			t.Fatalf("got %s, want %s in it", got, want)
		}
	}
	if want := fmt.Sprintf(`"blocks":%d}`, 59*60/2); !strings.Contains(got, want) {
		t.Errorf("got %s, want the sum of the costs of all types", got)
	}
	document := "query($n:Number){items{size(in:[1 1 $n])}}"
	query(h, document, map[string]any{"n": 1})
	parsed = 0
	query(h, document, map[string]any{"n": 1})
	if most := 2 * 2 * 4; parsed > most { // for the price and the calls, and there are four kinds of arguments
		t.Errorf("a request with two literals beside a variable parses %d of them, want at most %d", parsed, most)
	}
}
