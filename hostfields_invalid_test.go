package chaingql_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestNewPanicsOnInvalidHostFields(t *testing.T) {
	own := func(name string) *graphql.Object {
		return newObject(name, graphql.Fields{"a": {Type: graphql.Int}})
	}
	of := func(typ graphql.Output) *graphql.Field { return &graphql.Field{Type: typ} }
	queryField := func(f *graphql.Field) chaingql.SchemaExtension {
		return chaingql.SchemaExtension{Queries: graphql.Fields{"x": f}}
	}
	subscription := func(name string, f chaingql.SubscriptionField) chaingql.SchemaExtension {
		return chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{name: f}}
	}
	with := func(name string, arg graphql.Input, def any) chaingql.SchemaExtension {
		return queryField(&graphql.Field{
			Type: graphql.Int, Args: graphql.FieldConfigArgument{name: {Type: arg, DefaultValue: def}},
		})
	}
	field := func(name string, typ graphql.Output) chaingql.SchemaExtension {
		return chaingql.SchemaExtension{Queries: graphql.Fields{name: of(typ)}}
	}
	priced := func(name string) chaingql.SchemaExtension {
		schema := queryField(of(own("Own")))
		schema.Costs = map[string]func(map[string]any) chaingql.Cost{name: nil}
		return schema
	}
	in := graphql.NewInputObject(graphql.InputObjectConfig{
		Name: "In", Fields: graphql.InputObjectConfigFieldMap{"a": {Type: graphql.Int}},
	})
	scalar := func(name string) *graphql.Scalar {
		return graphql.NewScalar(graphql.ScalarConfig{Name: name, Serialize: func(v any) any { return v }})
	}
	named := graphql.NewInterface(graphql.InterfaceConfig{
		Name: "HasName", Fields: graphql.Fields{"name": {Type: graphql.String}},
	})
	nameless := graphql.NewObject(graphql.ObjectConfig{
		Name: "Nameless", Interfaces: []*graphql.Interface{named}, Fields: graphql.Fields{"a": of(graphql.Int)},
	})
	hasID := graphql.NewInterface(graphql.InterfaceConfig{
		Name: "HasID", Fields: graphql.Fields{"id": of(graphql.ID)},
	})
	enum := func(value string) *graphql.Enum {
		return graphql.NewEnum(graphql.EnumConfig{Name: "E", Values: graphql.EnumValueConfigMap{value: {}}})
	}
	for want, schema := range map[string]chaingql.SchemaExtension{
		"Query.info is built in": {Queries: graphql.Fields{"info": of(graphql.Int)}},
		"Subscription.blocks is built in": subscription("blocks", chaingql.SubscriptionField{
			Field: of(graphql.Int), Subscribe: nothing,
		}),
		"type Block is built in": {Queries: graphql.Fields{"x": of(own("Block"))}},
		"two types named Twin": {
			Queries: graphql.Fields{"x": of(own("Twin")), "y": of(own("Twin"))},
		},
		"Query.x has no type": {Queries: graphql.Fields{"x": {}}},
		"__x":                 {Queries: graphql.Fields{"__x": of(graphql.Int)}},
		"Subscription.x has no Subscribe": subscription("x", chaingql.SubscriptionField{
			Field: of(graphql.Int),
		}),
		"Query.y has a cost but is not an added field": priced("Query.y"),
		"type Mutation is built in":                    field("x", own("Mutation")),
		"type __Schema is built in":                    field("x", own("__Schema")),
		"type Query is built in":                       field("x", own("Query")),
		"two types named ID":                           field("x", scalar("ID")),
		"__own":                                        field("x", own("__own")),
		"Query.y: a type is nil":                       field("y", (*graphql.NonNull)(nil)),
		"Query.z: a type is nil":                       field("z", graphql.NewList(nil)),
		"Query.n has no type":                          {Queries: graphql.Fields{"n": nil}},
		"Subscription.n has no type": subscription("n", chaingql.SubscriptionField{
			Subscribe: nothing,
		}),
		"x-y":                             field("x-y", graphql.Int),
		"1a":                              with("1a", graphql.Int, nil),
		"Query.x(b:) has no type":         with("b", nil, nil),
		"cannot have the input type In":   field("x", in),
		"cannot have the output type Own": with("a", own("Own"), nil),
		`default value has a field "b", which In lacks`:         with("a", in, map[string]any{"b": 1}),
		"default value 7 is not a map[string]any":               with("a", in, 7),
		"default value q is not a value of enum E":              with("a", enum("Q"), "q"),
		`Expected value of type "Void", found: "x"`:             with("a", scalar("Void"), "x"),
		"the cost of Query.x is nil":                            priced("Query.x"),
		"the cost of Own.a is nil":                              priced("Own.a"),
		"Own.b has a cost but is not an added field":            priced("Own.b"),
		`Expected value of non-null type "Int!" not to be null`: with("a", listOf(nonNull(graphql.Int)), []any{1, nil}),
		"HasID.id has a cost but belongs to an interface": {
			Types: []graphql.Type{hasID},
			Costs: map[string]func(map[string]any) chaingql.Cost{
				"HasID.id": func(map[string]any) chaingql.Cost { return chaingql.Cost{} },
			},
		},
		"HasName": queryField(of(nameless)),
		"must be an object with field names as keys": field("x", newObject("Empty", graphql.Fields{})),
		`but "a b" does not`:                         field("x", own("a b")),
		"no-value":                                   field("x", enum("no-value")),
		"true":                                       field("x", enum("true")),
		"Types: a type is nil":                       {Types: []graphql.Type{nil}},
		"Query.x(a:): default value many is not a valid Int": with("a", graphql.Int, "many"),
	} {
		opts := chaingql.Options{Schema: schema, Logger: slog.New(slog.DiscardHandler)}
		t.Run(want, func(t *testing.T) {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "chaingql: New: ") || !strings.Contains(p, want) {
					t.Errorf("New panicked with %q, want %q", p, want)
				}
			}()
			chaingql.New(memchain.New(), &opts)
		})
	}
}
