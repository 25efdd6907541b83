package chaingql_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const page = "https://page.example"

func TestAllowedOriginsApplyToCORSAndSockets(t *testing.T) {
	list := []string{"https://other.example", "HTTPS://page.example", "http://local:8080"}
	for _, c := range []struct {
		what, origin string
		allowed      []string
		cors         string // Access-Control-Allow-Origin
		socket       bool
	}{
		{"nil, none", "", nil, "", true},
		{"nil, same host", "https://api.example", nil, "", true},
		{"nil, same host in upper case", "https://API.example", nil, "", true},
		{"nil, foreign", page, nil, "", false},
		{"nil, same host on another port", "https://api.example:8443", nil, "", false},
		{"nil, host as a suffix", "https://evil-api.example", nil, "", false},
		{"nil, opaque", "null", nil, "", false},
		{"nil, malformed", "://", nil, "", false},
		{"list, none", "", list, "", true},
		{"list, listed", page, list, page, true},
		{"list, with its port", "http://local:8080", list, "http://local:8080", true},
		{"list, another port", "http://local:8081", list, "", false},
		{"list, another scheme", "http://page.example", list, "", false},
		{"list, foreign", "https://evil.example", list, "", false},
		{"list, longer", page + ".evil.example", list, "", false},
		{"list, same host", "https://api.example", list, "", true},
		{"list, opaque", "null", list, "", false},
		{"star, none", "", []string{"*"}, "*", true},
		{"star, any", "https://evil.example", []string{"*"}, "*", true},
		{"star, opaque", "null", []string{"*"}, "*", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, referenceChain(t), chaingql.Options{
					AllowedOrigins: c.allowed, Authorizer: chaingql.StaticProjects{"demo": {}},
				})
				var header []string
				if c.origin != "" {
					header = []string{"Origin", c.origin}
				}
				typed := append([]string{"Content-Type", "application/json"}, header...)
				// Every response has CORS headers. The server refuses no request because of them; browsers enforce
				// them.
				for _, ask := range []struct {
					method, target, body string
					header               []string
					status               int
				}{
					{"POST", "/demo/graphql", request802, typed, 200},
					{"POST", "/demo/graphql", `{`, typed, 400},
					{"POST", "/nobody/graphql", request802, typed, 401},
					{"PUT", "/demo/graphql", "", header, 405},
					{"GET", "/demo/graphql", "", append([]string{"Accept", "text/html"}, header...), 406},
					{"POST", "/demo/graphql", request802, header, 415},
					{"OPTIONS", "/demo/graphql", "", header, 204},
				} {
					w := do(h, ask.method, ask.target, ask.body, ask.header...)
					equal(t, "status of "+ask.method, w.Code, ask.status)
					equal(t, "Access-Control-Allow-Origin", w.Header().Get("Access-Control-Allow-Origin"), c.cors)
					equal(t, "Vary", w.Header().Get("Vary"), "Authorization, Accept, Origin")
					equal(t, "credentials", len(w.Header().Values("Access-Control-Allow-Credentials")), 0)
				}
				s, res, err := serve(t, h).open(t, "/demo/graphql", header...)
				if (err == nil) != c.socket {
					t.Fatalf("the handshake returned %v, %v; want a socket: %v", res, err, c.socket)
				}
				if err != nil {
					body, _ := io.ReadAll(res.Body)
					equal(t, "status", res.StatusCode, 403)
					equal(t, "body", string(body),
						refusalBody("Pages of this origin are not allowed to open sockets.", "BAD_REQUEST"))
					equal(t, "Access-Control-Allow-Origin", res.Header.Get("Access-Control-Allow-Origin"), c.cors)
					return
				}
				s.send(startVersion)
				s.expect("query", dataVersion, complete)
			})
		})
	}
}

