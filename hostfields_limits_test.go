package chaingql_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// blockingField returns a field with a resolver that waits until its context is done. With the argument
// ignoreContext:true, it waits for release instead.
func blockingField(release <-chan struct{}) *graphql.Field {
	args := graphql.FieldConfigArgument{"ignoreContext": {Type: graphql.Boolean}}
	return &graphql.Field{Type: graphql.Int, Args: args, Resolve: func(p graphql.ResolveParams) (any, error) {
		if p.Args["ignoreContext"] == true {
			<-release
			return 7, nil
		}
		return func() (any, error) { <-p.Context.Done(); return nil, fmt.Errorf("s3cret: %w", p.Context.Err()) }, nil
	}}
}

func TestSlowHostFieldTimesOutOnEveryTransport(t *testing.T) {
	for transport, ask := range allTransports {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &hookRecorder{}
				h, _ := newHandler(t, memchain.New(), chaingql.Options{
					Schema: chaingql.SchemaExtension{Queries: graphql.Fields{"stuck": blockingField(nil)}},
					Limits: chaingql.Limits{InFlight: 1},
					Hooks:  d.limitHook(),
				})
				n := serve(t, mounted(h))
				for range 2 { // the second query finds the slot free
					began := time.Now()
					got := parse(t, ask(t, n, `{stuck __typename}`, nil))
					equal(t, "code", got.code(), "TIMEOUT")
					equal(t, "data", string(got.Data), `{"stuck":null,"__typename":"Query"}`)
					equal(t, "time", time.Since(began), chaingql.DefaultLimits().BackendTimeout)
					d.expect(t, "limits", "BackendTimeout")
				}
			})
		})
	}
}

// LimitHit is called once per timeout, no matter how many nested fields fail because of it.
func TestTimeoutOfNestedHostFieldsIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hookRecorder{}
		item := newObject("Item", graphql.Fields{"stuck": blockingField(nil)})
		items := graphql.Fields{"items": constField(listOf(item), []int{1, 2, 3, 4})}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Schema: chaingql.SchemaExtension{Queries: items}, Hooks: d.limitHook(),
		})
		equal(t, "errors", len(parse(t, query(h, `{items{stuck again:stuck}}`, nil)).Errors), 8)
		d.expect(t, "limits", "BackendTimeout")
	})
}

func TestHangingHostFieldKeepsItsInFlightSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		fields := graphql.Fields{"stuck": blockingField(release), "free": constField(graphql.Int, 1)}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Schema: chaingql.SchemaExtension{Queries: fields}, Limits: chaingql.Limits{InFlight: 2},
		})
		var hanging sync.WaitGroup
		responses := make(chan *httptest.ResponseRecorder, 2)
		for i := range 2 {
			hanging.Go(func() { responses <- postFrom(h, clientAt(i), body(`{stuck(ignoreContext:true)}`, nil)) })
		}
		synctest.Wait()
		refused := post(h, body(`{free again:free}`, nil))
		equal(t, "status", refused.Code, 503)
		equal(t, "retry", refused.Header().Get("Retry-After"), "1")
		got := parse(t, refused.Body.String())
		if len(got.Errors) != 2 || got.code() != "SERVICE_UNAVAILABLE" {
			t.Errorf("the errors are %+v, want SERVICE_UNAVAILABLE for each field", got.Errors)
		}
		time.Sleep(time.Minute)
		close(release) // late, but the value is still used
		hanging.Wait()
		for range 2 {
			equal(t, "late response", (<-responses).Body.String(), `{"data":{"stuck":7}}`)
		}
		equal(t, "afterwards", query(h, `{free again:free}`, nil), `{"data":{"free":1,"again":1}}`)
	})
}

func TestResponseWithHostFieldsIsLimited(t *testing.T) {
	limits := 0
	endless := make([]int, 1_000_000)
	resolved := 0
	n := &graphql.Field{Type: graphql.Int, Resolve: func(graphql.ResolveParams) (any, error) {
		resolved++
		return func() (any, error) { return 1, nil }, nil
	}}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Limits: chaingql.Limits{ResponseBytes: 1000},
		Schema: chaingql.SchemaExtension{Queries: graphql.Fields{
			"endless": constField(listOf(graphql.Int), endless),
			"items":   constField(listOf(newObject("Item", graphql.Fields{"n": n})), endless),
			"text":    constField(graphql.String, strings.Repeat("x", 900)),
			"more":    constField(graphql.String, strings.Repeat("x", 1001)),
		}},
		Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) {
			limits += strings.Count(limit, "ResponseBytes")
		}},
	})
	const over = `{"data":null,"errors":[{"message":"The response exceeds the limit of 1000 bytes.",` +
		`"extensions":{"code":"LIMIT_EXCEEDED"}}]}`
	for i, document := range []string{`{endless}`, `{items{n}}`, `{more}`, `{text more}`} {
		equal(t, document, query(h, document, nil), over)
		equal(t, "hits", limits, i+1)
	}
	if resolved > 100 {
		t.Errorf("%d items were resolved, want at most 100", resolved)
	}
	equal(t, "within", len(query(h, `{text}`, nil)), 900+len(`{"data":{"text":""}}`))
}

