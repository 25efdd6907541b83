package chaingql_test

import (
	"context"
	"encoding/base64"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func basic(userinfo string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(userinfo))
}

func TestProjectIsFoundInTheRequest(t *testing.T) {
	var seen string
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: authorizer(
		func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
			seen = c.Project
			return ctx, nil
		})})
	mux := http.NewServeMux()
	mux.Handle("/", mounted(h))
	mux.Handle("/api/v1/{project}/graphql", h)
	mux.Handle("/api/v1/{project}/query/now", h)
	mux.Handle("/bare/", h)
	mux.Handle("/graphql", h)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", h))
	mux.Handle("/strippedmux/", http.StripPrefix("/strippedmux", mounted(h)))
	for path, want := range map[string]string{
		"/demo/graphql":              "demo",
		"/demo/graphql/":             "demo",
		"/DeMo/graphql":              "demo",
		"/api/v1/demo/graphql":       "demo",
		"/api/v1/demo/query/now":     "demo", // by the wildcard, not by its place
		"/bare/demo/graphql":         "demo",
		"/bare/demo/graphql/":        "demo",
		"/bare/a/b/c/graphql":        "c",
		"/bare/demo/anything":        "demo",
		"/stripped/demo/graphql":     "demo",
		"/stripped/demo/graphql/":    "demo",
		"/stripped/graphql":          "",
		"/strippedmux/demo/graphql":  "demo",
		"/strippedmux/demo/graphql/": "demo",
		"/graphql":                   "",
		"/a%2Fb/graphql":             "a/b",
		"/bare/a%2Fb/graphql":        "a/b",
		"/bare/a%20B/graphql":        "a b",
		"/%C3%84pfel/graphql":        "äpfel",
		"/bare/%C3%84pfel/graphql":   "äpfel",
		"/bare/%D0%96/graphql":       "ж",
	} {
		seen = "not asked"
		w := do(mux, "POST", path, ask802, "Content-Type", "application/json")
		equal(t, "status of "+path, w.Code, 200)
		equal(t, "project of "+path, seen, want)
	}
}

func TestSecretIsReadFromTheHeader(t *testing.T) {
	projects := chaingql.StaticProjects{
		"Closed": {Secret: "r:ght", RequireSecret: true},
		"open":   {},
		"either": {Secret: "r:ght"},
	}
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projects})
	const closed, open, either = "closed", "open", "either"
	for _, c := range []struct {
		what, project string
		headers       []string
		ok            bool
	}{
		{"right", closed, []string{basic(":r:ght")}, true},
		{"right, project in upper case", "CLOSED", []string{basic(":r:ght")}, true},
		{"scheme in any case", closed, []string{strings.Replace(basic(":r:ght"), "Basic ", "bASIC  ", 1)}, true},
		{"none", closed, nil, false},
		{"wrong", closed, []string{basic(":wrong")}, false},
		{"wrong case", closed, []string{basic(":R:GHT")}, false},
		{"shorter", closed, []string{basic(":r:gh")}, false},
		{"empty", closed, []string{basic(":")}, false},
		{"user name", closed, []string{basic("user:r:ght")}, false},
		{"no colon", closed, []string{basic("r.ght")}, false},
		{"bad base64", closed, []string{"Basic ***"}, false},
		{"no padding", closed, []string{strings.TrimRight(basic(":r:ght1"), "=")}, false},
		{"nothing behind the scheme", closed, []string{"Basic"}, false},
		{"two headers", closed, []string{basic(":r:ght"), basic(":r:ght")}, false},
		{"other scheme", closed, []string{"Bearer r:ght"}, false},
		{"bare secret", closed, []string{"r:ght"}, false},
		{"none needed", open, nil, true},
		{"empty where none is", open, []string{basic(":")}, true},
		{"one where none is", open, []string{basic(":x")}, false},
		{"bad base64 where none is needed", open, []string{"Basic ***"}, false},
		{"other scheme where none is needed", open, []string{"Bearer x"}, true},
		{"optional, absent", either, nil, true},
		{"optional, right", either, []string{basic(":r:ght")}, true},
		{"optional, wrong", either, []string{basic(":wrong")}, false},
		{"optional, empty", either, []string{basic(":")}, false},
		{"unknown project", "nobody", nil, false},
		{"unknown project with a secret", "nobody", []string{basic(":r:ght")}, false},
		{"unknown project with an empty secret", "nobody", []string{basic(":")}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			header := []string{"Content-Type", "application/json"}
			for _, value := range c.headers {
				header = append(header, "Authorization", value)
			}
			w := do(mounted(h), "POST", "/"+c.project+"/graphql", ask802, header...)
			if c.ok {
				equal(t, "status", w.Code, 200)
				equal(t, "body", w.Body.String(), answer802)
				return
			}
			// One and the same, whatever the reason.
			equal(t, "status", w.Code, 401)
			equal(t, "body", w.Body.String(), refusalBody("Unauthorized access", "UNAUTHENTICATED"))
			equal(t, "challenge", w.Header().Get("WWW-Authenticate"), `Basic realm="chaingql", charset="UTF-8"`)
		})
	}
}

