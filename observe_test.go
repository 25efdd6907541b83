package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// newDenyingHandler returns a Handler, its log at debug level, and the denials that it reports.
func newDenyingHandler(
	t *testing.T, auth chaingql.Authorizer,
) (*chaingql.Handler, *testkit.Buffer, *[]chaingql.Denial) {
	log, denials := &testkit.Buffer{}, &[]chaingql.Denial{}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Authorizer: auth,
		Logger:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Hooks: chaingql.Hooks{AccessDenied: func(_ context.Context, d chaingql.Denial) {
			*denials = append(*denials, d)
		}},
	})
	return h, log, denials
}

var shopOnly = chaingql.StaticProjects{"shop": {Secret: "s3cret", RequireSecret: true}}

func TestDenialShowsTheProjectOfAWronglyMountedHandler(t *testing.T) {
	h, log, denials := newDenyingHandler(t, shopOnly)
	mux := http.NewServeMux()
	mux.Handle("/api/graphql", h)
	w := do(mux, "POST", "/api/graphql", `{"query":"{info{version}}"}`,
		"Content-Type", "application/json", "Authorization", basic(":s3cret"))
	equal(t, "status", w.Code, http.StatusUnauthorized)
	equal(t, "denials", fmt.Sprint(*denials),
		"[{api /api/graphql 192.0.2.1:1234 UNAUTHENTICATED chaingql: unauthorized access: unknown project}]")
	line := `level=DEBUG msg="chaingql: access denied" project=api path=/api/graphql remote=192.0.2.1:1234 ` +
		`code=UNAUTHENTICATED error="chaingql: unauthorized access: unknown project"`
	if strings.Count(log.String(), line) != 1 {
		t.Errorf("the log must contain %s once:\n%s", line, log)
	}
}

func TestDenialsAreReportedWithoutSecrets(t *testing.T) {
	const secret = "hunter2"
	over := func(protocol, payload string, header ...string) func(*testing.T, *network) {
		return func(t *testing.T, n *network) {
			s, _, err := n.openWith(t, protocol, "/demo/graphql?token="+secret, header...)
			if err == nil {
				s.send(initWith(payload))
				s.receive()
			}
		}
	}
	request := func(method, target string, header ...string) func(*testing.T, *network) {
		return func(t *testing.T, n *network) {
			r, err := http.NewRequest(method, "http://api.example"+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(header); i += 2 {
				r.Header.Add(header[i], header[i+1])
			}
			res, err := n.client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
		}
	}
	const unauthorized, limited, tooLarge, origin = "UNAUTHENTICATED", "RATE_LIMITED", "LIMIT_EXCEEDED", "BAD_REQUEST"
	bearerToken := "Bearer " + secret
	for what, row := range map[string]struct {
		send func(*testing.T, *network)
		code string
	}{
		"GET": {
			request("GET", "/demo/graphql?query={info{version}}&token="+secret,
				"Authorization", basic(":"+secret)), unauthorized,
		},
		"POST": {
			request("POST", "/demo/graphql?token="+secret, "Authorization", bearerToken), unauthorized,
		},
		"malformed": {request("GET", "/demo/graphql", "Authorization", "Basic "+secret), unauthorized},
		"user name": {
			request("GET", "/demo/graphql", "Authorization", basic(secret+":"+secret)), unauthorized,
		},
		"two headers": {
			request("GET", "/demo/graphql", "Authorization", secret, "Authorization", secret), unauthorized,
		},
		"rate limited": {
			request("GET", "/demo/graphql", "Limit", "1", "Authorization", basic(":"+secret)), limited,
		},
		"handshake":            {over("graphql-ws", `{}`, "Authorization", basic(":"+secret)), unauthorized},
		"handshake, malformed": {over("graphql-ws", `{}`, "Authorization", "Basic "+secret), unauthorized},
		"handshake, limited":   {over("graphql-ws", `{}`, "Limit", "1", "Authorization", basic(":"+secret)), limited},
		"handshake, origin": {
			over("graphql-ws", `{}`, "Origin", "https://evil.example", "Authorization", basic(":"+secret)), origin,
		},
		"accessKey":         {over("graphql-ws", `{"accessKey":"`+secret+`"}`), unauthorized},
		"accessKey, modern": {over("graphql-transport-ws", `{"accessKey":"`+secret+`"}`), unauthorized},
		"init, Basic":       {over("graphql-ws", `{"Authorization":"`+basic(":"+secret)+`"}`), unauthorized},
		"init, malformed":   {over("graphql-transport-ws", `{"Authorization":"Basic `+secret+`"}`), unauthorized},
		"init, bearer":      {over("graphql-ws", `{"Authorization":"`+bearerToken+`"}`), unauthorized},
		"init, twice a key": {over("graphql-ws", `{"a":"`+secret+`","a":"`+secret+`"}`), unauthorized},
		"init, limited":     {over("graphql-transport-ws", `{"accessKey":"`+secret+`"}`, "Limit", "1"), limited},
		"init, too large":   {over("graphql-ws", `{"accessKey":"`+strings.Repeat(secret, 2000)+`"}`), tooLarge},
		"start without init": {func(t *testing.T, n *network) {
			s := n.socket(t, "X", secret)
			s.send(startVersion)
			s.receive()
		}, unauthorized},
		"an event stream by GET": {
			request("GET", "/demo/graphql?query=subscription{blocks{id}}&k="+secret,
				"Accept", "text/event-stream"), unauthorized,
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authorize := authorizer(func(_ context.Context, c chaingql.Credentials) (context.Context, error) {
					if c.Request.Header.Get("Limit") != "" {
						return nil, chaingql.RateLimitError{RetryAfter: time.Second}
					}
					return nil, chaingql.ErrUnauthorized
				})
				h, log, denials := newDenyingHandler(t, authorize)
				row.send(t, serve(t, mounted(h)))
				synctest.Wait()
				if len(*denials) != 1 {
					t.Fatalf("AccessDenied received %v, want one denial", *denials)
				}
				d := (*denials)[0]
				equal(t, "denial", fmt.Sprint(d.Project, " ", d.Path, " ", d.Code), "demo /demo/graphql "+row.code)
				if d.Remote == "" {
					t.Error("the denial lacks the client's address")
				}
				const denied = `msg="chaingql: access denied" project=demo path=/demo/graphql remote=`
				if n := strings.Count(log.String(), denied); n != 1 {
					t.Errorf("the log has %d lines about the denial, want 1:\n%s", n, log)
				}
				for _, part := range []string{secret, basic(":" + secret)[len("Basic "):], "Limit"} {
					if strings.Contains(log.String(), part) || strings.Contains(fmt.Sprint(d), part) {
						t.Errorf("the denial or the log contains %s: %v\n%s", part, d, log)
					}
				}
			})
		})
	}
}