func TestHostFieldsWorkInPersistedQueries(t *testing.T) {
	const document = `query Q($v:Int){asked(v:$v)}`
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(document)))
	asked := &graphql.Field{
		Type: graphql.Int, Args: graphql.FieldConfigArgument{"v": {Type: graphql.Int}},
		Resolve: func(p graphql.ResolveParams) (any, error) { return p.Args["v"], nil },
	}
	fields := graphql.Fields{"asked": asked}
	byHash := `{"variables":{"v":5},"extensions":{"persistedQuery":{"version":1,"sha256Hash":"` + hash + `"}}`
	trusting, _ := newHandler(t, memchain.New(), chaingql.Options{
		Schema: chaingql.SchemaExtension{Queries: fields}, TrustedDocuments: []string{document},
	})
	equal(t, "trusted", post(trusting, byHash+`}`).Body.String(), `{"data":{"asked":5}}`)
	equal(t, "another", parse(t, query(trusting, `{asked}`, nil)).code(), "BAD_REQUEST")
	open, _ := newQueryHandler(t, fields)
	equal(t, "unknown", parse(t, post(open, byHash+`}`).Body.String()).code(), "PERSISTED_QUERY_NOT_FOUND")
	equal(t, "sent with its hash", post(open, byHash+`,"query":"`+document+`"}`).Body.String(), `{"data":{"asked":5}}`)
	equal(t, "known", post(open, strings.Replace(byHash, "5", "6", 1)+`}`).Body.String(), `{"data":{"asked":6}}`)
}

func TestThunksOfNullObjectsAreNotCalled(t *testing.T) {
	called := []string{}
	calls := func(name string) func() (any, error) {
		return func() (any, error) { called = append(called, name); return 1, nil }
	}
	none := &graphql.Field{Type: nonNull(graphql.Int), Resolve: func(p graphql.ResolveParams) (any, error) {
		if p.Source == 0 {
			return 0, nil
		}
		return nil, nil
	}}
	inner := newObject("Inner", graphql.Fields{"early": constField(graphql.Int, calls("early")), "none": none})
	ctx, cancel := context.WithCancel(context.Background())
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Schema: chaingql.SchemaExtension{Queries: graphql.Fields{
			"inner":   constField(inner, 1),
			"list":    constField(listOf(nonNull(inner)), []int{0, 1}),
			"sibling": constField(graphql.Int, calls("sibling")),
			"twice":   constField(graphql.Int, func() (any, error) { return calls("second"), nil }),
			"leave": constField(graphql.Int, func() (any, error) {
				cancel()
				return calls("after cancellation"), nil
			}),
		}},
		Logger: slog.New(slog.DiscardHandler),
	})
	got := parse(t, query(h, `{inner{early none} list{early none} sibling}`, nil))
	equal(t, "data", string(got.Data), `{"inner":null,"list":null,"sibling":1}`)
	equal(t, "called", fmt.Sprint(called), "[sibling]")
	equal(t, "thunk of a thunk", query(h, `{twice}`, nil), `{"data":{"twice":1}}`)
	called = nil
	r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(body(`{leave}`, nil))).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !errors.Is(ctx.Err(), context.Canceled) || len(called) > 0 {
		t.Errorf("these thunks were called after the cancellation: %v", called)
	}
}

// graphql-go builds the tables of an enum on first use, so concurrent first queries must not race.
func TestFirstQueriesOfAHostEnumMayBeConcurrent(t *testing.T) {
	fresh := graphql.NewEnum(graphql.EnumConfig{Name: "Fresh", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}}})
	var inside sync.WaitGroup
	inside.Add(4)
	out := &graphql.Field{Type: fresh, Resolve: func(graphql.ResolveParams) (any, error) {
		inside.Done()
		inside.Wait() // waits until all resolvers run
		return 1, nil
	}}
	in := &graphql.Field{
		Type: graphql.Int, Args: graphql.FieldConfigArgument{"v": {Type: fresh}},
		Resolve: func(p graphql.ResolveParams) (any, error) { return p.Args["v"], nil },
	}
	h, _ := newQueryHandler(t, graphql.Fields{"out": out, "in": in})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			document := []string{`{out}`, `{in(v:ONE)}`}[i%2]
			equal(t, document, query(h, document, nil), []string{`{"data":{"out":"ONE"}}`, `{"data":{"in":1}}`}[i%2])
		})
	}
	all.Wait()
}

