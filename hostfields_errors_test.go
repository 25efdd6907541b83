package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A panickingError panics in the method that its value names.
type panickingError string

func (b panickingError) Error() string {
	if b == "Error" {
		panic("s3cret")
	}
	return "harmless"
}

func (b panickingError) Extensions() map[string]any {
	if b == "Extensions" {
		panic("s3cret")
	}
	return map[string]any{"of": panickingMarshaler{}}
}

type panickingMarshaler struct{}

func (panickingMarshaler) MarshalJSON() ([]byte, error) { panic("s3cret") }

func boom() any { panic("s3cret") }

// panickingFields returns options with host fields. Each field panics in a different function of the host.
func panickingFields() chaingql.Options {
	scalar := graphql.NewScalar(graphql.ScalarConfig{Name: "Mine", Serialize: func(any) any { return boom() },
		ParseValue: func(any) any { return boom() }, ParseLiteral: func(ast.Value) any { return boom() }})
	fields := graphql.Fields{"a": {Type: graphql.Int}}
	object := graphql.NewObject(graphql.ObjectConfig{
		Name: "Ore", Fields: fields, IsTypeOf: func(graphql.IsTypeOfParams) bool { return boom() == nil },
	})
	union := graphql.NewUnion(graphql.UnionConfig{Name: "Pit", Types: []*graphql.Object{object}})
	resolved := graphql.NewUnion(graphql.UnionConfig{
		Name: "Shaft", Types: []*graphql.Object{object},
		ResolveType: func(graphql.ResolveTypeParams) *graphql.Object { boom(); return nil },
	})
	arg := graphql.FieldConfigArgument{"m": {Type: scalar}}
	fields = graphql.Fields{
		"resolver":   constField(graphql.Int, "panic"),
		"thunk":      constField(graphql.Int, func() (any, error) { boom(); return nil, nil }),
		"is":         constField(object, 1),
		"among":      constField(union, 1),
		"which":      constField(resolved, 1),
		"serialize":  constField(scalar, 1),
		"takes":      {Type: graphql.Int, Args: arg},
		"priced":     constField(graphql.Int, 1),
		"error":      constField(graphql.Int, panickingError("Error")),
		"extensions": constField(graphql.Int, panickingError("Extensions")),
		"extension":  constField(graphql.Int, panickingError("")),
	}
	return chaingql.Options{Schema: chaingql.SchemaExtension{
		Queries: fields,
		Costs: map[string]func(map[string]any) chaingql.Cost{
			"Query.priced": func(map[string]any) chaingql.Cost { boom(); return chaingql.Cost{} },
		},
	}}
}

func TestPanicInHostCodeIsOneMaskedErrorOnEveryTransport(t *testing.T) {
	for transport, ask := range allTransports {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, log := newHandler(t, memchain.New(), panickingFields())
				n := serve(t, mounted(h))
				for _, document := range []string{
					`{resolver}`, `{thunk}`, `{is{a}}`, `{among{...on Ore{a}}}`, `{which{...on Ore{a}}}`,
					`{serialize}`, `{takes(m:1)}`, `query($m:Mine){takes(m:$m)}`, `{priced}`,
					`{error}`, `{extensions}`, `{extension}`,
				} {
					for range 2 { // the second time, the document is cached
						got := parse(t, ask(t, n, document, map[string]any{"m": 1}))
						if len(got.Errors) != 1 || got.code() != "INTERNAL_SERVER_ERROR" ||
							got.Errors[0].Message != "Internal server error" {
							t.Errorf("%s: got the errors %+v, want one masked error", document, got.Errors)
						}
						time.Sleep(time.Second) // otherwise equal errors are logged in one line
					}
				}
				if lines := strings.Count(log.String(), "s3cret"); lines < 24 {
					t.Errorf("the log has %d panics, want at least 24: %s", lines, log)
				}
				equal(t, "afterwards", ask(t, n, `{__typename}`, nil), `{"data":{"__typename":"Query"}}`)
			})
		})
	}
}

