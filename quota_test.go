package chaingql_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const byFilter = "subscription($f:BlockFilter){blocks(filter:$f){id}}"

func shards(n, from int) map[string]any {
	in := make([]any, n)
	for i := range in {
		in[i] = fmt.Sprintf("%016x", from+i)
	}
	return map[string]any{"f": map[string]any{"shard": map[string]any{"in": in}}}
}

// expectRefused checks that a subscription is refused on every transport, with LIMIT_EXCEEDED and the given message.
func expectRefused(t *testing.T, n *network, document string, variables any, message string) {
	t.Helper()
	for _, transport := range []string{"events", "graphql-ws", "graphql-transport-ws"} {
		got := allTransports[transport](t, n, document, variables)
		if !strings.Contains(got, message) || !strings.Contains(got, `"code":"LIMIT_EXCEEDED"`) {
			t.Errorf("%s: got %s, want LIMIT_EXCEEDED with %q", transport, got, message)
		}
	}
}

func TestSubscriptionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{Subscriptions: 3}})
		s := n.socket(t)
		s.send(start("1", allBlocks))
		s.send(start("2", allBlocks))
		stream := n.stream(t, allBlocks)
		s.expect("within the limit")
		expectRefused(t, n, allBlocks, nil, "There are 3 subscriptions already, which is the limit.")
		s.send(`{"id":"1","type":"stop"}`)
		s.expect("stopped", `{"type":"complete","id":"1","payload":null}`)
		s.send(start("3", allBlocks))
		s.expect("one has ended")
		_ = s.CloseNow()
		_ = stream.res.Body.Close()
		synctest.Wait()
		if count, bytes := h.Retained(); count != 0 || bytes != 0 {
			t.Errorf("%d subscriptions and %d bytes are still counted", count, bytes)
		}
	})
}

func TestSubscriptionVariablesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{VariableBytes: 500}})
		s := n.socket(t)
		for i, c := range []struct {
			document string
			n        int
			good     bool
		}{
			{byFilter, 20, true}, {byFilter, 30, false},
		} {
			s.send(fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, body(c.document, shards(c.n, 0))))
			got := fmt.Sprint(s.receive())
			if c.good != (got == "[]") || !c.good && !strings.Contains(got, "limit of 500 bytes of variables") {
				t.Errorf("a filter with %d shards received %s", c.n, got)
			}
		}
		expectRefused(t, n, byFilter, shards(30, 0), "limit of 500 bytes of variables")
		for _, text := range []string{"", "\u00e9", `\n`} { // only the first one is a text with a fingerprint
			literal := `subscription{blocks(filter:{chain_order:{eq:"` + text + strings.Repeat("x", 600) + `"}}){id}}`
			expectRefused(t, n, literal, nil, "limit of 500 bytes of variables")
		}
		for transport, ask := range allTransports { // VariableBytes does not apply to queries
			document := `query($a:[String]="` + strings.Repeat("x", 600) + `"){
				__typename b:__typename @include(if:false) blockchain{blocks(after:"x"){__typename}}
			}`
			if got := ask(t, n, document, nil); strings.Contains(got, "500 bytes") {
				t.Errorf("%s: VariableBytes was applied to a query: %s", transport, got)
			}
		}
	})
}

func TestListsInSubscriptionArgumentsAreLimitedOnEveryTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{ListItems: 20}})
		expectRefused(t, n, byFilter, shards(21, 0), "limit of 20 items")
		s := n.socket(t)
		s.send(`{"id":"1","type":"start","payload":` + body(byFilter, shards(20, 0)) + `}`)
		s.expect("variables within the limit")
		list := strings.Repeat("1,", 20)
		e := n.stream(t, `subscription{blocks(filter:{seq_no:{in:[`+list+`]}}){id}}`)
		e.expect("literals within the limit", ":")
	})
}

// longDefault returns a subscription with a long default value for its filter.
func longDefault(i int) string {
	return fmt.Sprintf(`subscription S%d($f:BlockFilter={shard:{in:[%s]} seq_no:{in:[%s]}}){blocks(filter:$f){id}}`, i,
		strings.Repeat(`"0000000000000000" `, 90), strings.Repeat("5000 ", 90))
}

