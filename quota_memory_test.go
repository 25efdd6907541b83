package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// heavyDefault returns a subscription of less than 4 kB. Its default value needs much more memory as a syntax tree and
// as a coerced value.
func heavyDefault(i int) string {
	filter := "{}"
	for range 15 {
		filter = "{id:{} seq_no:{} workchain_id:{} shard:{} gen_utime:{in:[" + strings.Repeat("7e9,", 30) +
			"]} chain_order:{} OR:" + filter + "}"
	}
	return fmt.Sprintf("subscription S%d($f:BlockFilter=%s,$r:Int!){blocks(filter:$f){id}}", i, filter)
}

// A document is cached even if its variables are invalid, because the next request may have valid ones.
func TestRefusedDocumentsStayWithinCacheBytes(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	const limit = 4 << 20
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{CacheBytes: limit}})
	before := heap()
	for i := range 400 {
		text := strings.Replace(heavyDefault(i), "{id}", "{id @include(if:$on)}", 1)
		text = strings.Replace(text, "$r:Int!", "$on:Boolean!", 1)
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(body(text, nil)))
		r.Header.Set("Content-Type", "application/json")
		mounted(h).ServeHTTP(w, r)
		if got, _ := io.ReadAll(w.Body); !strings.Contains(string(got), "was not provided") {
			t.Fatalf("the document was not refused because of its variables: %s", got)
		}
	}
	if grown := int(heap() - before); grown > limit*3/2 {
		t.Errorf("400 refused documents keep %d bytes, but CacheBytes is %d", grown, limit)
	}
	runtime.KeepAlive(h)
}

func TestOverriddenDefaultValuesCountTowardSubscriptionBytes(t *testing.T) {
	const limit = 4 << 20
	limits := chaingql.Limits{SubscriptionBytes: limit, CacheBytes: 1 << 10}
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: limits})
	before := heap()
	var stops []func()
	for i := range 2000 {
		text := strings.Replace(heavyDefault(i), ",$r:Int!", "", 1)
		stop, err := h.Subscribe(text, map[string]any{"f": map[string]any{}})
		if err != nil {
			if !strings.Contains(err.Error(), "4194304 bytes") {
				t.Fatal(err)
			}
			break
		}
		stops = append(stops, stop)
	}
	grown := int(heap() - before)
	t.Logf("%d subscriptions grew the heap by %d bytes", len(stops), grown)
	if grown > limit*5/4 || grown < limit/4 { // the race detector needs additional memory
		t.Errorf("%d subscriptions keep %d bytes, but SubscriptionBytes is %d", len(stops), grown, limit)
	}
	for _, stop := range stops {
		stop()
	}
}

