package chaingql_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

func basic(userinfo string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(userinfo))
}

func TestProjectComesFromTheRequestPath(t *testing.T) {
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
		"/api/v1/demo/query/now":     "demo", // from the wildcard, not from its position
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
		seen = "Authorizer not called"
		w := do(mux, "POST", path, request802, "Content-Type", "application/json")
		equal(t, "status of "+path, w.Code, 200)
		equal(t, "project of "+path, seen, want)
	}
}

func TestStaticProjectsCheckTheSecretInBasicCredentials(t *testing.T) {
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
		{"nothing after the scheme", closed, []string{"Basic"}, false},
		{"two headers", closed, []string{basic(":r:ght"), basic(":r:ght")}, false},
		{"other scheme", closed, []string{"Bearer r:ght"}, false},
		{"bare secret", closed, []string{"r:ght"}, false},
		{"none needed", open, nil, true},
		{"empty, project without secret", open, []string{basic(":")}, true},
		{"one, project without secret", open, []string{basic(":x")}, false},
		{"bad base64, project without secret", open, []string{"Basic ***"}, false},
		{"other scheme, project without secret", open, []string{"Bearer x"}, true},
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
			w := do(mounted(h), "POST", "/"+c.project+"/graphql", request802, header...)
			if c.ok {
				equal(t, "status", w.Code, 200)
				equal(t, "body", w.Body.String(), response802)
				return
			}
			// The response is the same for every reason.
			equal(t, "status", w.Code, 401)
			equal(t, "body", w.Body.String(), refusalBody("Unauthorized access", "UNAUTHENTICATED"))
			equal(t, "challenge", w.Header().Get("WWW-Authenticate"), `Basic realm="chaingql", charset="UTF-8"`)
		})
	}
}

func TestEveryProjectIsOpenWithoutAnAuthorizer(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for _, header := range [][]string{nil, {"Authorization", basic(":anything")}, {"Authorization", "Bearer x"}} {
		equal(t, "body", post(h, request802, header...).Body.String(), response802)
	}
}

func TestEmptyStaticProjectsAdmitNobody(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: chaingql.StaticProjects(nil)})
	equal(t, "status", post(h, request802).Code, 401)
}

func TestInvalidStaticProjectsPanicInNew(t *testing.T) {
	for want, projects := range map[string]chaingql.StaticProjects{
		`chaingql: StaticProjects: two project ids differ only in case: "demo"`:   {"Demo": {}, "dEmo": {}},
		`chaingql: StaticProjects: project "demo" requires a secret but has none`: {"demo": {RequireSecret: true}},
		`chaingql: StaticProjects: two project ids differ only in case: "äpfel"`:  {"Äpfel": {}, "äpfel": {}},
		`chaingql: StaticProjects: project "other" requires a secret but has none`: {
			"demo": {}, "other": {RequireSecret: true},
		},
		`<nil>`: {"demo": {Secret: "x", RequireSecret: true}, "other": {}},
	} {
		func() {
			defer func() {
				if got := recover(); got != want && !(got == nil && want == "<nil>") {
					t.Errorf("New panicked with %v, want %s", got, want)
				}
			}()
			h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: projects})
			_ = h
		}()
		_, project, invalid := strings.Cut(want, `"`)
		project, _, _ = strings.Cut(project, `"`)
		_, err := projects.Authorize(context.Background(), chaingql.Credentials{Project: project})
		if err == nil || invalid && err.Error() != want {
			t.Errorf("Authorize for project %q returned %v, want %s", project, err, want)
		}
	}
}

// A host's Authorizer may call StaticProjects.Authorize for each request.
func TestStaticProjectsHashOneSecretPerCall(t *testing.T) {
	projects := chaingql.StaticProjects{"Demo": {Secret: "s3cret"}}
	for i := range 10_000 {
		projects[fmt.Sprint("project", i)] = chaingql.Project{Secret: "s3cret"}
	}
	for project, want := range map[string]error{"project77": nil, "demo": nil, "unknown": chaingql.ErrUnauthorized} {
		c := chaingql.Credentials{Project: project, Secret: "s3cret", HasSecret: true}
		var err error
		allocations := testing.AllocsPerRun(10, func() { _, err = projects.Authorize(t.Context(), c) })
		if !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", project, err, want)
		}
		if allocations > 5 { // a map of all digests needs more
			t.Errorf("%s: got %v allocations, want at most 5", project, allocations)
		}
	}
}