// A failure is an error of a host with extensions.
type failure struct {
	text       string
	extensions map[string]any
}

func (f failure) Error() string              { return f.text }
func (f failure) Extensions() map[string]any { return f.extensions }

type code string

func TestHostErrorsWithExtensionsReachTheClient(t *testing.T) {
	long := strings.Repeat("long ", 100)
	for want, err := range map[string]error{
		`"message":"no","locations":[{"line":1,"column":2}],"path":["f"],` +
			`"extensions":{"code":"NO_FUNDS","a":[1],"z":"<"}`: failure{"no", map[string]any{
			"z": "<", "code": "NO_FUNDS", "a": []int{1},
		}},
		`"message":"wrapped: no"`:                             fmt.Errorf("s3cret: %w", failure{"wrapped: no", nil}),
		`"extensions":{"code":"TYPED"}`:                       failure{"", map[string]any{"code": code("TYPED")}},
		`"extensions":{"code":"INTERNAL_SERVER_ERROR","b":2}`: failure{"", map[string]any{"code": 404, "b": 2}},
		`"extensions":{"code":"INTERNAL_SERVER_ERROR","ok":1}`: failure{"", map[string]any{
			"c": make(chan int), "ok": 1,
		}},
		`"extensions":{"code":"INTERNAL_SERVER_ERROR","":null}`: failure{"", map[string]any{"": nil, "code": nil}},
		`"message":"` + long[:297] + `..."`:                     failure{long, nil},
	} {
		h, log := newQueryHandler(t, graphql.Fields{"f": constField(graphql.Int, err)})
		got := query(h, `{f}`, nil)
		parse(t, got)
		if !strings.Contains(strings.ReplaceAll(got, `\u003c`, "<"), want) || strings.Contains(got, "s3cret") ||
			strings.Contains(log.String(), "internal error") {
			t.Errorf("%#v\n got %s\nwant %s", err, got, want)
		}
	}
}

func TestHooksReportWhyAHostSubscriptionEnded(t *testing.T) {
	for what, row := range map[string]struct {
		events func(ctx context.Context, p graphql.ResolveParams, yield func(any, error) bool)
		want   string
	}{
		"end of the sequence": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(1, nil)
		}, `failed false, reason "client", 1 blocks`},
		"error": {func(_ context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			yield(nil, errors.New("down"))
		}, `failed true, reason "lost", 0 blocks`},
		"shutdown": {untilDone, `failed true, reason "shutdown", 0 blocks`},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d hookRecorder
				finished := chaingql.Hooks{OperationFinished: d.hooks().OperationFinished}
				h, n := newTickHandler(t, &tickSource{events: row.events}, chaingql.Options{Hooks: finished})
				n.socket(t).send(start("1", `subscription{tick}`))
				stream := n.stream(t, `subscription{tick}`)
				synctest.Wait()
				if err := h.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				_ = stream.res.Body.Close()
				ends := d.drain()
				equal(t, "finished operations", len(ends), 2)
				for _, line := range ends {
					if !strings.Contains(line, row.want) {
						t.Errorf("OperationFinished reported %s, want %s", line, row.want)
					}
				}
			})
		})
	}
}

// An error that the host yields after the client has stopped the subscription must not be logged.
func TestHostErrorAfterTheSubscriptionWasStoppedIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tickSource{events: func(ctx context.Context, _ graphql.ResolveParams, yield func(any, error) bool) {
			<-ctx.Done()
			yield(nil, errors.New("the query was cut off"))
		}}
		h, log := newHandler(t, memchain.New(), chaingql.Options{Schema: k.schema()})
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", `subscription{tick}`))
		synctest.Wait()
		equal(t, "open", k.open.Load(), 1)
		s.send(`{"id":"1","type":"stop"}`)
		synctest.Wait()
		equal(t, "open", k.open.Load(), 0)
		if strings.Contains(log.String(), "internal error") {
			t.Errorf("an internal error was logged: %s", log)
		}
	})
}