// Clients receive the same response for all reasons.
func TestDenialErrorStatesTheReason(t *testing.T) {
	for what, row := range map[string]struct{ project, header, want string }{
		"unknown project":       {"nope", "", "unknown project"},
		"its secret":            {"nope", basic(":s3cret"), "unknown project"},
		"no secret":             {"shop", "", "no secret"},
		"wrong secret":          {"shop", basic(":secret"), "wrong secret"},
		"open project":          {"demo", basic(":s3cret"), "a secret for a project that has none"},
		"optional secret":       {"both", basic(":secret"), "wrong secret"},
		"malformed credentials": {"shop", "Basic s3cret", "malformed Basic credentials"},
	} {
		t.Run(what, func(t *testing.T) {
			h, log, denials := newDenyingHandler(t, chaingql.StaticProjects{
				"shop": {Secret: "s3cret", RequireSecret: true}, "both": {Secret: "s3cret"}, "demo": {},
			})
			var header []string
			if row.header != "" {
				header = []string{"Authorization", row.header}
			}
			w := do(h, "GET", "/"+row.project+"/graphql?query={info{version}}", "", header...)
			equal(t, "status", w.Code, http.StatusUnauthorized)
			equal(t, "body", w.Body.String(), refusalBody("Unauthorized access", "UNAUTHENTICATED"))
			if len(*denials) != 1 {
				t.Fatalf("AccessDenied received %v, want one denial", *denials)
			}
			err := (*denials)[0].Err
			equal(t, "reason", fmt.Sprint(err), "chaingql: unauthorized access: "+row.want)
			if !errors.Is(err, chaingql.ErrUnauthorized) {
				t.Error("the reason does not wrap ErrUnauthorized")
			}
			line := `code=UNAUTHENTICATED error="chaingql: unauthorized access: ` + row.want + `"`
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log lacks the reason: %s", log)
			}
		})
	}
}

func TestAdmittedClientsAndAuthorizerFailuresAreNotDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authorize := authorizer(func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
			if c.Secret == "fail" {
				return nil, errors.New("database is down")
			}
			return ctx, nil
		})
		h, log, denials := newDenyingHandler(t, authorize)
		n := serve(t, mounted(h))
		query(h, "{info{version}}", nil)
		post(h, `{"query":"{nope}"}`)
		post(h, `{"query":"{info{version}}"}`, "Authorization", basic(":fail"))
		s := n.socket(t, "Authorization", basic(":right"))
		s.send(initWith(`{"accessKey":"right"}`))
		s.receive()
		s.send(initWith(`{"accessKey":"fail"}`))
		s.receive()
		if len(*denials) > 0 || strings.Contains(log.String(), "access denied") {
			t.Errorf("AccessDenied received %v, want no denials:\n%s", *denials, log)
		}
	})
}

func TestLongPathIsTruncatedInTheDenial(t *testing.T) {
	h, log, denials := newDenyingHandler(t, shopOnly)
	do(h, "GET", "/"+strings.Repeat("é", 240)+"/graphql", "")
	if len(*denials) != 1 || len((*denials)[0].Path) != 256 || len((*denials)[0].Project) != 256 ||
		len(log.String()) > 3000 {
		t.Errorf("path and project are not truncated: AccessDenied received %v, and the log has %d bytes",
			*denials, len(log.String()))
	}
}

func TestPanickingAccessDeniedHookIsOnlyLogged(t *testing.T) {
	h, log := newHandler(t, memchain.New(), chaingql.Options{Authorizer: shopOnly, Hooks: chaingql.Hooks{
		AccessDenied: func(context.Context, chaingql.Denial) { panic("boom") },
	}})
	equal(t, "status", post(h, `{"query":"{info{version}}"}`).Code, http.StatusUnauthorized)
	if !strings.Contains(log.String(), `hook=AccessDenied error="panic: boom"`) {
		t.Errorf("the log lacks the panic: %s", log)
	}
}
