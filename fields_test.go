package chaingql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"
	"github.com/graphql-go/graphql/language/printer"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A transfer is what a host of its own shows beside the chain.
type transfer struct {
	Hash   string `json:"hash"`
	Amount int    `json:"amount"`
	kind   string
	to     []string
}

var kinds = graphql.NewEnum(graphql.EnumConfig{Name: "TransferKind", Values: graphql.EnumValueConfigMap{
	"PAID": {Value: "p"}, "FREE": {Value: "f", DeprecationReason: "Nothing is."},
}})

// moment is a scalar that reads and writes itself.
var moment = graphql.NewScalar(graphql.ScalarConfig{Name: "Moment",
	Serialize: func(v any) any { return v.(time.Time).Format(time.DateOnly) },
	ParseValue: func(v any) any {
		text, _ := v.(string)
		if at, err := time.Parse(time.DateOnly, text); err == nil {
			return at
		}
		return nil
	},
	ParseLiteral: func(v ast.Value) any {
		text, _ := v.(*ast.StringValue)
		if text == nil {
			return nil
		}
		if at, err := time.Parse(time.DateOnly, text.Value); err == nil {
			return at
		}
		return nil
	},
})

// hosted are fields as a host declares them, whose resolvers note what they got.
func hosted(note func(p graphql.ResolveParams)) graphql.Fields {
	party := graphql.NewInterface(graphql.InterfaceConfig{Name: "Party", Fields: graphql.Fields{"name": {Type: graphql.String}},
		ResolveType: func(p graphql.ResolveTypeParams) *graphql.Object {
			if p.Value == "bank" {
				return p.Info.Schema.Type("Bank").(*graphql.Object)
			}
			return p.Info.Schema.Type("Person").(*graphql.Object)
		}})
	name := &graphql.Field{Type: graphql.String, Resolve: func(p graphql.ResolveParams) (any, error) { note(p); return p.Source, nil }}
	person := graphql.NewObject(graphql.ObjectConfig{Name: "Person", Interfaces: []*graphql.Interface{party}, Fields: graphql.Fields{"name": name}})
	bank := graphql.NewObject(graphql.ObjectConfig{Name: "Bank", Interfaces: []*graphql.Interface{party}, Fields: graphql.Fields{"name": name,
		"code": {Type: graphql.NewNonNull(graphql.Int), Resolve: func(graphql.ResolveParams) (any, error) { return 7, nil }}}})
	var transfers *graphql.Object
	transfers = graphql.NewObject(graphql.ObjectConfig{Name: "Transfer", Description: "Of money.", Fields: graphql.FieldsThunk(func() graphql.Fields {
		return graphql.Fields{
			"hash": {Type: graphql.NewNonNull(graphql.ID)},
			"amount": {Type: graphql.Int, Args: graphql.FieldConfigArgument{"times": {Type: graphql.Int, DefaultValue: 2}}, Resolve: func(p graphql.ResolveParams) (any, error) {
				note(p)
				return p.Source.(transfer).Amount * p.Args["times"].(int), nil
			}},
			"kind": {Type: kinds, Resolve: func(p graphql.ResolveParams) (any, error) { return p.Source.(transfer).kind, nil }},
			"to":   {Type: graphql.NewList(party), Resolve: func(p graphql.ResolveParams) (any, error) { return p.Source.(transfer).to, nil }},
			"either": {Type: graphql.NewUnion(graphql.UnionConfig{Name: "Either", Types: []*graphql.Object{person, bank}, ResolveType: func(graphql.ResolveTypeParams) *graphql.Object { return bank }}),
				Resolve: func(p graphql.ResolveParams) (any, error) { return "bank", nil }},
			"before": {Type: transfers, Resolve: func(p graphql.ResolveParams) (any, error) {
				return func() (any, error) { note(p); return transfer{Hash: p.Source.(transfer).Hash + "-"}, nil }, nil
			}},
			"on": {Type: moment, Resolve: func(graphql.ResolveParams) (any, error) { return time.Unix(86400, 0).UTC(), nil }},
		}
	})})
	choice := graphql.NewInputObject(graphql.InputObjectConfig{Name: "Choice", Fields: graphql.InputObjectConfigFieldMap{
		"kind": {Type: kinds, DefaultValue: "p"}, "hashes": {Type: graphql.NewList(graphql.NewNonNull(graphql.ID))}, "not": {Type: graphql.Boolean},
	}})
	return graphql.Fields{"transfers": {Type: graphql.NewList(transfers), Description: "All of them.",
		Args: graphql.FieldConfigArgument{"choice": {Type: choice}, "kind": {Type: kinds, DefaultValue: "f"}, "first": {Type: graphql.Int}, "since": {Type: moment}},
		Resolve: func(p graphql.ResolveParams) (any, error) {
			note(p)
			return []transfer{{Hash: "a", Amount: 1, kind: "p", to: []string{"bank", "Ann"}}, {Hash: "b", Amount: 2, kind: "f"}}, nil
		}}}
}

