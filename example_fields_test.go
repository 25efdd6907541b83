package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http/httptest"
	"net/url"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A host adds a field that returns a list, and declares its cost.
func ExampleOptions_queryFields() {
	type price struct {
		Market string
		Cents  int
	}
	quotes := []price{{"Ghent", 412}, {"Turin", 409}, {"Kraków", 415}}

	quote := graphql.NewObject(graphql.ObjectConfig{Name: "Quote", Fields: graphql.Fields{
		"market": {Type: graphql.NewNonNull(graphql.String)}, // the value is the struct's field Market
		"price": {Type: graphql.Float, Resolve: func(p graphql.ResolveParams) (any, error) {
			return float64(p.Source.(price).Cents) / 100, nil
		}},
	}})
	handler := chaingql.New(memchain.New(), &chaingql.Options{
		Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{"quotes": {
				Type: graphql.NewList(graphql.NewNonNull(quote)),
				Args: graphql.FieldConfigArgument{"first": {Type: graphql.Int, DefaultValue: 2}},
				Resolve: func(p graphql.ResolveParams) (any, error) {
					n, _ := p.Args["first"].(int)
					return quotes[:min(max(n, 0), len(quotes))], nil
				},
			}},
			Costs: map[string]func(map[string]any) chaingql.Cost{
				"Query.quotes": func(args map[string]any) chaingql.Cost {
					n, _ := args["first"].(int)
					return chaingql.Cost{Calls: 1, Items: n}
				},
			},
		},
		ShowCost: true,
		Logger:   slog.New(slog.DiscardHandler),
	})

	defer handler.Shutdown(context.Background())
	fmt.Println(ask(handler, "/demo/graphql", `{quotes(first:1){market price}}`))
	// Output:
	// {"data":{"quotes":[{"market":"Ghent","price":4.12}]},"extensions":{"cost":{"calls":1,"blocks":0}}}
}

// A host adds a subscription field. The events of this field end by themselves; most sequences run until their context
// is done.
func ExampleSubscriptionField() {
	countdown := chaingql.SubscriptionField{
		Field: &graphql.Field{
			Type: graphql.NewNonNull(graphql.Int),
			Args: graphql.FieldConfigArgument{"from": {Type: graphql.NewNonNull(graphql.Int)}},
		},
		Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
			return func(yield func(any, error) bool) {
				for n := p.Args["from"].(int); n > 0; n-- {
					if !yield(n, nil) { // yield waits if the client reads slowly
						return
					}
				}
			}
		},
	}
	handler := chaingql.New(memchain.New(), &chaingql.Options{
		Schema: chaingql.SchemaExtension{
			Subscriptions: map[string]chaingql.SubscriptionField{"countdown": countdown},
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	defer handler.Shutdown(context.Background())

	r := httptest.NewRequest("GET", "/demo/graphql?query="+url.QueryEscape(`subscription{countdown(from:2)}`), nil)
	r.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Body)
	// Output:
	// :
	//
	// event: next
	// data: {"data":{"countdown":2}}
	//
	// event: next
	// data: {"data":{"countdown":1}}
	//
	// event: complete
	// data:
}