func TestSubscriptionBytesAreCounted(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	const each = 500
	for name, subscribe := range map[string]func(h *chaingql.Handler, i int) (func(), error){
		"equal":     func(h *chaingql.Handler, _ int) (func(), error) { return h.Subscribe(allBlocks, nil) },
		"variables": func(h *chaingql.Handler, i int) (func(), error) { return h.Subscribe(byFilter, shards(100, i)) },
		"literals": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf(`subscription{blocks(filter:{shard:{eq:"%0200d"}}){id}}`, i), nil)
		},
		"documents": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf(`subscription S%d{blocks{%s}}`, i, strings.Repeat("id ", 8)), nil)
		},
		"an OR in an OR": func(h *chaingql.Handler, i int) (func(), error) {
			f := map[string]any{"seq_no": map[string]any{"in": []any{json.Number(fmt.Sprint(i))}}}
			for range 8 {
				f = map[string]any{
					"OR": f, "id": map[string]any{"eq": "x"}, "seq_no": map[string]any{"gt": json.Number("1")},
				}
			}
			return h.Subscribe(byFilter, map[string]any{"f": f})
		},
		"capitals": func(h *chaingql.Handler, i int) (func(), error) {
			id := fmt.Sprintf("%d%s", i, strings.Repeat("A", 3000))
			return h.Subscribe(byFilter, map[string]any{"f": map[string]any{"id": map[string]any{"eq": id}}})
		},
		"a list of capitals": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf(`subscription S%d($f:BlockFilter={id:{in:[%s]}}){blocks(filter:$f){id}}`, i,
				strings.Repeat(fmt.Sprintf("%q ", strings.Repeat("A", 300)), 50)), nil)
		},
		"ORs of nothing": func(h *chaingql.Handler, _ int) (func(), error) {
			f := map[string]any{}
			for range 15 {
				f = map[string]any{"OR": f}
			}
			return h.Subscribe(byFilter, map[string]any{"f": f})
		},
		"default values": func(h *chaingql.Handler, i int) (func(), error) { return h.Subscribe(longDefault(i), nil) },
		"default values that are overridden": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(longDefault(i), map[string]any{"f": map[string]any{}})
		},
		"default values of many objects": func(h *chaingql.Handler, i int) (func(), error) {
			const document = `subscription S%d($f:BlockFilter=%s{}%s){blocks(filter:$f){id}}`
			return h.Subscribe(fmt.Sprintf(document, i, strings.Repeat("{seq_no:{} OR:", 15), strings.Repeat("}", 15)),
				map[string]any{"f": nil})
		},
		"default values of unused variables": func(h *chaingql.Handler, i int) (func(), error) {
			const document = `subscription S%d($s:String="%s" $on:Boolean=true){blocks(after:$s){id @include(if:$on)}}`
			return h.Subscribe(fmt.Sprintf(document, i, strings.Repeat("0", 3000)),
				map[string]any{"s": nil})
		},
		"control characters": func(h *chaingql.Handler, i int) (func(), error) {
			const document = "subscription S%d{blocks(filter:{shard:{eq:\"%s\"}}){id}}"
			return h.Subscribe(fmt.Sprintf(document, i, strings.Repeat("\x01", 1000)), nil)
		},
		"comments": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf("subscription S%d{blocks{id}}#%s", i, strings.Repeat("x", 5000)), nil)
		},
		"aliases": func(h *chaingql.Handler, i int) (func(), error) {
			var fields strings.Builder
			for j := range 50 {
				fmt.Fprintf(&fields, "a%d:id ", j)
			}
			return h.Subscribe(fmt.Sprintf("subscription S%d{blocks{%s}}", i, fields.String()), nil)
		},
		"filters": func(h *chaingql.Handler, i int) (func(), error) {
			const document = "subscription S%d{blocks(filter:{" +
				"id:{ne:null gt:null lt:null} seq_no:{notIn:[%s]} workchain_id:{in:[%[2]s]}}){id}}"
			return h.Subscribe(fmt.Sprintf(document, i, strings.Repeat("1000 ", 90)), nil)
		},
		"a cursor": func(h *chaingql.Handler, i int) (func(), error) {
			after := fmt.Sprintf("%0192d", i)
			return h.Subscribe(`subscription($a:String){blocks(after:$a){id}}`, map[string]any{"a": after})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1 << 10}})
			before := heap()
			var stops []func()
			for i := range each {
				stop, err := subscribe(h, i)
				if err != nil {
					t.Fatal(err)
				}
				stops = append(stops, stop)
			}
			grown := int(heap() - before)
			count, held := h.Retained()
			t.Logf("each subscription needs %d bytes and is counted as %d", grown/each, held/each)
			if count != each || held < grown || held > grown*3/2 && strconv.IntSize == 64 {
				t.Errorf("%d subscriptions grew the heap by %d bytes, but are counted as %d", count, grown, held)
			}
			for _, stop := range slices.Backward(stops) {
				stop()
			}
			if count, held := h.Retained(); count != 0 || held != 0 {
				t.Errorf("%d subscriptions and %d bytes are still counted", count, held)
			}
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestSubscriptionBytesAreLimitedOnEveryTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: 6000}})
		s := n.socket(t)
		s.send(start("1", allBlocks))
		s.expect("within the limit")
		expectRefused(t, n, byFilter, shards(20, 0), "would exceed the limit of 6000 bytes")
	})
}