func TestEveryProjectIsOpenWithoutAnAuthorizer(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for _, header := range [][]string{nil, {"Authorization", basic(":anything")}, {"Authorization", "Bearer x"}} {
		equal(t, "body", post(h, ask802, header...).Body.String(), answer802)
	}
}

func TestNoProjectsIsNobodyAdmitted(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: chaingql.StaticProjects(nil)})
	equal(t, "status", post(h, ask802).Code, 401)
}

func TestMistakesInStaticProjectsPanicInNew(t *testing.T) {
	for want, projects := range map[string]chaingql.StaticProjects{
		`chaingql: StaticProjects: two projects are called "demo" but for case`:    {"Demo": {}, "dEmo": {}},
		`chaingql: StaticProjects: project "demo" requires a secret but has none`:  {"demo": {RequireSecret: true}},
		`chaingql: StaticProjects: two projects are called "äpfel" but for case`:   {"Äpfel": {}, "äpfel": {}},
		`chaingql: StaticProjects: project "other" requires a secret but has none`: {"demo": {}, "other": {RequireSecret: true}},
		`<nil>`: {"demo": {Secret: "x", RequireSecret: true}, "other": {}},
	} {
		func() {
			defer func() {
				if got := recover(); got != want && !(got == nil && want == "<nil>") {
					t.Errorf("panic %v, want %s", got, want)
				}
			}()
			h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: projects})
			_ = h
		}()
		if _, err := projects.Authorize(context.Background(), chaingql.Credentials{Project: "unknown"}); err == nil || want != "<nil>" && err.Error() != want {
			t.Errorf("Authorize: %v, want %s", err, want)
		}
	}
}

func TestStaticProjectsAreCopied(t *testing.T) {
	projects := chaingql.StaticProjects{"demo": {}}
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projects})
	delete(projects, "demo")
	projects["late"] = chaingql.Project{}
	equal(t, "status", post(h, ask802).Code, 200)
	equal(t, "status of a late one", do(h, "POST", "/late/graphql", ask802, "Content-Type", "application/json").Code, 401)
}

type tenantKey struct{}

func TestAuthorizersContextReachesTheBackend(t *testing.T) {
	var request *http.Request
	backend := altered{Backend: memchain.New(), balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
		n, _ := ctx.Value(tenantKey{}).(int64)
		return big.NewInt(n), nil
	}}
	h, _ := newHandler(t, backend, chaingql.Options{Authorizer: authorizer(
		func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
			request = c.Request
			if c.Secret != "42" || !c.HasSecret {
				return ctx, nil
			}
			return context.WithValue(ctx, tenantKey{}, int64(42)), nil
		})})
	equal(t, "body", post(h, askBalance, "Authorization", basic(":42"), "X-Own", "yes").Body.String(), balanceAnswer("42"))
	equal(t, "header that the Authorizer sees", request.Header.Get("X-Own"), "yes")
	equal(t, "body without", post(h, askBalance).Body.String(), balanceAnswer("0"))
}
