package chaingql_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestRequestsExactlyAtALimitAreServed(t *testing.T) {
	const limit = 1000
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{BodyBytes: limit}})
	const asked = `{"query":"{__typename}"}`
	filled := func(begin, fill string, size int) string {
		return begin + strings.Repeat(fill, (size-len(begin))/len(fill))
	}
	for _, row := range []struct {
		what    string
		limit   int
		refusal int
		send    func(size int) *httptest.ResponseRecorder
	}{
		{"body", limit, 413, func(size int) *httptest.ResponseRecorder {
			return post(h, filled(asked, " ", size))
		}},
		{"URL's query", limit, 413, func(size int) *httptest.ResponseRecorder {
			return do(h, "GET", "/demo/graphql?"+filled("query="+url.QueryEscape("{__typename}"), "+", size), "")
		}},
		{"Content-Type", 256, 415, func(size int) *httptest.ResponseRecorder {
			return do(h, "POST", "/demo/graphql", asked, "Content-Type", filled("application/json; a=", "x", size))
		}},
		{"Accept", 1024, 406, func(size int) *httptest.ResponseRecorder {
			return post(h, asked, "Accept", filled("application/json,", " ", size))
		}},
		{"Accept headers", 1024, 406, func(size int) *httptest.ResponseRecorder {
			pairs := []string{"Accept", "application/json"}
			for range size - 1 {
				pairs = append(pairs, "Accept", "")
			}
			return post(h, asked, pairs...)
		}},
	} {
		equal(t, row.what+" of the limit", row.send(row.limit).Code, 200)
		equal(t, row.what+" of one more", row.send(row.limit+1).Code, row.refusal)
	}
}

// The headers of responses of less than 1 KiB are prepared in advance, so the test checks sizes around 1 KiB.
func TestContentLengthIsExact(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for size := 1020; size < 1030; size++ {
		alias := strings.Repeat("a", size-len(`{"data":{"":"Query"}}`))
		w := query(h, "{"+alias+":__typename}", nil)
		equal(t, "response", w, `{"data":{"`+alias+`":"Query"}}`)
		head := do(h, "HEAD", "/demo/graphql?query="+url.QueryEscape("{"+alias+":__typename}"), "")
		equal(t, "length", head.Header().Get("Content-Length"), strconv.Itoa(size))
	}
}

func TestSubscriptionsExactlyAtALimitAreServed(t *testing.T) {
	subscribe := func(limits chaingql.Limits, document string, variables any) (h *chaingql.Handler, err error) {
		h, _ = newHandler(t, memchain.New(), chaingql.Options{Limits: limits})
		given, _ := variables.(map[string]any)
		stop, err := h.Subscribe(document, given)
		if err == nil {
			t.Cleanup(stop)
		}
		return h, err
	}
	h, err := subscribe(chaingql.Limits{}, byFilter, shards(20, 0))
	if err != nil {
		t.Fatal(err)
	}
	_, held := h.Retained()
	limit := held
	for limit-limit/8 < held { // an eighth is reserved for unread blocks
		limit++
	}
	const variables = len(`{"shard":{"in":[],},}`) + 20*len(`"0123456789abcdef",`) // with a comma after each
	for _, row := range []struct {
		what  string
		limit int
		under func(limit int) chaingql.Limits
	}{
		{"SubscriptionBytes", limit, func(n int) chaingql.Limits { return chaingql.Limits{SubscriptionBytes: n} }},
		{"VariableBytes", variables, func(n int) chaingql.Limits { return chaingql.Limits{VariableBytes: n} }},
	} {
		if _, err := subscribe(row.under(row.limit), byFilter, shards(20, 0)); err != nil {
			t.Errorf("a subscription that uses all of %s was refused: %v", row.what, err)
		}
		if _, err := subscribe(row.under(row.limit-1), byFilter, shards(20, 0)); err == nil {
			t.Errorf("a subscription that exceeds %s by one byte was accepted", row.what)
		}
	}
}

func TestTraceContextExactlyAtTheLimitIsAccepted(t *testing.T) {
	for size, want := range map[int]int{1024: 1024, 1025: 0} {
		var got chaingql.Trace
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Hooks: chaingql.Hooks{
			OperationStarted: func(_ context.Context, op chaingql.Operation) context.Context {
				got = op.Trace
				return nil
			},
		}})
		post(h, `{"query":"{__typename}"}`, "Traceparent", strings.Repeat("x", size))
		equal(t, fmt.Sprintf("bytes of a traceparent of %d", size), len(got.Parent), want)
	}
}

// A query shares a call only if the call has run for less than half of BackendTimeout.
func TestQueryJoinsOnlyBackendCallsYoungerThanHalfOfBackendTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Chain: chainOf(t, randomBlocks(26, 3))}
		h, _ := newHandler(t, g, chaingql.Options{Limits: chaingql.Limits{BackendTimeout: 4 * time.Second}})
		responses := []<-chan string{queryAsync(t.Context(), h, newest)}
		begun := g.waiting()
		time.Sleep(2*time.Second - 1)
		responses = append(responses, queryAsync(t.Context(), h, newest))
		equal(t, "calls before half of the time", g.waiting()-begun, 0)
		time.Sleep(time.Nanosecond)
		responses = append(responses, queryAsync(t.Context(), h, newest))
		equal(t, "calls after half of the time", g.waiting()-begun, 1)
		for i := range g.waiting() {
			g.release(i, nil)
		}
		for _, response := range responses {
			<-response
		}
	})
}

// The chain has a block every 2.5 s. The newest is number 61, so block 37 is older than it by exactly a minute.
func TestPageIsImmutableOnceItsEndIsAMinuteOld(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, _ *callCounter, _ func()) {
		for end, want := range map[int]string{37: immutable, 38: "public, max-age=2"} {
			page := fmt.Sprintf(`{blockchain{blocks(after:%q,before:%q){edges{cursor}}}}`, at(20), at(end))
			equal(t, page, caching(get(h, page)), want)
		}
	})
}

func TestBlocksQueryMatchesOnlyBlocksStrictlyBetweenItsCursors(t *testing.T) {
	for _, row := range []struct {
		after, before chaingql.Cursor
		want          bool
	}{
		{"", "", true}, {"4", "", true}, {"5", "", false}, {"6", "", false},
		{"", "6", true}, {"", "5", false}, {"", "4", false},
		{"4", "6", true}, {"5", "6", false}, {"4", "5", false},
	} {
		q := chaingql.BlocksQuery{After: row.after, Before: row.before, First: 1}
		equal(t, fmt.Sprintf("%+v matches", q), q.Matches(chaingql.Block{Cursor: "5"}), row.want)
	}
}
