package chaingql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestHooksSeeWhyAHostsSubscriptionEnded(t *testing.T) {
	for what, row := range map[string]struct {
		events func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool)
		want   string
	}{
		"its end": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) { yield(1, nil) }, `failed false, reason "client", 1 blocks`},
		"trouble": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(nil, errors.New("down"))
		}, `failed true, reason "lost", 0 blocks`},
		"shutdown": {waits, `failed true, reason "shutdown", 0 blocks`},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				h, n := ticking(t, &ticker{events: row.events}, chaingql.Options{Hooks: chaingql.Hooks{OperationFinished: d.hooks().OperationFinished}})
				n.socket(t).say(start("1", `subscription{tick}`))
				stream := n.stream(t, `subscription{tick}`)
				synctest.Wait()
				if err := h.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				_ = stream.res.Body.Close()
				told := d.since()
				equal(t, "told", len(told), 2)
				for _, line := range told {
					if !strings.Contains(line, row.want) {
						t.Errorf("%s: want %s", line, row.want)
					}
				}
			})
		})
	}
}

// What a host yields when its client has left is nobody's error.
func TestErrorBehindTheEndIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &ticker{events: func(ctx context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			<-ctx.Done()
			yield(nil, errors.New("the query was cut off"))
		}}
		h, log := newHandler(t, memchain.New(), chaingql.Options{SubscriptionFields: map[string]chaingql.SubscriptionField{"tick": k.field()}})
		s := serve(t, mounted(h)).socket(t)
		s.say(start("1", `subscription{tick}`))
		synctest.Wait()
		equal(t, "open", k.open.Load(), 1)
		s.say(`{"id":"1","type":"stop"}`)
		synctest.Wait()
		equal(t, "open", k.open.Load(), 0)
		if strings.Contains(log.String(), "internal error") {
			t.Error(log)
		}
	})
}
