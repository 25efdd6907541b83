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

// priced are fields with costs of all kinds.
func priced() chaingql.Options {
	sides := graphql.NewEnum(graphql.EnumConfig{Name: "Side", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}, "TEN": {Value: 10}}})
	inner := graphql.NewObject(graphql.ObjectConfig{Name: "Inner", Fields: graphql.Fields{"a": gives(graphql.Int, 1), "free": gives(graphql.Int, 1)}})
	outer := graphql.NewObject(graphql.ObjectConfig{Name: "Outer", Fields: graphql.Fields{"inner": gives(many(inner), []int{}), "plain": gives(inner, 1)}})
	args := graphql.FieldConfigArgument{"first": {Type: graphql.Int, DefaultValue: 3}, "side": {Type: sides}, "in": {Type: graphql.NewInputObject(graphql.InputObjectConfig{Name: "Sided", Fields: graphql.InputObjectConfigFieldMap{"sides": {Type: many(sides)}}})}}
	return chaingql.Options{ShowCost: true, Limits: chaingql.Limits{Calls: 1000, Blocks: 2000},
		QueryFields: graphql.Fields{"plain": gives(graphql.Int, 1), "list": {Type: many(outer), Args: args, Resolve: func(graphql.ResolveParams) (any, error) { return nil, nil }}, "odd": {Type: outer, Args: args}, "huge": {Type: many(outer)}},
		Costs: map[string]func(map[string]any) chaingql.Cost{
			"Query.list": func(args map[string]any) chaingql.Cost {
				c := chaingql.Cost{Calls: 1, Items: args["first"].(int)}
				if side, ok := args["side"].(int); ok { // what the enum means
					c.Blocks = side
				}
				if in, ok := args["in"].(map[string]any); ok {
					c.Blocks = in["sides"].([]any)[0].(int)
				}
				return c
			},
			"Outer.inner": func(map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 2, Blocks: 1, Items: 7} },
			"Inner.a":     func(map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 1} },
			"Query.huge":  func(map[string]any) chaingql.Cost { return chaingql.Cost{Items: math.MaxInt, Blocks: math.MaxInt} },
			"Query.odd": func(args map[string]any) chaingql.Cost {
				n := args["first"].(int)
				return chaingql.Cost{Calls: n, Blocks: n * 1000, Items: n}
			},
		}}
}

func TestHostsFieldsArePricedBeforeTheyRun(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), priced())
	for _, row := range []struct{ document, variables, want string }{
		{`{plain}`, ``, `"calls":1,"blocks":0`},
		{`{plain again:plain}`, ``, `"calls":2,"blocks":0`},
		{`{list{plain{free}}}`, ``, `"calls":1,"blocks":0`},
		{`{list(first:5){inner{free}}}`, ``, `"calls":11,"blocks":5`},
		{`query($n:Int){list(first:$n){inner{free}}}`, `{"n":6}`, `"calls":13,"blocks":6`},
		{`query($n:Int){list(first:$n){inner{free}}}`, ``, `"calls":7,"blocks":3`},
		{`{list(first:2){inner{a free}}}`, ``, `"calls":19,"blocks":2`},
		{`{list(first:2){plain{a}}}`, ``, `"calls":3,"blocks":0`},
		{`{list(side:TEN){__typename}}`, ``, `"calls":1,"blocks":10`},
		{`query($s:Side){list(side:$s){__typename}}`, `{"s":"TEN"}`, `"calls":1,"blocks":10`},
		{`query($s:Side){list(in:{sides:[$s]}){__typename}}`, `{"s":"TEN"}`, `"calls":1,"blocks":10`},
		{`query($no:Boolean!){plain list @skip(if:$no){inner{a}}}`, `{"no":true}`, `"calls":1,"blocks":0`},
		{`{odd(first:-5){inner{a}}}`, ``, `"calls":9,"blocks":1`},
		{`{odd(first:1001){__typename}}`, ``, `costs 1001 calls of the backend, more than the limit of 1000`},
		{`{odd(first:3){__typename}}`, ``, `costs 3000 blocks, more than the limit of 2000`},
		{`{list(first:5){inner{free}} plain}`, ``, `"calls":12,"blocks":5`},
		{`{odd(first:2147483647){inner{a}}}`, ``, `costs 1073741824 calls`},
		{`{list(first:2147483647){inner{a}}}`, ``, `costs 1073741824 calls`},
		{`{huge{inner{a}}}`, ``, `costs 1073741824 calls`},
		{`{huge{plain{free}} again:huge{plain{free}}}`, ``, `costs 1073741824 blocks`},
		{`{list(first:200){inner{a}}}`, ``, `costs 1801 calls`},
	} {
		var v map[string]any
		if row.variables != "" {
			v = variables(t, row.variables)
		}
		if got := query(h, row.document, v); !strings.Contains(got, row.want) {
			t.Errorf("%s %s\n got %s\nwant %s", row.document, row.variables, got, row.want)
		}
	}
}