// seen is all that a resolver is told, in words.
func seen(p graphql.ResolveParams) string {
	var fields, fragments []string
	for _, f := range p.Info.FieldASTs {
		fields = append(fields, fmt.Sprint(printer.Print(f)))
	}
	for _, name := range []string{"F", "G"} {
		if f := p.Info.Fragments[name]; f != nil {
			fragments = append(fragments, fmt.Sprint(printer.Print(f)))
		}
	}
	return fmt.Sprintf("%v of %v at %v: %v; source %#v, root %#v; args %v, variables %v; fields %q in %q with %q, schema %v, value %v",
		p.Info.FieldName, p.Info.ParentType, p.Info.Path.AsArray(), p.Info.ReturnType, p.Source, p.Info.RootValue, p.Args, p.Info.VariableValues,
		fields, printer.Print(p.Info.Operation), fragments, p.Info.Schema.QueryType() != nil, p.Context.Value(spanKey{}))
}

// The oracle is graphql-go itself, on the same schema.
func TestHostsFieldsAreResolvedAsGraphqlGoDoes(t *testing.T) {
	var told []string
	fields := hosted(func(p graphql.ResolveParams) { told = append(told, seen(p)) })
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: fields})
	for _, row := range []struct{ document, variables string }{
		{`{transfers{hash amount kind on}}`, `{}`},
		{`query Q($n: Int = 3, $k: TransferKind){a: transfers(kind: $k, first: 5){...F amount(times: $n) again: amount(times: 7)}} fragment F on Transfer{hash to{name ...G}} fragment G on Bank{code}`, `{"k":"PAID"}`},
		{`query($c: Choice){transfers(choice: $c){hash}}`, `{"c":{"hashes":["x","y"],"kind":"FREE"}}`},
		{`{transfers(choice: {hashes: "x", not: true}, kind: PAID){hash either{__typename ... on Bank{name code}}}}`, `{}`},
		{`query($yes: Boolean!){transfers @include(if: $yes){hash} transfers{amount @skip(if: $yes) kind}}`, `{"yes":true}`},
		{`{transfers{before{hash before{hash amount}} hash}}`, `{}`},
		{`{__typename transfers{__typename to{__typename name}} blockchain{blocks{edges{cursor}}}}`, `{}`},
	} {
		var variables map[string]any
		if err := json.Unmarshal([]byte(row.variables), &variables); err != nil {
			t.Fatal(err)
		}
		told = nil
		ctx := context.WithValue(context.Background(), spanKey{}, "caller's")
		want := graphql.Do(graphql.Params{Schema: h.Schema(), RequestString: row.document, VariableValues: variables, Context: ctx})
		if want.HasErrors() {
			t.Fatalf("graphql-go does not answer %s: %v", row.document, want.Errors)
		}
		wantTold := told
		told = nil
		got := post(h, body(row.document, variables)).Body.String()
		if !sameJSON(t, got, want) {
			w, _ := json.Marshal(want)
			t.Errorf("%s\n got %s\nwant %s", row.document, got, w)
		}
		for i := range wantTold {
			wantTold[i] = strings.ReplaceAll(wantTold[i], "value caller's", "value <nil>")
		}
		if !sameLines(told, wantTold) {
			t.Errorf("%s: resolvers are told\n     %s\nwhere graphql-go tells\n     %s", row.document, strings.Join(told, "\n     "), strings.Join(wantTold, "\n     "))
		}
	}
}

