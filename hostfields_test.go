package chaingql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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

// A transfer is an example of data that a host adds to that of the chain.
type transfer struct {
	Hash   string `json:"hash"`
	Amount int    `json:"amount"`
	kind   string
	to     []string
}

var kinds = graphql.NewEnum(graphql.EnumConfig{Name: "TransferKind", Values: graphql.EnumValueConfigMap{
	"PAID": {Value: "p"}, "FREE": {Value: "f", DeprecationReason: "Nothing is."},
}})

// moment is a host's scalar type for dates.
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

// hostFields returns typical fields of a host. Their resolvers pass the received params to note.
func hostFields(note func(p graphql.ResolveParams)) graphql.Fields {
	party := graphql.NewInterface(graphql.InterfaceConfig{
		Name: "Party", Fields: graphql.Fields{"name": {Type: graphql.String}},
		ResolveType: func(p graphql.ResolveTypeParams) *graphql.Object {
			if p.Value == "bank" {
				return p.Info.Schema.Type("Bank").(*graphql.Object)
			}
			return p.Info.Schema.Type("Person").(*graphql.Object)
		},
	})
	name := &graphql.Field{Type: graphql.String, Resolve: func(p graphql.ResolveParams) (any, error) {
		note(p)
		return p.Source, nil
	}}
	person := graphql.NewObject(graphql.ObjectConfig{
		Name: "Person", Interfaces: []*graphql.Interface{party}, Fields: graphql.Fields{"name": name},
	})
	bank := graphql.NewObject(graphql.ObjectConfig{
		Name: "Bank", Interfaces: []*graphql.Interface{party},
		Fields: graphql.Fields{"name": name, "code": constField(nonNull(graphql.Int), 7)},
	})
	either := graphql.NewUnion(graphql.UnionConfig{
		Name: "Either", Types: []*graphql.Object{person, bank},
		ResolveType: func(graphql.ResolveTypeParams) *graphql.Object { return bank },
	})
	amount := &graphql.Field{
		Type: graphql.Int,
		Args: graphql.FieldConfigArgument{"times": {Type: graphql.Int, DefaultValue: 2}},
		Resolve: func(p graphql.ResolveParams) (any, error) {
			note(p)
			return p.Source.(transfer).Amount * p.Args["times"].(int), nil
		},
	}
	var transfers *graphql.Object
	transfers = graphql.NewObject(graphql.ObjectConfig{
		Name: "Transfer", Description: "Of money.",
		Fields: graphql.FieldsThunk(func() graphql.Fields {
			return graphql.Fields{
				"hash":   {Type: nonNull(graphql.ID)},
				"amount": amount,
				"kind": {Type: kinds, Resolve: func(p graphql.ResolveParams) (any, error) {
					return p.Source.(transfer).kind, nil
				}},
				"to": {Type: listOf(party), Resolve: func(p graphql.ResolveParams) (any, error) {
					return p.Source.(transfer).to, nil
				}},
				"either": constField(either, "bank"),
				"before": {Type: transfers, Resolve: func(p graphql.ResolveParams) (any, error) {
					return func() (any, error) {
						note(p)
						return transfer{Hash: p.Source.(transfer).Hash + "-"}, nil
					}, nil
				}},
				"on": constField(moment, time.Unix(86400, 0).UTC()),
			}
		}),
	})
	choice := graphql.NewInputObject(graphql.InputObjectConfig{
		Name: "Choice",
		Fields: graphql.InputObjectConfigFieldMap{
			"kind":   {Type: kinds, DefaultValue: "p"},
			"hashes": {Type: listOf(nonNull(graphql.ID))},
			"not":    {Type: graphql.Boolean},
		},
	})
	return graphql.Fields{"transfers": {
		Type: listOf(transfers), Description: "All of them.",
		Args: graphql.FieldConfigArgument{
			"choice": {Type: choice},
			"kind":   {Type: kinds, DefaultValue: "f"},
			"first":  {Type: graphql.Int},
			"since":  {Type: moment},
		},
		Resolve: func(p graphql.ResolveParams) (any, error) {
			note(p)
			return []transfer{
				{Hash: "a", Amount: 1, kind: "p", to: []string{"bank", "Ann"}},
				{Hash: "b", Amount: 2, kind: "f"},
			}, nil
		},
	}}
}

// describeParams returns all params of a resolver as text.
func describeParams(p graphql.ResolveParams) string {
	var fields, fragments []string
	for _, f := range p.Info.FieldASTs {
		fields = append(fields, fmt.Sprint(printer.Print(f)))
	}
	for _, name := range []string{"F", "G"} {
		if f := p.Info.Fragments[name]; f != nil {
			fragments = append(fragments, fmt.Sprint(printer.Print(f)))
		}
	}
	return fmt.Sprintf("%v of %v at %v: %v; source %#v, root %#v; args %v, variables %v; "+
		"fields %q in %q with %q, schema %v, value %v",
		p.Info.FieldName, p.Info.ParentType, p.Info.Path.AsArray(), p.Info.ReturnType, p.Source,
		p.Info.RootValue, p.Args, p.Info.VariableValues, fields, printer.Print(p.Info.Operation), fragments,
		p.Info.Schema.QueryType() != nil, p.Context.Value(spanKey{}))
}