func TestStaticProjectsAreCopied(t *testing.T) {
	projects := chaingql.StaticProjects{"demo": {}}
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: projects})
	delete(projects, "demo")
	projects["late"] = chaingql.Project{}
	equal(t, "status", post(h, request802).Code, 200)
	late := do(h, "POST", "/late/graphql", request802, "Content-Type", "application/json")
	equal(t, "status for a project added after New", late.Code, 401)
}

type tenantKey struct{}

func TestAuthorizersContextReachesTheBackend(t *testing.T) {
	var request *http.Request
	backend := stubBackend{Backend: memchain.New(),
		balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
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
	w := post(h, askBalance, "Authorization", basic(":42"), "X-Own", "yes")
	equal(t, "body", w.Body.String(), balanceResponse("42"))
	equal(t, "header that the Authorizer sees", request.Header.Get("X-Own"), "yes")
	equal(t, "body without", post(h, askBalance).Body.String(), balanceResponse("0"))
}

// The duration of a refusal must not reveal its reason. The test only logs the durations, because they depend on the
// load of the machine. The logged t is Welch's t of a row against the first row. If it exceeds 4.5 in repeated runs,
// the durations reveal the reason.
func TestRefusalTimesAreLogged(t *testing.T) {
	tries := testkit.Sample(t, 100_000)
	if testing.Short() || raceEnabled { // the race detector would dominate the times
		tries = 1000
	}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: chaingql.StaticProjects{
		"demo": {Secret: "a secret of some length", RequireSecret: true},
	}})
	basic := func(secret string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(":"+secret)) }
	rows := []struct {
		what, project, header string
		took                  []float64
	}{
		{what: "unknown project", project: "nope", header: basic("a secret of some length")},
		{what: "unknown project, wrong secret", project: "nope", header: basic("b secret of some length")},
		{what: "wrong from the first letter", project: "demo", header: basic("b secret of some length")},
		{what: "wrong in the last letter", project: "demo", header: basic("a secret of some lengti")},
		{what: "missing", project: "demo"},
		{what: "missing, unknown project", project: "nope"},
	}
	for range tries / len(rows) {
		// The order is random. Otherwise a row could always profit from the CPU caches filled by the row before it.
		for _, i := range rand.Perm(len(rows)) {
			row := &rows[i]
			var header []string
			if row.header != "" {
				header = []string{"Authorization", row.header}
			}
			start := time.Now()
			w := do(h, "POST", "/"+row.project+"/graphql", "", header...)
			row.took = append(row.took, float64(time.Since(start)))
			if w.Code != 401 || w.Body.String() != refusalBody("Unauthorized access", "UNAUTHENTICATED") {
				t.Fatalf("%s: got status %d and body %s, want a refusal", row.what, w.Code, w.Body)
			}
		}
	}
	var first [3]float64
	for i, row := range rows {
		slices.Sort(row.took)
		middle := row.took[len(row.took)/20 : len(row.took)*19/20] // without garbage collection pauses
		mean, variance := moments(middle)
		at := [3]float64{mean, variance, float64(len(middle))}
		if i == 0 {
			first = at
		}
		welch := (at[0] - first[0]) / math.Sqrt(at[1]/at[2]+first[1]/first[2])
		t.Logf("%-30s median %5.0f ns, mean %6.1f ns, t %.1f", row.what, row.took[len(row.took)/2], mean, welch)
	}
}

func moments(xs []float64) (mean, variance float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		variance += (x - mean) * (x - mean) / float64(len(xs)-1)
	}
	return mean, variance
}
