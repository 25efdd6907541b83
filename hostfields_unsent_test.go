package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestUnsentHostEventsCountTowardSubscriptionBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 366 << 10 // an eighth is reserved for blocks
		var hits atomic.Int64
		var ends []chaingql.Reason
		text := chaingql.SubscriptionField{
			Field: &graphql.Field{Type: graphql.String, Args: graphql.FieldConfigArgument{"n": {Type: graphql.Int}}},
			Subscribe: func(_ context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for range 3 {
						if !yield(strings.Repeat("x", p.Args["n"].(int)), nil) {
							return
						}
					}
				}
			},
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{SubscriptionBytes: most},
			Hooks: chaingql.Hooks{
				LimitHit: func(_ context.Context, limit string) {
					if limit == "SubscriptionBytes" {
						hits.Add(1)
					}
				},
				OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) {
					ends = append(ends, o.Reason)
				},
			},
			Schema: chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{"text": text}},
		})
		n := serve(t, mounted(h))
		var stops []func()
		for { // no subscription is read
			stop, err := h.Subscribe(`subscription{text(n:20000)}`, nil)
			if err != nil {
				break
			}
			stops = append(stops, stop)
			synctest.Wait()
			if _, held := h.Retained(); len(stops) <= 3 && held < 40_000*len(stops) || held > most {
				t.Fatalf("%d subscriptions with waiting responses are counted as %d bytes", len(stops), held)
			}
		}
		last := len(stops) - 1 // this one had no room for its events, so it leaves room only for a subscription
		stops[last]()
		stops, ends = stops[:last], nil
		hits.Store(0)
		got := n.ask(t, "POST", `subscription{text(n:20000)}`, nil, "text/event-stream")
		if !strings.Contains(got, `"code":"LIMIT_EXCEEDED"`) || !strings.HasSuffix(got, "event: complete\ndata:") {
			t.Errorf("a subscription without room received %.200s", got)
		}
		synctest.Wait()
		equal(t, "ended", fmt.Sprint(ends), "[refused]")
		equal(t, "limits hit", hits.Load(), 1)
		for _, stop := range stops {
			stop()
		}
		got = n.ask(t, "POST", `subscription{text(n:20000)}`, nil, "text/event-stream")
		if strings.Count(got, `{"data":{"text":"xxx`) != 3 || strings.Contains(got, "errors") {
			t.Errorf("a subscription with room received %.200s", got)
		}
		synctest.Wait()
		count, held := h.Retained()
		equal(t, "subscriptions and bytes at the end", fmt.Sprint(count, held), "0 0")
	})
}

// A client that reads none of its large events does not have the subscriptions of others refused or ended.
func TestUnsentHostEventsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := chaingql.SubscriptionField{
			Field: &graphql.Field{Type: graphql.String, Args: graphql.FieldConfigArgument{"n": {Type: graphql.Int}}},
			Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for ctx.Err() == nil && yield(strings.Repeat("x", p.Args["n"].(int)), nil) {
						time.Sleep(time.Second)
					}
				}
			},
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{SubscriptionBytes: 8 << 20},
			Schema: chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{"text": text}},
		})
		for one := chaingql.NewPeer(); ; { // which reads nothing
			stop, err := h.SubscribeAs(one, `subscription{text(n:100000)}`, nil)
			if err != nil {
				break
			}
			defer stop()
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		if _, held := h.Retained(); held > 5<<20 {
			t.Errorf("the events of one client take %d bytes of 8 MiB", held)
		}
		n := serve(t, mounted(h))
		s := n.socket(t)
		s.send(start("1", `subscription{text(n:10000)}`))
		for range 3 {
			time.Sleep(time.Second)
			if got := fmt.Sprint(s.receive()); !strings.Contains(got, `"text":"xxx`) {
				t.Fatalf("the subscription of another client received %.200s", got)
			}
		}
	})
}

// A client with many subscriptions to a field of the host whose events take long does not delay those of others.
func TestEventsOfOneClientDoNotDelayThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newObject("Slow", graphql.Fields{"value": {Type: graphql.Int,
			Resolve: func(graphql.ResolveParams) (any, error) { time.Sleep(100 * time.Millisecond); return 1, nil }}})
		events := chaingql.SubscriptionField{
			Field: &graphql.Field{Type: slow},
			Subscribe: func(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for ctx.Err() == nil && yield(1, nil) {
					}
				}
			},
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{InFlight: 4},
			Schema: chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{"slow": events}},
		})
		n := serve(t, mounted(h))
		busy := n.socket(t)
		for i := range 200 {
			busy.send(start(fmt.Sprint(i), `subscription{slow{value}}`))
		}
		other := n.socket(t)
		other.send(start("1", `subscription{slow{value}}`))
		time.Sleep(time.Second)
		if got := len(other.receive()); got < 4 { // one takes 100 ms
			t.Errorf("another client received %d events in a second, want at least 4", got)
		}
	})
}

// A client with many subscriptions keeps them when others use up the memory of all: its events are small.
func TestSubscriptionsContinueWhenOthersUseTheMemoryOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := chaingql.SubscriptionField{
			Field: &graphql.Field{Type: graphql.Int},
			Subscribe: func(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for i := 0; ctx.Err() == nil && yield(i, nil); i++ {
						time.Sleep(time.Second)
					}
				}
			},
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{SubscriptionBytes: 8 << 20},
			Schema: chaingql.SchemaExtension{Subscriptions: map[string]chaingql.SubscriptionField{"tick": tick}},
		})
		n := serve(t, mounted(h))
		s := n.socket(t)
		const subscriptions = 100
		for i := range subscriptions {
			s.send(start(fmt.Sprint(i), `subscription{tick}`))
		}
		s.receive()
		for range 100 {
			for one := chaingql.NewPeer(); ; {
				stop, err := h.SubscribeAs(one, `subscription{tick}`, nil)
				if err != nil {
					break
				}
				defer stop()
			}
		}
		for range 3 {
			time.Sleep(time.Second)
			if got := s.receive(); len(got) != subscriptions || strings.Contains(fmt.Sprint(got), "error") {
				t.Fatalf("%d subscriptions received %d messages in a second: %.300s", subscriptions, len(got), got)
			}
		}
	})
}