func TestSubscriptionOfAHostIsPricedToo(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{SubscriptionFields: map[string]chaingql.SubscriptionField{"tick": (&ticker{events: waits}).field()},
		Costs: map[string]func(map[string]any) chaingql.Cost{"Subscription.tick": func(args map[string]any) chaingql.Cost { return chaingql.Cost{Calls: args["to"].(int)} }}})
	for to, good := range map[int]bool{50: true, 51: false} {
		stop, err := h.Subscribe(fmt.Sprintf(`subscription{tick(to:%d)}`, to), nil)
		switch {
		case good && err == nil:
			stop()
		case good || err == nil || !strings.Contains(err.Error(), "costs 51 calls"):
			t.Errorf("up to %d: %v", to, err)
		}
	}
}

// stuck is a field that waits for its context, or for longer.
func stuck(letGo <-chan struct{}) *graphql.Field {
	return &graphql.Field{Type: graphql.Int, Args: graphql.FieldConfigArgument{"deaf": {Type: graphql.Boolean}}, Resolve: func(p graphql.ResolveParams) (any, error) {
		if p.Args["deaf"] == true {
			<-letGo
			return 7, nil
		}
		return func() (any, error) { <-p.Context.Done(); return nil, fmt.Errorf("s3cret: %w", p.Context.Err()) }, nil
	}}
}

func TestFieldOfAHostThatIsSlowIsToldHoweverItIsAsked(t *testing.T) {
	for way, ask := range everyWay {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"stuck": stuck(nil)}, Limits: chaingql.Limits{InFlight: 1},
					Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { d.note("%s", limit) }}})
				n := serve(t, mounted(h))
				for range 2 { // the turn is given back
					began := time.Now()
					got := parse(t, ask(t, n, `{stuck __typename}`, nil))
					equal(t, "code", got.code(), "TIMEOUT")
					equal(t, "data", string(got.Data), `{"stuck":null,"__typename":"Query"}`)
					equal(t, "time", time.Since(began), chaingql.DefaultBackendTimeout)
					d.expect(t, "limits", "BackendTimeout")
				}
			})
		})
	}
}

// One time that ran out is one limit that was hit, whatever was still to be
// asked for in it.
func TestLimitIsHitOnceByAFieldOfAHostWithManyBeneathIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		item := graphql.NewObject(graphql.ObjectConfig{Name: "Item", Fields: graphql.Fields{"stuck": stuck(nil)}})
		h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"items": gives(many(item), []int{1, 2, 3, 4})},
			Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { d.note("%s", limit) }}})
		equal(t, "errors", len(parse(t, query(h, `{items{stuck again:stuck}}`, nil)).Errors), 8)
		d.expect(t, "limits", "BackendTimeout")
	})
}

func TestFieldOfAHostThatHangsKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"stuck": stuck(letGo), "free": gives(graphql.Int, 1)}, Limits: chaingql.Limits{InFlight: 2}})
		var hanging sync.WaitGroup
		answers := make(chan *httptest.ResponseRecorder, 2)
		for range 2 {
			hanging.Go(func() { answers <- post(h, body(`{stuck(deaf:true)}`, nil)) })
		}
		synctest.Wait()
		refused := post(h, body(`{free again:free}`, nil))
		equal(t, "status", refused.Code, 503)
		equal(t, "retry", refused.Header().Get("Retry-After"), "1")
		got := parse(t, refused.Body.String())
		if len(got.Errors) != 2 || got.code() != "SERVICE_UNAVAILABLE" {
			t.Errorf("refused with %+v", got.Errors)
		}
		time.Sleep(time.Minute)
		close(letGo) // too late, but there it is
		hanging.Wait()
		for range 2 {
			equal(t, "late answer", (<-answers).Body.String(), `{"data":{"stuck":7}}`)
		}
		equal(t, "afterwards", query(h, `{free again:free}`, nil), `{"data":{"free":1,"again":1}}`)
	})
}