// Equal subscriptions share an evaluation, which must not keep the long document of the first one when that ends.
func TestStoppedSubscriptionsLeaveNoDocumentBehind(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	const pairs, long = 200, 30_000
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	subscribe := func(i int, after, comment string) (stop func()) {
		text := `subscription($n:Float){blocks(filter:{seq_no:{gt:$n}},after:"` + after + `"){id}}#` + comment
		stop, err := h.Subscribe(text, map[string]any{"n": json.Number(fmt.Sprint(1_000_000 + i))})
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	comment := strings.Repeat("x", long)
	subscribe(0, "2321m", comment)() // compiles the document
	before := heap()
	for i := range pairs {
		first := subscribe(i, "2322m", comment) // its literal is another one, so it keeps its text
		defer subscribe(i, "2321m", comment)()
		first()
	}
	if grown := int(heap() - before); grown > pairs*long/4 {
		t.Errorf("%d subscriptions keep %d bytes", pairs, grown)
	}
}

// Subscriptions with different variables cannot share responses. The heap must not grow by more than the counted bytes,
// however large the responses are and however many blocks are unread.
func TestUnreadBlockResponsesStayWithinSubscriptionBytes(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		const limit, readers, blocks = 16 << 20, 800, 20
		var fields strings.Builder
		for i := range 40 {
			fmt.Fprintf(&fields, "a%d:id b%d:id ", i, i)
		}
		document := "subscription($f:BlockFilter){blocks(filter:$f){" + fields.String() + "}}"
		chain := referenceChain(t)
		h, _ := newHandler(t, chain, chaingql.Options{
			Limits: chaingql.Limits{SubscriptionBytes: limit, Aliases: 100}})
		before := heap()
		for i := range readers {
			notIn := []any{json.Number(fmt.Sprint(i))}
			own := map[string]any{"f": map[string]any{"seq_no": map[string]any{"notIn": notIn}}}
			stop, err := h.Subscribe(document, own)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		synctest.Wait()
		for n := range blocks {
			if err := chain.Append(masterBlock(uint32(803+n), fmt.Sprintf("%064x", n))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		count, held := h.Retained()
		grown := int(heap() - before)
		t.Logf("%d subscriptions are counted as %d bytes and grew the heap by %d bytes", count, held, grown)
		if most := (held + limit/8) * 5 / 4; grown > most || held > limit-limit/8 {
			t.Errorf("%d unread subscriptions keep %d bytes, want at most %d", count, grown, most)
		}
	})
}

// If a hook needs the trace context of an operation, the subscription keeps it.
func TestTraceContextsOfSubscriptionsAreCounted(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		const sockets, subscriptions, part = 8, 100, 1 << 10
		finished := func(context.Context, chaingql.Operation, chaingql.Outcome) {}
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Hooks: chaingql.Hooks{OperationFinished: finished}})
		n := serve(t, h)
		var all []*socket
		for range sockets {
			all = append(all, n.socket(t))
		}
		before := heapInUse()
		for _, s := range all {
			for i := range subscriptions {
				trace := strings.Repeat("x", part)
				s.send(fmt.Sprintf(`{"id":"%d","type":"start","payload":{"query":"subscription{blocks{id}}",`+
					`"extensions":{"traceparent":%q,"tracestate":%q,"baggage":%q}}}`, i, trace, trace, trace))
			}
		}
		synctest.Wait()
		grown := heapInUse() - before
		count, bytes := h.Retained()
		equal(t, "subscriptions", count, sockets*subscriptions)
		t.Logf("%d subscriptions are counted as %d bytes and grew the heap by %d bytes", count, bytes, grown)
		if grown > bytes*5/4 {
			t.Errorf("%d subscriptions are counted as %d bytes, but keep %d bytes", count, bytes, grown)
		}
	})
}

// All subscriptions of a socket share the trace context of connection_init.
func TestTraceContextsAreCountedOnceAndOnlyForHooks(t *testing.T) {
	const subscriptions, part = 3, 1 << 10
	trace := fmt.Sprintf(`{"traceparent":%q,"baggage":%q}`, strings.Repeat("x", part), strings.Repeat("y", part))
	counted := func(t *testing.T, hooks chaingql.Hooks, init, extensions string) (bytes int) {
		synctest.Test(t, func(t *testing.T) {
			o := chaingql.Options{Hooks: hooks, Authorizer: chaingql.StaticProjects{"demo": {}}}
			h, _ := newHandler(t, memchain.New(), o)
			s := serve(t, h).socket(t)
			for i := range subscriptions {
				s.send(`{"type":"connection_init","payload":` + init + `}`)
				s.send(fmt.Sprintf(`{"id":"%d","type":"start","payload":{"query":"subscription{blocks{id}}",`+
					`"extensions":%s}}`, i, extensions))
			}
			synctest.Wait()
			_, bytes = h.Retained()
			_ = s.CloseNow()
			synctest.Wait()
			_, rest := h.Retained()
			equal(t, "bytes after the socket is closed", rest, 0)
		})
		return bytes
	}
	hooks := chaingql.Hooks{OperationFinished: func(context.Context, chaingql.Operation, chaingql.Outcome) {}}
	none := counted(t, hooks, "{}", "{}")
	equal(t, "bytes of one for the socket", counted(t, hooks, trace, "{}")-none, 2*part)
	equal(t, "bytes of one for each subscription", counted(t, hooks, "{}", trace)-none, subscriptions*2*part)
	equal(t, "bytes without hooks", counted(t, chaingql.Hooks{}, trace, trace)-none, 0)
}
