package chaingql_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A bomb is an error that panics when it is asked for something.
type bomb string

func (b bomb) Error() string {
	if b == "Error" {
		panic("s3cret")
	}
	return "harmless"
}

func (b bomb) Extensions() map[string]any {
	if b == "Extensions" {
		panic("s3cret")
	}
	return map[string]any{"of": mine{}}
}

type mine struct{}

func (mine) MarshalJSON() ([]byte, error) { panic("s3cret") }

func boom() any { panic("s3cret") }

// mined are fields of which every one panics somewhere else.
func mined() chaingql.Options {
	scalar := graphql.NewScalar(graphql.ScalarConfig{Name: "Mine", Serialize: func(any) any { return boom() },
		ParseValue: func(any) any { return boom() }, ParseLiteral: func(ast.Value) any { return boom() }})
	fields := graphql.Fields{"a": {Type: graphql.Int}}
	object := graphql.NewObject(graphql.ObjectConfig{Name: "Ore", Fields: fields, IsTypeOf: func(graphql.IsTypeOfParams) bool { return boom() == nil }})
	union := graphql.NewUnion(graphql.UnionConfig{Name: "Pit", Types: []*graphql.Object{object}})
	resolved := graphql.NewUnion(graphql.UnionConfig{Name: "Shaft", Types: []*graphql.Object{object}, ResolveType: func(graphql.ResolveTypeParams) *graphql.Object { boom(); return nil }})
	arg := graphql.FieldConfigArgument{"m": {Type: scalar}}
	return chaingql.Options{QueryFields: graphql.Fields{
		"resolver": gives(graphql.Int, "panic"), "thunk": gives(graphql.Int, func() (any, error) { boom(); return nil, nil }),
		"is": gives(object, 1), "among": gives(union, 1), "which": gives(resolved, 1), "serialize": gives(scalar, 1),
		"takes": {Type: graphql.Int, Args: arg}, "priced": gives(graphql.Int, 1),
		"error": gives(graphql.Int, bomb("Error")), "extensions": gives(graphql.Int, bomb("Extensions")), "extension": gives(graphql.Int, bomb("")),
	}, Costs: map[string]func(map[string]any) chaingql.Cost{"Query.priced": func(map[string]any) chaingql.Cost { boom(); return chaingql.Cost{} }}}
}

func TestPanicOfAHostIsOneMaskedErrorHoweverItIsAsked(t *testing.T) {
	for way, ask := range everyWay {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, log := newHandler(t, memchain.New(), mined())
				n := serve(t, mounted(h))
				for _, document := range []string{`{resolver}`, `{thunk}`, `{is{a}}`, `{among{...on Ore{a}}}`, `{which{...on Ore{a}}}`, `{serialize}`, `{takes(m:1)}`,
					`query($m:Mine){takes(m:$m)}`, `{priced}`, `{error}`, `{extensions}`, `{extension}`} {
					for range 2 { // it is known the second time
						got := parse(t, ask(t, n, document, map[string]any{"m": 1}))
						if len(got.Errors) != 1 || got.code() != "INTERNAL_SERVER_ERROR" || got.Errors[0].Message != "Internal server error" {
							t.Errorf("%s: %+v", document, got.Errors)
						}
					}
				}
				if lines := strings.Count(log.String(), "s3cret"); lines < 24 {
					t.Errorf("the log knows of %d panics: %s", lines, log)
				}
				equal(t, "afterwards", ask(t, n, `{__typename}`, nil), `{"data":{"__typename":"Query"}}`)
			})
		})
	}
}

// A failure is an error of a host's with extensions.
type failure struct {
	text       string
	extensions map[string]any
}

func (f failure) Error() string              { return f.text }
func (f failure) Extensions() map[string]any { return f.extensions }

type code string

func TestErrorsWithExtensionsAreTold(t *testing.T) {
	long := strings.Repeat("long ", 100)
	for want, err := range map[string]error{
		`"message":"no","locations":[{"line":1,"column":2}],"path":["f"],"extensions":{"code":"NO_FUNDS","a":[1],"z":"<"}`: failure{"no", map[string]any{"z": "<", "code": "NO_FUNDS", "a": []int{1}}},
		`"message":"wrapped: no"`:                               fmt.Errorf("s3cret: %w", failure{"wrapped: no", nil}),
		`"extensions":{"code":"TYPED"}`:                         failure{"", map[string]any{"code": code("TYPED")}},
		`"extensions":{"code":"INTERNAL_SERVER_ERROR","b":2}`:   failure{"", map[string]any{"code": 404, "b": 2}},
		`"extensions":{"code":"INTERNAL_SERVER_ERROR","ok":1}`:  failure{"", map[string]any{"c": make(chan int), "ok": 1}},
		`"extensions":{"code":"INTERNAL_SERVER_ERROR","":null}`: failure{"", map[string]any{"": nil, "code": nil}},
		`"message":"` + long[:297] + `..."`:                     failure{long, nil},
	} {
		h, log := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"f": gives(graphql.Int, err)}})
		got := query(h, `{f}`, nil)
		parse(t, got)
		if !strings.Contains(strings.ReplaceAll(got, `\u003c`, "<"), want) || strings.Contains(got, "s3cret") || strings.Contains(log.String(), "internal error") {
			t.Errorf("%#v\n got %s\nwant %s", err, got, want)
		}
	}
}
