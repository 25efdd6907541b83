package chaingql_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

// heavyDefault is a subscription of less than 4 kB with a default value that takes
// much more as a syntax tree and as a value.
func heavyDefault(i int) string {
	filter := "{}"
	for range 15 {
		filter = "{id:{} seq_no:{} workchain_id:{} shard:{} gen_utime:{in:[" + strings.Repeat("7e9,", 30) + "]} chain_order:{} OR:" + filter + "}"
	}
	return fmt.Sprintf("subscription S%d($f:BlockFilter=%s,$r:Int!){blocks(filter:$f){id}}", i, filter)
}

// A document that is refused for its variables is kept nevertheless: the next
// request may have better ones.
func TestRefusedDocumentsStayWithinCacheBytes(t *testing.T) {
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
			t.Fatalf("answered %s", got)
		}
	}
	if grown := int(heap() - before); grown > limit*3/2 {
		t.Errorf("400 refused documents keep %d bytes, the limit is %d", grown, limit)
	}
	runtime.KeepAlive(h)
}

func TestOverriddenDefaultsCountAsSubscriptionBytes(t *testing.T) {
	const limit = 4 << 20
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{SubscriptionBytes: limit, CacheBytes: 1 << 10}})
	before := heap()
	var stops []func()
	for i := range 2000 {
		text := strings.Replace(heavyDefault(i), ",$r:Int!", "", 1)
		stop, err := h.Subscribe(text, map[string]any{"f": map[string]any{}})
		if err != nil {
			if !strings.Contains(err.Error(), "limit of 4194304 bytes") {
				t.Fatal(err)
			}
			break
		}
		stops = append(stops, stop)
	}
	grown := int(heap() - before)
	t.Logf("%d subscriptions, %d bytes", len(stops), grown)
	if grown > limit*5/4 || grown < limit/2 { // the race detector adds some
		t.Errorf("%d subscriptions keep %d bytes, the limit is %d", len(stops), grown, limit)
	}
	for _, stop := range stops {
		stop()
	}
}