func TestAnswerOfAHostIsBounded(t *testing.T) {
	limits := 0
	endless := make([]int, 1_000_000)
	resolved := 0
	item := graphql.NewObject(graphql.ObjectConfig{Name: "Item", Fields: graphql.Fields{"n": {Type: graphql.Int, Resolve: func(graphql.ResolveParams) (any, error) {
		resolved++
		return func() (any, error) { return 1, nil }, nil
	}}}})
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{AnswerBytes: 1000},
		QueryFields: graphql.Fields{"endless": gives(many(graphql.Int), endless), "items": gives(many(item), endless), "text": gives(graphql.String, strings.Repeat("x", 900)), "more": gives(graphql.String, strings.Repeat("x", 1001))},
		Hooks:       chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { limits += strings.Count(limit, "AnswerBytes") }}})
	const over = `{"data":null,"errors":[{"message":"The answer exceeds the limit of 1000 bytes.","extensions":{"code":"LIMIT_EXCEEDED"}}]}`
	for i, document := range []string{`{endless}`, `{items{n}}`, `{more}`, `{text more}`} {
		equal(t, document, query(h, document, nil), over)
		equal(t, "hits", limits, i+1)
	}
	if resolved > 100 {
		t.Errorf("%d items were asked for all the same", resolved)
	}
	equal(t, "within", len(query(h, `{text}`, nil)), 900+len(`{"data":{"text":""}}`))
}

func TestHostsFieldsAreServedByHash(t *testing.T) {
	const document = `query Q($v:Int){asked(v:$v)}`
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(document)))
	fields := graphql.Fields{"asked": {Type: graphql.Int, Args: graphql.FieldConfigArgument{"v": {Type: graphql.Int}}, Resolve: func(p graphql.ResolveParams) (any, error) { return p.Args["v"], nil }}}
	byHash := `{"variables":{"v":5},"extensions":{"persistedQuery":{"version":1,"sha256Hash":"` + hash + `"}}`
	trusting, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: fields, TrustedDocuments: []string{document}})
	equal(t, "trusted", post(trusting, byHash+`}`).Body.String(), `{"data":{"asked":5}}`)
	equal(t, "another", parse(t, query(trusting, `{asked}`, nil)).code(), "BAD_REQUEST")
	open, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: fields})
	equal(t, "unknown", parse(t, post(open, byHash+`}`).Body.String()).code(), "PERSISTED_QUERY_NOT_FOUND")
	equal(t, "told", post(open, byHash+`,"query":"`+document+`"}`).Body.String(), `{"data":{"asked":5}}`)
	equal(t, "known", post(open, strings.Replace(byHash, "5", "6", 1)+`}`).Body.String(), `{"data":{"asked":6}}`)
}

func TestThunksOfWhatIsNullAreNotCalled(t *testing.T) {
	called := []string{}
	calls := func(name string) func() (any, error) {
		return func() (any, error) { called = append(called, name); return 1, nil }
	}
	inner := graphql.NewObject(graphql.ObjectConfig{Name: "Inner", Fields: graphql.Fields{"early": gives(graphql.Int, calls("early")), "none": {Type: must(graphql.Int), Resolve: func(p graphql.ResolveParams) (any, error) {
		if p.Source == 0 {
			return 0, nil
		}
		return nil, nil
	}}}})
	ctx, cancel := context.WithCancel(context.Background())
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"inner": gives(inner, 1), "list": gives(many(must(inner)), []int{0, 1}), "beside": gives(graphql.Int, calls("beside")),
		"twice": gives(graphql.Int, func() (any, error) { return calls("second"), nil }),
		"leave": gives(graphql.Int, func() (any, error) { cancel(); return calls("after all have left"), nil })},
		Logger: slog.New(slog.DiscardHandler)})
	equal(t, "data", string(parse(t, query(h, `{inner{early none} list{early none} beside}`, nil)).Data), `{"inner":null,"list":null,"beside":1}`)
	equal(t, "called", fmt.Sprint(called), "[beside]")
	equal(t, "thunk of a thunk", query(h, `{twice}`, nil), `{"data":{"twice":1}}`)
	called = nil
	r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(body(`{leave}`, nil))).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !errors.Is(ctx.Err(), context.Canceled) || len(called) > 0 {
		t.Errorf("called %v", called)
	}
}