// The data and the params that resolvers receive must equal those of graphql-go on the same schema.
func TestHostFieldsResolveAsInGraphqlGo(t *testing.T) {
	var params []string
	fields := hostFields(func(p graphql.ResolveParams) { params = append(params, describeParams(p)) })
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Schema: chaingql.SchemaExtension{Queries: fields}})
	for _, row := range []struct{ document, variables string }{
		{`{transfers{hash amount kind on}}`, `{}`},
		{
			`query Q($n: Int = 3, $k: TransferKind){
	a: transfers(kind: $k, first: 5){...F amount(times: $n) again: amount(times: 7)}
}
	fragment F on Transfer{hash to{name ...G}} fragment G on Bank{code}`, `{"k":"PAID"}`,
		},
		{`query($c: Choice){transfers(choice: $c){hash}}`, `{"c":{"hashes":["x","y"],"kind":"FREE"}}`},
		{
			`{transfers(choice: {hashes: "x", not: true}, kind: PAID){
	hash either{__typename ... on Bank{name code}}
}}`, `{}`,
		},
		{
			`query($yes: Boolean!){
	transfers @include(if: $yes){hash} transfers{amount @skip(if: $yes) kind}
}`, `{"yes":true}`,
		},
		{`{transfers{before{hash before{hash amount}} hash}}`, `{}`},
		{`{__typename transfers{__typename to{__typename name}} blockchain{blocks{edges{cursor}}}}`, `{}`},
	} {
		var variables map[string]any
		if err := json.Unmarshal([]byte(row.variables), &variables); err != nil {
			t.Fatal(err)
		}
		params = nil
		ctx := context.WithValue(context.Background(), spanKey{}, "caller's")
		want := graphql.Do(graphql.Params{
			Schema: h.Schema(), RequestString: row.document, VariableValues: variables, Context: ctx,
		})
		if want.HasErrors() {
			t.Fatalf("graphql-go fails on %s: %v", row.document, want.Errors)
		}
		wantParams := params
		params = nil
		got := post(h, body(row.document, variables)).Body.String()
		if !sameJSON(t, got, want) {
			w, _ := json.Marshal(want)
			t.Errorf("%s\n got %s\nwant %s", row.document, got, w)
		}
		for i := range wantParams {
			wantParams[i] = strings.ReplaceAll(wantParams[i], "value caller's", "value <nil>")
		}
		if !sameLines(params, wantParams) {
			t.Errorf("%s: resolvers receive\n     %s\ngraphql-go passes\n     %s", row.document,
				strings.Join(params, "\n     "), strings.Join(wantParams, "\n     "))
		}
	}
}

// sameLines reports whether a and b have the same lines in any order, because graphql-go resolves fields by name.
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

func TestThunksRunAfterTheirSiblingsAreResolved(t *testing.T) {
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
		return constField(listOf(item), items)
	}
	h, _ := newQueryHandler(t, graphql.Fields{"items": list(1, 2, 4), "holed": list(1, 3, 5)})
	equal(t, "items", post(h, body(`{items{double}}`, nil)).Body.String(),
		`{"data":{"items":[{"double":2},{"double":4},{"double":8}]}}`)
	equal(t, "loads", loads, 1)
	got := parse(t, post(h, body(`{holed{double}}`, nil)).Body.String())
	equal(t, "code", got.code(), "INTERNAL_SERVER_ERROR")
	equal(t, "items around the failed one", string(got.Data), `{"holed":[{"double":2},null,{"double":10}]}`)
}

func nothing(context.Context, graphql.ResolveParams) iter.Seq2[any, error] {
	return func(func(any, error) bool) {}
}

func TestHostSubscriptionIsServedOnSocketsAndEventStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := chaingql.SubscriptionField{
			Field: &graphql.Field{
				Type: graphql.Int, Args: graphql.FieldConfigArgument{"to": {Type: graphql.Int, DefaultValue: 2}},
			},
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
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Schema: chaingql.SchemaExtension{
			Subscriptions: map[string]chaingql.SubscriptionField{"count": count},
		}})
		n := serve(t, mounted(h))
		s := n.socket(t)
		for to, last := range map[string]string{
			"2": `{"type":"complete","id":"1"`,
			"3": `"code":"INTERNAL_SERVER_ERROR"`,
			"4": `"code":"INTERNAL_SERVER_ERROR"`,
		} {
			s.send(start("1", `subscription{count(to:`+to+`)}`))
			got := s.receive()
			all := strings.Join(got, "\n")
			if len(got) < 3 || !strings.Contains(got[0], `{"data":{"count":0}}`) ||
				!strings.Contains(got[1], `{"data":{"count":1}}`) || !strings.Contains(all, last) ||
				strings.Contains(all, "s3cret") {
				t.Errorf("a subscription up to %s received %s", to, strings.Join(got, "\n"))
			}
		}
		events := n.ask(t, "POST", `subscription{count}`, nil, "text/event-stream")
		for _, want := range []string{`data: {"data":{"count":0}}`, `data: {"data":{"count":1}}`, "event: complete"} {
			if !strings.Contains(events, want) {
				t.Errorf("the event stream lacks %s: %s", want, events)
			}
		}
	})
}
