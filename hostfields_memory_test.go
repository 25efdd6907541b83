package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestExpiredCredentialsEndHostSubscriptionsWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tickSource{events: untilDone}
		_, n := newTickHandler(t, k, chaingql.Options{KeepAliveInterval: -1, Authorizer: expiresIn(time.Minute)})
		s := n.socket(t)
		s.send(start("1", `subscription{tick}`))
		stream := n.stream(t, `subscription{tick}`)
		s.receive()
		time.Sleep(time.Minute)
		got := s.receive()
		if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"connection_error"`) || got[1] != "CLOSE 1001" {
			t.Errorf("the socket received %s, want connection_error and CLOSE 1001", got)
		}
		stream.expect("events", ":", "event: next",
			`data: {"errors":[{"message":"Session expired","extensions":{"code":"SERVICE_UNAVAILABLE"}}]}`, "END")
		equal(t, "open", k.open.Load(), 0)
	})
}

func TestEachEventOfAHostSubscriptionHasItsOwnBackendTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		field := chaingql.SubscriptionField{
			Field: &graphql.Field{Type: graphql.Int, Resolve: func(p graphql.ResolveParams) (any, error) {
				if p.Source == 1 {
					<-p.Context.Done()
					return nil, p.Context.Err()
				}
				return p.Source, nil
			}},
			Subscribe: func(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					for n := 1; n < 3 && yield(n, nil); n++ {
						time.Sleep(time.Hour) // the sequence itself has no timeout
					}
				}
			},
		}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Schema: chaingql.SchemaExtension{
				Subscriptions: map[string]chaingql.SubscriptionField{"tick": field},
			},
			KeepAliveInterval: -1, Limits: chaingql.Limits{InFlight: 1},
		})
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", `subscription{tick}`))
		time.Sleep(chaingql.DefaultLimits().BackendTimeout)
		if got := s.receive(); len(got) != 1 || !strings.Contains(got[0], `"code":"TIMEOUT"`) {
			t.Errorf("for the first event, the socket received %s, want TIMEOUT", got)
		}
		time.Sleep(2 * time.Hour)
		s.expect("later", data("1", `{"tick":2}`), complete)
	})
}

func stacks() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.StackInuse
}

// A value that a host's scalar has parsed may hide how much memory it needs. Then the size of the input is counted.
func TestHostSubscriptionMemoryIsCounted(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	const each = 200
	note := func(i int) string { return fmt.Sprintf("%06d", i) + strings.Repeat("x", 20_000) }
	for name, subscribe := range map[string]func(h *chaingql.Handler, i int) (func(), error){
		"equal": func(h *chaingql.Handler, _ int) (func(), error) { return h.Subscribe(`subscription{tick}`, nil) },
		"variables": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(`subscription($n:Whatever){tick(note:$n)}`, map[string]any{"n": note(i)})
		},
		"variables that are hidden": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(`subscription($h:Hidden){hide(h:$h)}`, map[string]any{"h": note(i)})
		},
		"literals": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(`subscription{tick(note:"`+note(i)+`")}`, nil)
		},
		"lists": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf(`subscription{tick(note:[%d%s])}`, i, strings.Repeat(",{a:1}", 30)), nil)
		},
		"documents": func(h *chaingql.Handler, i int) (func(), error) {
			const document = `subscription S%d($v:Whatever=[1%s]){tick(note:$v)}`
			return h.Subscribe(fmt.Sprintf(document, i, strings.Repeat(",1", 50)), nil)
		},
		"selections": func(h *chaingql.Handler, i int) (func(), error) {
			deep := strings.Repeat("{n ...on Deep{n} deep", 8) + "{n}" + strings.Repeat("}", 8)
			return h.Subscribe(fmt.Sprintf(`subscription S%d{deep%s}`, i, deep), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			hidden := graphql.NewScalar(graphql.ScalarConfig{
				Name:         "Hidden",
				Serialize:    func(v any) any { return v },
				ParseLiteral: parseAnyLiteral,
				ParseValue:   func(v any) any { return &struct{ kept string }{v.(string)} },
			})
			var deep *graphql.Object
			deep = graphql.NewObject(graphql.ObjectConfig{
				Name: "Deep",
				Fields: graphql.FieldsThunk(func() graphql.Fields {
					return graphql.Fields{"deep": constField(deep, 1), "n": constField(graphql.Int, 1)}
				}),
			})
			k := &tickSource{events: untilDone}
			hide, dive := k.field(), k.field()
			hide.Field = &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{"h": {Type: hidden}}}
			dive.Field = &graphql.Field{Type: deep}
			h, _ := newHandler(t, memchain.New(), chaingql.Options{
				Limits: chaingql.Limits{CacheBytes: 1 << 10, VariableBytes: -1},
				Schema: chaingql.SchemaExtension{
					Subscriptions: map[string]chaingql.SubscriptionField{"tick": k.field(), "hide": hide, "deep": dive},
				},
			})
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the stacks of other threads would be measured too
			before := heap() + stacks()
			var stops []func()
			for i := range each {
				stop, err := subscribe(h, i)
				if err != nil {
					t.Fatal(err)
				}
				stops = append(stops, stop)
			}
			for k.open.Load() < each {
				runtime.Gosched()
			}
			grown := int(heap() + stacks() - before)
			count, held := h.Retained()
			t.Logf("each subscription needs %d bytes and is counted as %d", grown/each, held/each)
			if count != each || held < grown*9/10 { // the race detector needs additional memory
				t.Errorf("%d subscriptions grew the heap and the stacks by %d bytes, but are counted as %d",
					count, grown, held)
			}
			for _, stop := range stops {
				stop()
			}
		})
	}
	k := &tickSource{events: untilDone}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Limits: chaingql.Limits{VariableBytes: 500}, Schema: k.schema(),
	})
	for n, good := range map[int]bool{400: true, 600: false} {
		value := map[string]any{"a": []any{strings.Repeat("x", n)}}
		stop, err := h.Subscribe(`subscription($n:Whatever){tick(note:$n)}`, map[string]any{"n": value})
		if (err == nil) != good || !good && !strings.Contains(err.Error(), "limit of 500 bytes of variables") {
			t.Errorf("Subscribe with a variable of %d bytes returned %v", n, err)
		}
		if err == nil {
			stop()
		}
	}
}

func TestSubscriptionFieldsAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fields := map[string]chaingql.SubscriptionField{"tick": (&tickSource{}).field()}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Schema: chaingql.SchemaExtension{Subscriptions: fields}})
		clear(fields)
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", `subscription{tick(to:1)}`))
		s.expect("still served", data("1", `{"tick":0}`), complete)
	})
}

// A boxSchema has a field box in Query and Subscription, whose tree is large. It is complete when a value was received
// from release.
func boxSchema(asked chan<- struct{}, release <-chan struct{}) chaingql.SchemaExtension {
	box := newObject("Box", graphql.Fields{
		"items": {Type: graphql.NewList(graphql.Int)},
		"stuck": {Type: graphql.Int, Resolve: func(graphql.ResolveParams) (any, error) {
			asked <- struct{}{}
			<-release
			return 1, nil
		}},
	})
	value := map[string]any{"items": make([]*int, 50_000)}
	return chaingql.SchemaExtension{
		Queries: graphql.Fields{"box": constField(box, value)},
		Subscriptions: map[string]chaingql.SubscriptionField{"box": {
			Field: &graphql.Field{Type: box},
			Subscribe: func(ctx context.Context, _ graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					yield(value, nil)
					<-ctx.Done()
				}
			},
		}},
	}
}

// The values of a host's list are kept as a tree until the field is complete. The tree takes far more memory than its
// JSON, and must be counted.
func TestTreesOfHostValuesAreCounted(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	for _, kind := range []string{"query", "subscription"} {
		const n = 4
		asked, release := make(chan struct{}), make(chan struct{})
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Schema: boxSchema(asked, release)})
		before := heapInUse()
		var all sync.WaitGroup
		for range n {
			if kind == "query" {
				all.Go(func() { post(h, body(`{box{items stuck}}`, nil)) })
				continue
			}
			stop, err := h.Subscribe(`subscription{box{items stuck}}`, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		for range n {
			<-asked
		}
		_, counted := h.Pending()
		kept := heapInUse() - before
		t.Logf("%s: %d trees keep %d bytes, of which %d are counted", kind, n, kept, counted)
		if kept > counted*3/2 {
			t.Errorf("%s: %d trees keep %d bytes, but only %d are counted", kind, n, kept, counted)
		}
		close(release)
		all.Wait()
	}
}

// An event reaches all subscribers at the same time, so all trees would be in memory at once.
func TestAtMostInFlightHostEventsAreResolvedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 5, 2
		asked, release := make(chan struct{}, n), make(chan struct{})
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{InFlight: most}, Schema: boxSchema(asked, release),
		})
		for range n {
			stop, err := h.Subscribe(`subscription{box{items stuck}}`, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		synctest.Wait()
		equal(t, "events that are resolved", len(asked), most)
		for range n {
			release <- struct{}{}
		}
		synctest.Wait()
		equal(t, "events that were resolved", len(asked), n)
	})
}

func TestHostEventsOfClientsAreResolvedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, release := make(chan struct{}, 50), make(chan struct{})
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{InFlight: 2}, Schema: boxSchema(asked, release),
		})
		n := serve(t, addressed(mounted(h)))
		subscribed := func(address string, subscriptions int) *socket {
			s := n.socket(t, "X-Forwarded-For", address)
			for i := range subscriptions {
				s.send(fmt.Sprintf(`{"id":"%d","type":"start","payload":{"query":"subscription{box{stuck}}"}}`, i))
			}
			synctest.Wait()
			return s
		}
		for range 10 {
			subscribed("192.0.2.1", 3)
		}
		equal(t, "events of one client that are resolved", len(asked), 1) // as many as are free
		other := subscribed("192.0.2.2", 1)
		equal(t, "events of both clients that are resolved", len(asked), 2)
		for range 4 {
			release <- struct{}{}
			synctest.Wait()
		}
		other.expect("event of the other client", `{"type":"data","id":"0","payload":{"data":{"box":{"stuck":1}}}}`)
		close(release)
	})
}
