package chaingql_test

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/graphql-go/graphql"
)

// The host receives a copy of the variable for each of its uses, and keeps them.
func TestEachUseOfAVariableCountsTowardSubscriptionBytes(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	var filter *graphql.InputObject
	filter = graphql.NewInputObject(graphql.InputObjectConfig{
		Name: "Filter",
		Fields: graphql.InputObjectConfigFieldMapThunk(func() graphql.InputObjectConfigFieldMap {
			return graphql.InputObjectConfigFieldMap{"x": {Type: graphql.Int}, "and": {Type: graphql.NewList(filter)}}
		}),
	})
	find := chaingql.SubscriptionField{
		Field: &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{"where": {Type: filter}}},
		Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
			return func(func(any, error) bool) {
				<-ctx.Done()
				runtime.KeepAlive(p.Args)
			}
		},
	}
	const limit = 8 << 20
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Limits: chaingql.Limits{SubscriptionBytes: limit},
		Schema: chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{"find": find}},
	})
	document := `subscription($v:[Filter]){find(where:{and:[` + strings.Repeat("{and:$v}", 80) + `]})}`
	before, n := heap(), 0
	for ; n < 100; n++ {
		stop, err := h.Subscribe(document, map[string]any{"v": make([]any, 80)})
		if err != nil {
			break
		}
		defer stop()
	}
	grown := int(heap() - before)
	t.Logf("%d subscriptions keep %d bytes", n, grown)
	if n == 0 || n == 100 || grown > limit*5/4 {
		t.Errorf("%d subscriptions keep %d bytes, but SubscriptionBytes is %d", n, grown, limit)
	}
}