// graphql-go makes an enum's tables when they are first asked for.
func TestFirstQueriesMayComeAtOnce(t *testing.T) {
	fresh := graphql.NewEnum(graphql.EnumConfig{Name: "Fresh", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}}})
	var inside sync.WaitGroup
	inside.Add(4)
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"out": {Type: fresh, Resolve: func(graphql.ResolveParams) (any, error) {
		inside.Done()
		inside.Wait() // for all others
		return 1, nil
	}}, "in": {Type: graphql.Int, Args: graphql.FieldConfigArgument{"v": {Type: fresh}},
		Resolve: func(p graphql.ResolveParams) (any, error) { return p.Args["v"], nil }}}})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			document := []string{`{out}`, `{in(v:ONE)}`}[i%2]
			equal(t, document, query(h, document, nil), []string{`{"data":{"out":"ONE"}}`, `{"data":{"in":1}}`}[i%2])
		})
	}
	all.Wait()
}

func TestValueThatATypeCannotHoldIsAnError(t *testing.T) {
	sides := graphql.NewEnum(graphql.EnumConfig{Name: "Side", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}}})
	for what, f := range map[string]*graphql.Field{
		"another enum's": gives(sides, 2), "past 32 bits": gives(graphql.Int, int64(1)<<40), "a fraction": gives(graphql.Int, 1.5), "text": gives(graphql.Int, "5"), "a number": gives(graphql.Boolean, 1),
		"no number": gives(graphql.Float, math.NaN()), "many words": gives(graphql.String, struct{ A, B string }{"s3cret", "s3cret"}), "a function": gives(graphql.Int, func() int { return 1 }), "no JSON": gives(whatever, make(chan int)),
	} {
		h, log := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"f": f}})
		got := parse(t, query(h, `{f}`, nil))
		if string(got.Data) != `{"f":null}` || got.code() != "INTERNAL_SERVER_ERROR" || !strings.Contains(log.String(), "internal error") {
			t.Errorf("%s: %s %+v", what, got.Data, got.Errors)
		}
	}
}

// fmt follows maps for ever, which no recover would survive.
func TestMapThatLeadsBackToItselfIsNoNumber(t *testing.T) {
	child := map[string]any{}
	child["parent"] = map[string]any{"children": []any{child}}
	side := graphql.NewEnum(graphql.EnumConfig{Name: "Side", Values: graphql.EnumValueConfigMap{"ONE": {Value: 1}}})
	h, log := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"f": gives(graphql.Int, child), "g": gives(side, []any{&child})}})
	equal(t, "data", string(parse(t, query(h, `{f g}`, nil)).Data), `{"f":null,"g":null}`)
	if !strings.Contains(log.String(), "Int cannot represent a map[string]interface {}") {
		t.Errorf("log: %s", log)
	}
}

func TestNullOfAThunkIsThatOfWhatItMustNotBeIn(t *testing.T) {
	inner := graphql.NewObject(graphql.ObjectConfig{Name: "Inner", Fields: graphql.Fields{"sure": gives(must(graphql.Int), later(nil, nil)), "fails": gives(must(graphql.Int), later(nil, errors.New("s3cret"))), "fine": gives(graphql.Int, later(1, nil))}})
	numbers := []any{later(1, nil), later(nil, nil), 3}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{
		"numbers": gives(many(graphql.Int), numbers), "sure": gives(many(must(graphql.Int)), numbers), "surer": gives(must(many(must(graphql.Int))), numbers),
		"inner": gives(inner, later(1, nil)), "inners": gives(many(inner), []any{1, later(2, nil)}), "surely": gives(many(must(inner)), []any{1, later(2, nil)}), "beside": gives(graphql.Int, 1)}})
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
		places := []string{}
		for _, e := range got.Errors {
			places = append(places, fmt.Sprint(e.Path))
		}
		equal(t, document, fmt.Sprintf("%s %v", got.Data, places), want)
	}
}

func TestHooksAreToldTheCodeWhateverIsBesideIt(t *testing.T) {
	told := ""
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"f": gives(graphql.Int, failure{"no", map[string]any{"code": "NO_FUNDS", "errors": []any{map[string]any{"a": 1}}}}), "g": gives(whatever, map[string]any{"a": 1, "errors": []any{1}})},
		Hooks: chaingql.Hooks{OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) { told = o.Code }}})
	for document, want := range map[string]string{`{f}`: "NO_FUNDS", `{g f}`: "NO_FUNDS", `{g}`: ""} {
		query(h, document, nil)
		equal(t, document, told, want)
	}
}
