package attack

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/graphql-go/graphql"
)

// hostFields returns fields that a host adds to the schema: queries whose argument has a recursive input type
// with default values, and a subscription whose events are large.
func hostFields() chaingql.SchemaExtension {
	var filter *graphql.InputObject
	page := graphql.NewInputObject(graphql.InputObjectConfig{Name: "TransferPage",
		Fields: graphql.InputObjectConfigFieldMap{"first": {Type: graphql.Int, DefaultValue: 10},
			"from": {Type: graphql.Int, DefaultValue: 0}, "up": {Type: graphql.Boolean, DefaultValue: true}}})
	filter = graphql.NewInputObject(graphql.InputObjectConfig{Name: "TransferFilter",
		Fields: graphql.InputObjectConfigFieldMapThunk(func() graphql.InputObjectConfigFieldMap {
			return graphql.InputObjectConfigFieldMap{
				"and":  {Type: graphql.NewList(filter)},
				"memo": {Type: graphql.String},
				"min":  {Type: graphql.Int, DefaultValue: 0},
			}
		})})
	count := &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{
		"filter": {Type: filter}, "id": {Type: graphql.ID}, "pages": {Type: graphql.NewList(page)},
		"limit": {Type: graphql.NewNonNull(graphql.Int), DefaultValue: 20}, "rate": {Type: graphql.Float},
		"rates": {Type: graphql.NewList(graphql.Float)}},
		Resolve: func(graphql.ResolveParams) (any, error) { return 1, nil }}
	wallet := graphql.NewObject(graphql.ObjectConfig{Name: "Wallet", Fields: graphql.Fields{"transfers": count}})
	wallets := &graphql.Field{Type: graphql.NewList(wallet),
		Resolve: func(graphql.ResolveParams) (any, error) { return make([]struct{}, 100), nil }}
	large := chaingql.SubscriptionField{
		Field: &graphql.Field{Type: graphql.String, Resolve: func(p graphql.ResolveParams) (any, error) {
			return p.Source, nil
		}},
		Subscribe: func(context.Context, graphql.ResolveParams) iter.Seq2[any, error] {
			return func(yield func(any, error) bool) {
				for yield(strings.Repeat("x", 512<<10), nil) {
				}
			}
		},
	}
	counted := func(interval time.Duration) chaingql.SubscriptionField { // numbers as events
		return chaingql.SubscriptionField{
			Field: &graphql.Field{Type: graphql.Int, Resolve: func(p graphql.ResolveParams) (any, error) {
				return p.Source, nil
			}},
			Subscribe: func(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for i := 0; yield(i, nil); i++ {
						select {
						case <-ctx.Done():
							return
						case <-time.After(interval):
						}
					}
				}
			},
		}
	}
	return chaingql.SchemaExtension{
		Queries: graphql.Fields{"transfers": count, "wallets": wallets},
		Costs: map[string]func(map[string]any) chaingql.Cost{
			"Wallet.transfers": func(map[string]any) chaingql.Cost { return chaingql.Cost{Blocks: 1} },
		},
		Subscriptions: map[string]chaingql.SubscriptionField{
			"large": large, "ticks": counted(10 * time.Millisecond), "endless": counted(0),
		},
	}
}

// hostArguments returns queries with large arguments for fields that the host added. A naive server
// copies the arguments for each alias and for each list item.
func hostArguments() []attack {
	const declared = "query($f:TransferFilter){"
	objects := func(n int) string { // n objects in lists of at most 90
		var lists []string
		for ; n > 0; n -= 91 {
			lists = append(lists, `{"and":[`+strings.TrimSuffix(strings.Repeat("{},", min(n-1, 90)), ",")+"]}")
		}
		return `{"and":[` + strings.Join(lists, ",") + "]}"
	}
	given := func(name, want, text, value string) attack {
		return posted(name, want, func() string {
			return `{"query":` + asJSON(declared+text+"}") + `,"variables":{"f":` + value + `}}`
		})
	}
	literal := strings.ReplaceAll(objects(600), `"`, "")
	all := []attack{
		doc("a literal for each item of a list by 45 aliases", answered,
			"{"+times(45, "a#:wallets{...W}")+"}fragment W on Wallet{transfers(filter:"+literal+")}"),
		given("a variable by 45 aliases", answered, times(45, "a#:transfers(filter:$f)"), objects(600)),
		given("a variable for each item of a list by 45 aliases", answered,
			times(45, "a#:wallets{transfers(filter:$f)}"), objects(600)),
		given("a variable in literals for each item of a list", answered,
			times(45, "a#:wallets{transfers(filter:{and:[$f,$f,$f]})}"), objects(600)),
		given("a literal with a variable for each price and item by 45 aliases", answered,
			times(45, "a#:wallets{...W}")+"}fragment W on Wallet{transfers(filter:{and:["+literal+"$f]})", "{}"),
		posted("null for an argument with a default value by 45 aliases", "200", func() string {
			return `{"query":` + asJSON("query($n:Int){"+times(45, "a#:wallets{...W}")+
				"}fragment W on Wallet{transfers(limit:$n filter:"+literal+")}") + `,"variables":{"n":null}}`
		}),
		doc("a default value for each item of a list by 45 aliases", answered,
			"query($f:TransferFilter="+literal+"){"+times(45, "a#:wallets{transfers(filter:$f)}")+"}"),
		given("a text of 100 kB for each item of a list", answered, times(45, "a#:wallets{transfers(filter:$f)}"),
			`{"memo":"`+strings.Repeat("a", 100_000)+`"}`),
		given("null in lists", overLimit, "transfers(filter:$f)",
			`{"and":[`+strings.TrimSuffix(strings.Repeat(`{"and":[`+strings.Repeat("null,", 99)+`null]},`, 50),
				",")+`]}`),
		doc("600 objects with three defaults each", "LIMIT_EXCEEDED arguments exceed",
			"{"+times(7, "a#:transfers(pages:["+strings.Repeat("{}", 90)+"])")+"}"),
		doc("600 objects with three defaults each beside variables", "LIMIT_EXCEEDED arguments exceed",
			"query($p:TransferPage){"+times(7, "a#:transfers(pages:["+strings.Repeat("{}", 90)+"$p])")+"}"),
		doc("a default value of 2,000 objects", overLimit,
			"query($f:TransferFilter="+strings.ReplaceAll(objects(2000), `"`, "")+"){transfers(filter:$f)}"),
	}
	// The variables of an operation together have one limit.
	var values []string
	for i := range 20 {
		values = append(values, fmt.Sprintf(`"f%d":%s`, i, objects(90)))
	}
	all = append(all, posted("20 variables of 90 objects", overLimit, func() string {
		text := "query(" + times(20, "$f#:TransferFilter ") + "){" + times(20, "a#:transfers(filter:$f#)") + "}"
		return `{"query":` + asJSON(text) + `,"variables":{` + strings.Join(values, ",") + `}}`
	}))
	all = append(all, grown("objects in a variable", overLimit, 64, 32<<10, func(name, want string, n int) attack {
		return given(name, want, "transfers(filter:$f)", objects(n))
	})...)
	return append(all, grown("objects nested in each other", overLimit+"|406", 4, 4096,
		func(name, want string, n int) attack {
			return given(name, want, "transfers(filter:$f)", strings.Repeat(`{"and":`, n)+"{}"+strings.Repeat("}", n))
		})...)
}