// Clients with one large subscription on each of their connections must not have small ones of all others refused.
func TestLargeSubscriptionsLeaveRoomForSmallOnes(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: 16 << 20}})
	for i := range 700 { // together, they would need 20 MB
		text := strings.Replace(heavyDefault(i), ",$r:Int!", "", 1)
		if stop, err := h.Subscribe(text, map[string]any{"f": map[string]any{}}); err == nil {
			defer stop()
		}
	}
	for i := range 300 {
		stop, err := h.Subscribe(byFilter, shards(1, i))
		if err != nil {
			t.Fatalf("small subscription %d: got error %v", i, err)
		}
		defer stop()
	}
}

// A client that keeps plans which others have opened must not fill the memory of all.
func TestKeptPlansCountForTheClientThatKeepsThem(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: 16 << 20}})
	for one := chaingql.NewPeer(); ; { // uses half of the memory
		stop, err := h.SubscribeAs(one, byFilter, shards(100, len(t.Name())))
		if err != nil {
			break
		}
		defer stop()
	}
	_, before := h.Retained()
	keeper := chaingql.NewPeer()
	for i := range 300 {
		text := strings.Replace(heavyDefault(i), ",$r:Int!", "", 1)
		var opened []func()
		for range 9 {
			stop, err := h.SubscribeAs(chaingql.NewPeer(), text, map[string]any{"f": map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, stop)
		}
		if keep, err := h.SubscribeAs(keeper, text, map[string]any{"f": map[string]any{}}); err == nil {
			defer keep()
		}
		for _, stop := range opened {
			stop()
		}
	}
	if _, after := h.Retained(); after-before > 200<<10 {
		t.Errorf("one client keeps %d bytes of plans, want at most twice 1/128 of 7 MiB", after-before)
	}
	other, same := chaingql.NewPeer(), strings.Replace(heavyDefault(300), ",$r:Int!", "", 1)
	for i := range 10 { // keep one plan
		stop, err := h.SubscribeAs(other, same, map[string]any{"f": map[string]any{}})
		if err != nil {
			t.Fatalf("equal subscription %d of another client: %v", i, err)
		}
		defer stop()
	}
}

// A few clients with large subscriptions must not have those of all others refused.
func TestFewSocketsLeaveRoomForSubscriptionsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: 16 << 20}})
		n := serve(t, mounted(h))
		refused := func(subscriptions, shardsOfEach, from int) int {
			s := n.socket(t)
			for i := range subscriptions {
				variables, err := json.Marshal(shards(shardsOfEach, from+i))
				if err != nil {
					t.Fatal(err)
				}
				payload := fmt.Sprintf(`{"query":"%s","variables":%s}`, byFilter, variables)
				s.send(fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, payload))
			}
			return len(s.receive())
		}
		for i := range 12 {
			refused(250, 100, 1000*i)
		}
		if _, held := h.Retained(); held < 7<<20 || held > 10<<20 {
			t.Errorf("12 sockets with large subscriptions use %d bytes, want about half of 16 MiB", held)
		}
		equal(t, "subscriptions of another client that are refused", refused(10, 1, 100_000), 0)
	})
}

func TestSubscriptionsBeyondSubscriptionBytesAreRefused(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: 1 << 20}})
	var stops []func()
	for i := 0; ; i++ {
		stop, err := h.Subscribe(byFilter, shards(100, i))
		if err != nil {
			equal(t, "error", err.Error(), "All subscriptions together would exceed the limit of 1048576 bytes.")
			break
		}
		stops = append(stops, stop)
	}
	if count, held := h.Retained(); count != len(stops) || held > 1<<20 || held < 1<<19 {
		t.Errorf("%d subscriptions are counted as %d bytes, want half a MiB to one MiB", count, held)
	}
	for _, stop := range stops {
		stop()
	}
}