func TestPreflightAllowsHeadersThatClientsSend(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{AllowedOrigins: []string{page}})
	for _, c := range []struct{ what, origin, method, headers, allowed string }{
		{
			"from the recording", page, "POST",
			"authorization,content-type,tonclient-core-version,x-evernode-expected-account-boc-version",
			"authorization, content-type, tonclient-core-version, x-evernode-expected-account-boc-version",
		},
		{
			"in any case", page, "POST",
			"Content-Type, TonClient-Core-Version,Last-Event-ID",
			"content-type, tonclient-core-version, last-event-id",
		},
		{
			"of a trace", page, "POST",
			"content-type,traceparent,tracestate,baggage", "content-type, traceparent, tracestate, baggage",
		},
		{"some refused", page, "POST", "content-type, x-forwarded-for, cookie, tonclient", "content-type"},
		{"all refused", page, "GET", "x-other", ""},
		{"none asked for", page, "GET", "", ""},
		{"too many", page, "POST", strings.Repeat("content-type,", 400), ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := do(h, "OPTIONS", "/demo/graphql", "",
				"Origin", c.origin, "Access-Control-Request-Method", c.method,
				"Access-Control-Request-Headers", c.headers)
			equal(t, "status", w.Code, 204)
			equal(t, "origin", w.Header().Get("Access-Control-Allow-Origin"), page)
			equal(t, "methods", w.Header().Get("Access-Control-Allow-Methods"), "GET, HEAD, OPTIONS, POST, QUERY")
			equal(t, "headers", w.Header().Get("Access-Control-Allow-Headers"), c.allowed)
			equal(t, "Vary", strings.Join(w.Header().Values("Vary"), "; "),
				"Authorization, Accept, Origin, Access-Control-Request-Headers")
			equal(t, "credentials", w.Header().Get("Access-Control-Allow-Credentials"), "")
			equal(t, "body", w.Body.String(), "")
		})
	}
	for what, header := range map[string][]string{
		"an origin that is not allowed": {
			"Origin", "https://evil.example", "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "content-type",
		},
		"no origin": {"Access-Control-Request-Method", "POST"},
	} {
		w := do(h, "OPTIONS", "/demo/graphql", "", header...)
		allowed := w.Header().Get("Access-Control-Allow-Methods") +
			w.Header().Get("Access-Control-Allow-Headers") + w.Header().Get("Access-Control-Allow-Origin")
		if w.Code != 204 || allowed != "" {
			t.Errorf("%s: the status is %d, want 204 without CORS headers: %v", what, w.Code, w.Header())
		}
	}
}

func TestPagesOfOtherOriginsCanReadRetryAfter(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{AllowedOrigins: []string{page}})
	if err := h.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]string{page: "Retry-After", "https://evil.example": ""} {
		w := do(h, "POST", "/demo/graphql", askBalance, "Origin", origin, "Content-Type", "application/json")
		equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
		equal(t, "headers that "+origin+" may read", w.Header().Get("Access-Control-Expose-Headers"), want)
	}
}

func TestPreflightNeedsNoSecret(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{AllowedOrigins: []string{"*"},
		Authorizer: chaingql.StaticProjects{"demo": {Secret: "x", RequireSecret: true}}})
	w := do(h, "OPTIONS", "/demo/graphql", "", "Origin", page,
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
	equal(t, "headers", w.Header().Get("Access-Control-Allow-Headers"), "authorization")
}

func TestAllowedOriginsAreCopied(t *testing.T) {
	allowed := []string{page}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{AllowedOrigins: allowed})
	allowed[0] = "*"
	w := do(h, "OPTIONS", "/demo/graphql", "", "Origin", "https://evil.example")
	equal(t, "origin", w.Header().Get("Access-Control-Allow-Origin"), "")
}

func TestNewPanicsOnInvalidOrigin(t *testing.T) {
	for _, origin := range []string{
		"https://a.example/", "a.example", "https://", "https://a.example/path", "https://u@a.example", "",
	} {
		t.Run(origin, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("New accepted the origin")
				}
			}()
			origins := []string{"*", "http://a.example:8080", origin}
			chaingql.New(memchain.New(), &chaingql.Options{AllowedOrigins: origins})
		})
	}
}