func TestHostValueThatItsTypeCannotRepresentIsAnError(t *testing.T) {
	sides := graphql.NewEnum(graphql.EnumConfig{Name: "Side", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}}})
	for name, f := range map[string]*graphql.Field{
		"unknown enum value":     constField(sides, 2),
		"Int of 41 bits":         constField(graphql.Int, int64(1)<<40),
		"fraction for an Int":    constField(graphql.Int, 1.5),
		"string for an Int":      constField(graphql.Int, "5"),
		"number for a Boolean":   constField(graphql.Boolean, 1),
		"NaN for a Float":        constField(graphql.Float, math.NaN()),
		"struct for a String":    constField(graphql.String, struct{ A, B string }{"s3cret", "s3cret"}),
		"function for an Int":    constField(graphql.Int, func() int { return 1 }),
		"channel for any scalar": constField(anyScalar, make(chan int)),
	} {
		h, log := newQueryHandler(t, graphql.Fields{"f": f})
		got := parse(t, query(h, `{f}`, nil))
		if string(got.Data) != `{"f":null}` || got.code() != "INTERNAL_SERVER_ERROR" ||
			!strings.Contains(log.String(), "internal error") {
			t.Errorf("%s: got data %s and errors %+v, want null and a masked error", name, got.Data, got.Errors)
		}
	}
}

// The fmt package would follow a cyclic map until the stack overflows, which recover cannot catch.
func TestCyclicHostValueIsAnError(t *testing.T) {
	child := map[string]any{}
	child["parent"] = map[string]any{"children": []any{child}}
	side := graphql.NewEnum(graphql.EnumConfig{Name: "Side", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}}})
	h, log := newQueryHandler(t, graphql.Fields{
		"f": constField(graphql.Int, child),
		"g": constField(side, []any{&child}),
	})
	equal(t, "data", string(parse(t, query(h, `{f g}`, nil)).Data), `{"f":null,"g":null}`)
	if !strings.Contains(log.String(), "Int cannot represent a map[string]interface {}") {
		t.Errorf("the log lacks the type of the value: %s", log)
	}
}

func TestNullThunkPropagatesToNullableParent(t *testing.T) {
	inner := newObject("Inner", graphql.Fields{
		"sure":  constField(nonNull(graphql.Int), thunk(nil, nil)),
		"fails": constField(nonNull(graphql.Int), thunk(nil, errors.New("s3cret"))),
		"fine":  constField(graphql.Int, thunk(1, nil)),
	})
	numbers := []any{thunk(1, nil), thunk(nil, nil), 3}
	h, _ := newQueryHandler(t, graphql.Fields{
		"numbers": constField(listOf(graphql.Int), numbers),
		"sure":    constField(listOf(nonNull(graphql.Int)), numbers),
		"surer":   constField(nonNull(listOf(nonNull(graphql.Int))), numbers),
		"inner":   constField(inner, thunk(1, nil)),
		"inners":  constField(listOf(inner), []any{1, thunk(2, nil)}),
		"surely":  constField(listOf(nonNull(inner)), []any{1, thunk(2, nil)}),
		"beside":  constField(graphql.Int, 1),
	})
	for document, want := range map[string]string{
		`{numbers beside}`:          `{"numbers":[1,null,3],"beside":1} []`,
		`{sure beside}`:             `{"sure":null,"beside":1} [[sure 1]]`,
		`{surer beside}`:            `null [[surer 1]]`,
		`{beside inner{fine sure}}`: `{"beside":1,"inner":null} [[inner sure]]`,
		`{inners{fine}}`:            `{"inners":[{"fine":1},{"fine":1}]} []`,
		`{inners{fails} beside}`:    `{"inners":[null,null],"beside":1} [[inners 0 fails] [inners 1 fails]]`,
		`{surely{fails} beside}`:    `{"surely":null,"beside":1} [[surely 0 fails] [surely 1 fails]]`,
	} {
		got := parse(t, query(h, document, nil))
		paths := []string{}
		for _, e := range got.Errors {
			paths = append(paths, fmt.Sprint(e.Path))
		}
		equal(t, document, fmt.Sprintf("%s %v", got.Data, paths), want)
	}
}

func TestOutcomeCodeIgnoresResponseKeysNamedErrors(t *testing.T) {
	code := ""
	no := failure{"no", map[string]any{"code": "NO_FUNDS", "errors": []any{map[string]any{"a": 1}}}}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Schema: chaingql.SchemaExtension{Queries: graphql.Fields{
			"f": constField(graphql.Int, no),
			"g": constField(anyScalar, map[string]any{"a": 1, "errors": []any{1}}),
		}},
		Hooks: chaingql.Hooks{OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) {
			code = o.Code
		}},
	})
	for document, want := range map[string]string{`{f}`: "NO_FUNDS", `{g f}`: "NO_FUNDS", `{g}`: ""} {
		query(h, document, nil)
		equal(t, document, code, want)
	}
}

// The sequence may wait for its context although the loop over it has ended.
func TestHostEventWithoutRoomEndsItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		close(release)
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: 1 << 20}, Schema: boxSchema(make(chan struct{}, 1), release),
		})
		n := serve(t, mounted(h))
		got := n.ask(t, "POST", `subscription{box{items stuck}}`, nil, "text/event-stream")
		if !strings.Contains(got, `"code":"SERVICE_UNAVAILABLE"`) || !strings.HasSuffix(got, "event: complete\ndata:") {
			t.Errorf("the subscriber received %.200s", got)
		}
		synctest.Wait()
		bodies, responses := h.Pending()
		equal(t, "counted bytes at the end", bodies+responses, 0)
	})
}
