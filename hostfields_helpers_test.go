package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// An eventsFunc yields the events of one subscription to a host's field.
type eventsFunc func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool)

// yields returns an eventsFunc that yields v and err.
func yields(v any, err error) eventsFunc {
	return func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) { yield(v, err) }
}

// A tickSource provides the host's subscription field tick. It counts yielded events and running sequences.
type tickSource struct {
	yielded, open atomic.Int64
	events        eventsFunc
}

func (k *tickSource) field() chaingql.SubscriptionField {
	args := graphql.FieldConfigArgument{
		"to": {Type: graphql.Int, DefaultValue: 1_000_000}, "note": {Type: anyScalar},
	}
	return chaingql.SubscriptionField{
		Field: &graphql.Field{Type: graphql.Int, Args: args, Resolve: func(p graphql.ResolveParams) (any, error) {
			if p.Info.RootValue != p.Source { // graphql-go passes the event as both
				return nil, fmt.Errorf("the root value is %v, but the source is %v", p.Info.RootValue, p.Source)
			}
			return p.Source, nil
		}},
		Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
			return func(yield func(any, error) bool) {
				k.open.Add(1)
				defer k.open.Add(-1)
				if k.events != nil {
					k.events(ctx, p, yield)
					return
				}
				for n := range p.Args["to"].(int) {
					k.yielded.Add(1)
					if !yield(n, nil) {
						return
					}
				}
			}
		},
	}
}

// schema returns an extension with the field tick.
func (k *tickSource) schema() chaingql.SchemaExtension {
	return chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{"tick": k.field()}}
}

func newTickHandler(t *testing.T, k *tickSource, opts chaingql.Options) (*chaingql.Handler, *network) {
	opts.Schema.Subscriptions = map[string]chaingql.SubscriptionField{"tick": k.field()}
	h, _ := newHandler(t, memchain.New(), opts)
	return h, serve(t, mounted(h))
}

// untilDone is an eventsFunc that yields nothing and returns when its context is done.
func untilDone(ctx context.Context, _ graphql.ResolveParams, _ func(any, error) bool) { <-ctx.Done() }

func of[T any](v T) *T { return &v }

// thunk returns a function that returns v and err.
func thunk(v any, err error) func() (any, error) { return func() (any, error) { return v, err } }

// constField returns a field with a resolver that returns v. The resolver fails if v is an error, and panics if v is
// "panic".
func constField(t graphql.Output, v any) *graphql.Field {
	return &graphql.Field{Type: t, Resolve: func(graphql.ResolveParams) (any, error) {
		if err, failed := v.(error); failed {
			return nil, err
		}
		if v == "panic" {
			panic("s3cret")
		}
		return v, nil
	}}
}

// newObject returns an object type.
func newObject(name string, fields graphql.Fields) *graphql.Object {
	return graphql.NewObject(graphql.ObjectConfig{Name: name, Fields: fields})
}

// newQueryHandler returns a Handler with additional fields of Query, and its log.
func newQueryHandler(t testing.TB, fields graphql.Fields) (*chaingql.Handler, *testkit.Buffer) {
	return newHandler(t, memchain.New(), chaingql.Options{Schema: chaingql.SchemaExtension{Queries: fields}})
}

func nonNull(t graphql.Type) *graphql.NonNull { return graphql.NewNonNull(t) }
func listOf(t graphql.Type) *graphql.List     { return graphql.NewList(t) }

// anyScalar is a scalar type for any JSON value.
var anyScalar = graphql.NewScalar(graphql.ScalarConfig{Name: "Whatever",
	Serialize:    func(v any) any { return v },
	ParseValue:   func(v any) any { return v },
	ParseLiteral: parseAnyLiteral,
})

func parseAnyLiteral(v ast.Value) any {
	switch v := v.(type) {
	case *ast.ListValue:
		items := []any{}
		for _, item := range v.Values {
			items = append(items, parseAnyLiteral(item))
		}
		return items
	case *ast.ObjectValue:
		object := map[string]any{}
		for _, f := range v.Fields {
			object[f.Name.Value] = parseAnyLiteral(f.Value)
		}
		return object
	}
	return v.GetValue()
}
