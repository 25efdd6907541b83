package chaingqltest_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/chaingqltest"
)

func TestQueryReturnsData(t *testing.T) {
	chain := chaingqltest.NewChain(t)
	h := chaingqltest.NewHandler(t, chain, nil)
	account, err := chaingql.ParseAddress("-1:" + strings.Repeat("33", 32))
	if err != nil {
		t.Fatal(err)
	}
	chain.SetBalance(account, big.NewInt(7))
	const document = `query q($address: String!) {
		blockchain { account(address: $address) { info { balance(format: DEC) } } }
	}`
	data := chaingqltest.Query(t, h, document, map[string]any{"address": account.String()})
	equal(t, "data", data, `{"blockchain":{"account":{"info":{"balance":"7"}}}}`)

	var decoded struct {
		Blockchain struct {
			Account struct{ Info struct{ Balance string } }
		}
	}
	data.Decode(t, &decoded)
	equal(t, "balance", decoded.Blockchain.Account.Info.Balance, "7")
	for what, v := range map[string]any{
		"unknown field": new(struct{ Other string }), `cannot unmarshal`: new(struct{ Blockchain []int }),
	} {
		if text := failure(t, func(t testing.TB) { data.Decode(t, v) }); !strings.Contains(text, what) {
			t.Errorf("Decode failed with %q, want %q", text, what)
		}
	}
}

func TestQueryFailsTheTestOnErrors(t *testing.T) {
	h := chaingqltest.NewHandler(t, chaingqltest.NewChain(t), &chaingql.Options{Schema: hostFields(nil, 0)})
	text := failure(t, func(t testing.TB) { chaingqltest.Query(t, h, "{\n  double(n: -1)\n}", nil) })
	equal(t, "message", text, "chaingqltest: { double(n: -1) }: n is negative (NEGATIVE) at [double]")

	data, err := chaingqltest.Do(t, h, `{ a: double(n: 1) b: double(n: -1) }`, nil)
	equal(t, "data", data, `{"a":2,"b":null}`)
	equal(t, "code", chaingqltest.Code(fmt.Errorf("wrapped: %w", err)), "NEGATIVE")
	var errs chaingqltest.Errors
	if !errors.As(err, &errs) || len(errs) != 1 || !slices.Equal(errs[0].Path, []any{"b"}) {
		t.Errorf("Do returned the errors %#v, want one for the path b", err)
	}
	data, err = chaingqltest.Do(t, h, `{ a: double(n: 1) }`, nil)
	equal(t, "data", data, `{"a":2}`)
	equal(t, "error", err, nil)
	equal(t, "code of nil", chaingqltest.Code(nil), "")
	equal(t, "code of another error", chaingqltest.Code(errors.New("other")), "")
	_, err = chaingqltest.Do(t, h, `{ unknown }`, nil)
	equal(t, "code", chaingqltest.Code(err), "GRAPHQL_VALIDATION_FAILED")
	_, err = chaingqltest.Do(t, h, `subscription { blocks { id } }`, nil)
	equal(t, "code", chaingqltest.Code(err), "NOT_ACCEPTABLE")
	text = failure(t, func(t testing.TB) { chaingqltest.Query(t, h, "{a}", map[string]any{"f": func() {}}) })
	if !strings.Contains(text, "unsupported type") {
		t.Errorf("with variables that JSON cannot represent, the test failed with %q", text)
	}
}

func TestAsSetsProjectAndSecret(t *testing.T) {
	var seen chaingql.Credentials
	h := chaingqltest.NewHandler(t, chaingqltest.NewChain(t), &chaingql.Options{Authorizer: authorizer(
		func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
			seen = c
			return ctx, nil
		})})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	chaingql.Mount(mux, "/graphql", h)
	for _, served := range []http.Handler{h, mux} {
		for _, c := range []struct {
			h               http.Handler
			project, secret string
		}{
			{served, "demo", ""},
			{chaingqltest.As(served, "shop", ""), "shop", ""},
			{chaingqltest.As(served, "shop", "s3:cret"), "shop", "s3:cret"},
			{chaingqltest.As(served, "", "s"), "", "s"},
			{chaingqltest.As(served, "a/b ?ж", "s"), "a/b ?ж", "s"},
		} {
			chaingqltest.Query(t, c.h, `{ info { version } }`, nil)
			equal(t, "project", seen.Project, c.project)
			equal(t, "secret", seen.Secret, c.secret)
			equal(t, "has secret", seen.HasSecret, c.secret != "")
		}
	}
}

type authorizer func(context.Context, chaingql.Credentials) (context.Context, error)

func (f authorizer) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	return f(ctx, c)
}

func TestWrongPathFailsTheTest(t *testing.T) {
	h := chaingqltest.NewHandler(t, chaingqltest.NewChain(t), nil)
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/api/{project}/graphql", h)
	const want = `response with status 404 is not from a chaingql.Handler: "404 page not found\n"; does the path exist?`
	for what, test := range map[string]func(testing.TB){
		"Query": func(t testing.TB) { chaingqltest.Query(t, mux, `{ info { version } }`, nil) },
		"Do":    func(t testing.TB) { _, _ = chaingqltest.Do(t, mux, `{ info { version } }`, nil) },
		"Subscribe": func(t testing.TB) {
			for range chaingqltest.Subscribe(t, mux, `subscription { blocks { id } }`, nil) {
				t.Error("the subscription yielded an event")
			}
		},
	} {
		if text := failure(t, test); !strings.Contains(text, want) {
			t.Errorf("%s failed the test with %q, want %q", what, text, want)
		}
	}
}
