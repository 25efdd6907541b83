package chaingql_test

import (
	"context"
	"encoding/json"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
	"github.com/graphql-go/graphql"
)

// A host that keeps its arguments has one copy of each variable, however often they use it.
func TestHostKeepsOneCopyOfAVariable(t *testing.T) {
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
	value := make([]any, 80)
	for i := range value {
		value[i] = map[string]any{"x": json.Number("1")}
	}
	before, n := heap(), 0
	for ; n < 200; n++ {
		stop, err := h.Subscribe(document, map[string]any{"v": value})
		if err != nil {
			break
		}
		defer stop()
	}
	grown := int(heap() - before)
	t.Logf("%d subscriptions keep %d bytes", n, grown)
	if n < 30 || n == 200 || grown > limit*5/4 {
		t.Errorf("%d subscriptions keep %d bytes, but SubscriptionBytes is %d", n, grown, limit)
	}
}