// sameLines leaves the order aside, which is by name in graphql-go.
func sameLines(a, b []string) bool {
	count := map[string]int{}
	for _, line := range a {
		count[line]++
	}
	for _, line := range b {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func sameJSON(t *testing.T, got string, want any) bool {
	t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal(text, &b) != nil {
		return false
	}
	return reflect.DeepEqual(a, b)
}

func TestThunksWaitUntilAllThatIsBesideThemIsResolved(t *testing.T) {
	var asked []int
	loads := 0
	item := graphql.NewObject(graphql.ObjectConfig{Name: "Item", Fields: graphql.Fields{
		"double": {Type: graphql.NewNonNull(graphql.Int), Resolve: func(p graphql.ResolveParams) (any, error) {
			n := p.Source.(int)
			asked = append(asked, n)
			return func() (any, error) {
				if len(asked) > 0 {
					loads, asked = loads+1, nil
				}
				if n == 3 {
					return nil, errors.New("s3cret")
				}
				return 2 * n, nil
			}, nil
		}},
	}})
	list := func(items ...int) *graphql.Field {
		return &graphql.Field{Type: graphql.NewList(item), Resolve: func(graphql.ResolveParams) (any, error) { return items, nil }}
	}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"items": list(1, 2, 4), "holed": list(1, 3, 5)}})
	equal(t, "items", post(h, body(`{items{double}}`, nil)).Body.String(), `{"data":{"items":[{"double":2},{"double":4},{"double":8}]}}`)
	equal(t, "loads", loads, 1)
	got := parse(t, post(h, body(`{holed{double}}`, nil)).Body.String())
	equal(t, "code", got.code(), "INTERNAL_SERVER_ERROR")
	equal(t, "items around the hole", string(got.Data), `{"holed":[{"double":2},null,{"double":10}]}`)
}

func TestNewRefusesFieldsThatCannotBe(t *testing.T) {
	own := func(name string) *graphql.Object {
		return graphql.NewObject(graphql.ObjectConfig{Name: name, Fields: graphql.Fields{"a": {Type: graphql.Int}}})
	}
	of := func(typ graphql.Output) *graphql.Field { return &graphql.Field{Type: typ} }
	with := func(name string, arg graphql.Input, def any) chaingql.Options {
		return chaingql.Options{QueryFields: graphql.Fields{"x": {Type: graphql.Int, Args: graphql.FieldConfigArgument{name: {Type: arg, DefaultValue: def}}}}}
	}
	field := func(name string, typ graphql.Output) chaingql.Options {
		return chaingql.Options{QueryFields: graphql.Fields{name: of(typ)}}
	}
	priced := func(name string) chaingql.Options {
		return chaingql.Options{QueryFields: graphql.Fields{"x": of(own("Own"))}, Costs: map[string]func(map[string]any) chaingql.Cost{name: nil}}
	}
	in := graphql.NewInputObject(graphql.InputObjectConfig{Name: "In", Fields: graphql.InputObjectConfigFieldMap{"a": {Type: graphql.Int}}})
	void := graphql.NewScalar(graphql.ScalarConfig{Name: "Void", Serialize: func(v any) any { return v }})
	named := graphql.NewInterface(graphql.InterfaceConfig{Name: "HasName", Fields: graphql.Fields{"name": {Type: graphql.String}}})
	enum := func(value string) *graphql.Enum {
		return graphql.NewEnum(graphql.EnumConfig{Name: "E", Values: graphql.EnumValueConfigMap{value: {}}})
	}
	for want, opts := range map[string]chaingql.Options{
		"Query.info is built in":                        {QueryFields: graphql.Fields{"info": of(graphql.Int)}},
		"Subscription.blocks is built in":               {SubscriptionFields: map[string]chaingql.SubscriptionField{"blocks": {Field: of(graphql.Int), Subscribe: nothing}}},
		"type Block is built in":                        {QueryFields: graphql.Fields{"x": of(own("Block"))}},
		"two types called Twin":                         {QueryFields: graphql.Fields{"x": of(own("Twin")), "y": of(own("Twin"))}},
		"Query.x has no type":                           {QueryFields: graphql.Fields{"x": {}}},
		"__x":                                           {QueryFields: graphql.Fields{"__x": of(graphql.Int)}},
		"Subscription.x has no Subscribe":               {SubscriptionFields: map[string]chaingql.SubscriptionField{"x": {Field: of(graphql.Int)}}},
		"Query.y has a cost but is no field of yours":   {QueryFields: graphql.Fields{"x": of(graphql.Int)}, Costs: map[string]func(map[string]any) chaingql.Cost{"Query.y": nil}},
		"type Mutation is built in":                     field("x", own("Mutation")),
		"type __Schema is built in":                     field("x", own("__Schema")),
		"type Query is built in":                        field("x", own("Query")),
		"two types called ID":                           field("x", graphql.NewScalar(graphql.ScalarConfig{Name: "ID", Serialize: func(v any) any { return v }})),
		"__own":                                         field("x", own("__own")),
		"Query.y: a type is nil":                        field("y", (*graphql.NonNull)(nil)),
		"Query.z: a type is nil":                        field("z", graphql.NewList(nil)),
		"Query.n has no type":                           {QueryFields: graphql.Fields{"n": nil}},
		"Subscription.n has no type":                    {SubscriptionFields: map[string]chaingql.SubscriptionField{"n": {Subscribe: nothing}}},
		"x-y":                                           field("x-y", graphql.Int),
		"1a":                                            with("1a", graphql.Int, nil),
		"Query.x(b:) has no type":                       with("b", nil, nil),
		"In is for arguments alone":                     field("x", in),
		"Own is not for arguments":                      with("a", own("Own"), nil),
		`default value has a field "b" that In has not`: with("a", in, map[string]any{"b": 1}),
		"default value 7 is no map[string]any":          with("a", in, 7),
		"default value q is none of E":                  with("a", enum("Q"), "q"),
		"Void cannot represent":                         with("a", void, "x"),
		"the cost of Query.x is nil":                    priced("Query.x"),
		"the cost of Own.a is nil":                      priced("Own.a"),
		"Own.b has a cost but is no field of yours":     priced("Own.b"),
		`Expected value of type "Int!", found null`:     with("a", many(must(graphql.Int)), []any{1, nil}),
		"HasID.id has a cost but is an interface's": {Types: []graphql.Type{graphql.NewInterface(graphql.InterfaceConfig{Name: "HasID", Fields: graphql.Fields{"id": of(graphql.ID)}})},
			Costs: map[string]func(map[string]any) chaingql.Cost{"HasID.id": func(map[string]any) chaingql.Cost { return chaingql.Cost{} }}},
		"HasName": {QueryFields: graphql.Fields{"x": of(graphql.NewObject(graphql.ObjectConfig{Name: "Nameless", Interfaces: []*graphql.Interface{named}, Fields: graphql.Fields{"a": of(graphql.Int)}}))}},
		"must be an object with field names as keys": field("x", graphql.NewObject(graphql.ObjectConfig{Name: "Empty", Fields: graphql.Fields{}})),
		`but "a b" does not`:                         field("x", own("a b")),
		"no-value":                                   field("x", enum("no-value")),
		"true":                                       field("x", enum("true")),
		"Types: a type is nil":                       {Types: []graphql.Type{nil}},
		"Query.x(a:): default value many is no Int": {QueryFields: graphql.Fields{"x": {Type: graphql.Int, Args: graphql.FieldConfigArgument{"a": {Type: graphql.Int, DefaultValue: "many"}}}}},
	} {
		opts.Logger = slog.New(slog.DiscardHandler)
		t.Run(want, func(t *testing.T) {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "chaingql: New: ") || !strings.Contains(p, want) {
					t.Errorf("panicked with %q", p)
				}
			}()
			chaingql.New(memchain.New(), &opts)
		})
	}
}

