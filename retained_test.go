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
)

const byFilter = "subscription($f:BlockFilter){blocks(filter:$f){id}}"

func shards(n, from int) map[string]any {
	in := make([]any, n)
	for i := range in {
		in[i] = fmt.Sprintf("%016x", from+i)
	}
	return map[string]any{"f": map[string]any{"shard": map[string]any{"in": in}}}
}

func TestSubscriptionsHaveALimitInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := live(t, chaingql.Options{Limits: chaingql.Limits{Subscriptions: 3}})
		const refused = `"message":"There are 3 subscriptions already, which is the limit.","extensions":{"code":"LIMIT_EXCEEDED"}`
		s := n.socket(t)
		s.say(start("1", allBlocks))
		s.say(start("2", allBlocks))
		stream := n.stream(t, allBlocks)
		s.expect("within the limit")
		for way, ask := range everyWay {
			if way == "GET" || way == "POST" {
				continue // subscriptions are not for them
			}
			if got := ask(t, n, allBlocks, nil); !strings.Contains(got, refused) {
				t.Errorf("%s, beyond the limit: %s", way, got)
			}
		}
		s.say(`{"id":"1","type":"stop"}`)
		s.expect("stopped", `{"type":"complete","id":"1","payload":null}`)
		s.say(start("3", allBlocks))
		s.expect("one has ended")
		_ = s.CloseNow()
		_ = stream.res.Body.Close()
		synctest.Wait()
		if count, bytes := h.Retained(); count != 0 || bytes != 0 {
			t.Errorf("%d subscriptions and %d bytes are left", count, bytes)
		}
	})
}

func TestVariablesOfASubscriptionHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := live(t, chaingql.Options{Limits: chaingql.Limits{VariableBytes: 500}})
		s := n.socket(t)
		for i, c := range []struct {
			document string
			n        int
			good     bool
		}{
			{byFilter, 20, true}, {byFilter, 30, false},
		} {
			s.say(fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, body(c.document, shards(c.n, 0))))
			got := fmt.Sprint(s.hear())
			if c.good != (got == "[]") || !c.good && !strings.Contains(got, "limit of 500 bytes of variables") {
				t.Errorf("%d shards: heard %s", c.n, got)
			}
		}
		for way, ask := range everyWay {
			if way == "GET" || way == "POST" {
				continue // subscriptions are not for them
			}
			if got := ask(t, n, byFilter, shards(30, 0)); !strings.Contains(got, "limit of 500 bytes of variables") || !strings.Contains(got, "LIMIT_EXCEEDED") {
				t.Errorf("%s: %s", way, got)
			}
		}
		for way, ask := range everyWay { // queries keep none
			if got := ask(t, n, `query($a:[String]="`+strings.Repeat("x", 600)+`"){__typename b:__typename @include(if:false) blockchain{blocks(after:"x"){__typename}}}`, nil); strings.Contains(got, "500 bytes") {
				t.Errorf("%s: %s", way, got)
			}
		}
	})
}

func TestListOfASubscriptionHasALimitHoweverItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := live(t, chaingql.Options{Limits: chaingql.Limits{ListItems: 20}})
		for way, ask := range everyWay {
			if way == "GET" || way == "POST" {
				continue // subscriptions are not for them
			}
			if got := ask(t, n, byFilter, shards(21, 0)); !strings.Contains(got, "limit of 20 items") || !strings.Contains(got, "LIMIT_EXCEEDED") {
				t.Errorf("%s: %s", way, got)
			}
		}
		n.stream(t, `subscription{blocks(filter:{seq_no:{in:[`+strings.Repeat("1,", 20)+`]}}){id}}`).expect("within the limit", ":")
	})
}

// longDefault is a subscription with a default value for its filter.
func longDefault(i int) string {
	return fmt.Sprintf(`subscription S%d($f:BlockFilter={shard:{in:[%s]} seq_no:{in:[%s]}}){blocks(filter:$f){id}}`, i,
		strings.Repeat(`"0000000000000000" `, 90), strings.Repeat("5000 ", 90))
}

func TestBytesOfSubscriptionsAreCounted(t *testing.T) {
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
				f = map[string]any{"OR": f, "id": map[string]any{"eq": "x"}, "seq_no": map[string]any{"gt": json.Number("1")}}
			}
			return h.Subscribe(byFilter, map[string]any{"f": f})
		},
		"capitals": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(byFilter, map[string]any{"f": map[string]any{"id": map[string]any{"eq": fmt.Sprintf("%d%s", i, strings.Repeat("A", 3000))}}})
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
			return h.Subscribe(fmt.Sprintf(`subscription S%d($f:BlockFilter=%s{}%s){blocks(filter:$f){id}}`, i, strings.Repeat("{seq_no:{} OR:", 15), strings.Repeat("}", 15)),
				map[string]any{"f": nil})
		},
		"default values of unused variables": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf(`subscription S%d($s:String="%s" $on:Boolean=true){blocks(after:$s){id @include(if:$on)}}`, i, strings.Repeat("0", 3000)),
				map[string]any{"s": nil})
		},
		"control characters": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(fmt.Sprintf("subscription S%d{blocks(filter:{shard:{eq:\"%s\"}}){id}}", i, strings.Repeat("\x01", 1000)), nil)
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
			return h.Subscribe(fmt.Sprintf("subscription S%d{blocks(filter:{id:{ne:null gt:null lt:null} seq_no:{notIn:[%s]} workchain_id:{in:[%[2]s]}}){id}}", i, strings.Repeat("1000 ", 90)), nil)
		},
		"a cursor": func(h *chaingql.Handler, i int) (func(), error) {
			return h.Subscribe(`subscription($a:String){blocks(after:$a){id}}`, map[string]any{"a": fmt.Sprintf("%03000d", i)})
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
			t.Logf("%d bytes each, counted %d", grown/each, held/each)
			if count != each || held < grown || held > grown*3/2 && strconv.IntSize == 64 {
				t.Errorf("%d subscriptions grew the heap by %d bytes, and are counted as %d", count, grown, held)
			}
			for _, stop := range slices.Backward(stops) {
				stop()
			}
			if count, held := h.Retained(); count != 0 || held != 0 {
				t.Errorf("%d subscriptions and %d bytes are left", count, held)
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

func TestBytesOfSubscriptionsAreTakenHoweverTheyAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := live(t, chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: 6000}})
		s := n.socket(t)
		s.say(start("1", allBlocks))
		s.expect("within the limit")
		for way, ask := range everyWay {
			if way == "GET" || way == "POST" {
				continue // subscriptions are not for them
			}
			if got := ask(t, n, byFilter, shards(20, 0)); !strings.Contains(got, "would exceed the limit of 6000 bytes") || !strings.Contains(got, "LIMIT_EXCEEDED") {
				t.Errorf("%s: %s", way, got)
			}
		}
	})
}

func TestSubscriptionsAreRefusedWhenTheirBytesRunOut(t *testing.T) {
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
		t.Errorf("%d subscriptions, %d bytes", count, held)
	}
	for _, stop := range stops {
		stop()
	}
}