func nothing(context.Context, graphql.ResolveParams) iter.Seq2[any, error] {
	return func(func(any, error) bool) {}
}

func TestHostsSubscriptionIsServedAsBlocksAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{SubscriptionFields: map[string]chaingql.SubscriptionField{"count": {
			Field: &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{"to": {Type: graphql.Int, DefaultValue: 2}}},
			Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for n := range p.Args["to"].(int) {
						if !yield(n, nil) {
							return
						}
					}
					if p.Args["to"] == 3 {
						yield(nil, errors.New("s3cret"))
					}
					if p.Args["to"] == 4 {
						panic("s3cret")
					}
				}
			},
		}}})
		n := serve(t, mounted(h))
		s := n.socket(t)
		for to, last := range map[string]string{"2": `{"type":"complete","id":"1"`, "3": `"code":"INTERNAL_SERVER_ERROR"`, "4": `"code":"INTERNAL_SERVER_ERROR"`} {
			s.say(start("1", `subscription{count(to:`+to+`)}`))
			got := s.hear()
			if len(got) < 3 || !strings.Contains(got[0], `{"data":{"count":0}}`) || !strings.Contains(got[1], `{"data":{"count":1}}`) || !strings.Contains(strings.Join(got, "\n"), last) || strings.Contains(strings.Join(got, "\n"), "s3cret") {
				t.Errorf("to %s: %s", to, strings.Join(got, "\n"))
			}
		}
		events := n.ask(t, "POST", `subscription{count}`, nil, "text/event-stream")
		for _, want := range []string{`data: {"data":{"count":0}}`, `data: {"data":{"count":1}}`, "event: complete"} {
			if !strings.Contains(events, want) {
				t.Errorf("events: %s", events)
			}
		}
	})
}
