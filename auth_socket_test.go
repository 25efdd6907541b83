package chaingql_test

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func initWith(payload string) string { return `{"type":"connection_init","payload":` + payload + `}` }

func TestSocketAcceptsTheSecretInHeaderOrConnectionInit(t *testing.T) {
	right, wrong := basic(":right"), basic(":wrong")
	in := []string{ack, ka, dataVersion, complete}
	out := []string{unauthorizedError, "CLOSE 1008"}
	for _, c := range []struct {
		what, path, header, init string
		want                     []string // nil if the handshake is refused
	}{
		{"in the header", "/closed/graphql", right, `{}`, in},
		{"in the header, init without payload", "/closed/graphql", right, `null`, in},
		{"in the header, no init", "/closed/graphql", right, ``, in[2:]},
		{"in the header, wrong", "/closed/graphql", wrong, ``, nil},
		{"in the header, malformed", "/closed/graphql", "Basic ***", ``, nil},
		{"in the header, unknown project", "/nobody/graphql", right, ``, nil},
		{"in Authorization", "/closed/graphql", "", `{"Authorization":"` + right + `"}`, in},
		{"in Authorization, wrong", "/closed/graphql", "", `{"Authorization":"` + wrong + `"}`, out},
		{"in Authorization, malformed", "/closed/graphql", "", `{"Authorization":"Basic ***"}`, out},
		{"in Authorization, not a string", "/closed/graphql", "", `{"Authorization":5}`, out},
		{"in accessKey", "/closed/graphql", "", `{"accessKey":"right"}`, in},
		{"in accessKey, wrong", "/closed/graphql", "", `{"accessKey":"wrong"}`, out},
		{
			"Authorization before accessKey", "/closed/graphql", "",
			`{"Authorization":"` + wrong + `","accessKey":"right"}`, out,
		},
		{"in both", "/closed/graphql/", right, `{"Authorization":"` + right + `"}`, in},
		{"in both, wrong in init", "/closed/graphql", right, `{"accessKey":"wrong"}`, out},
		{"in both, wrong in the header", "/closed/graphql", wrong, `{"accessKey":"right"}`, nil},
		{"none", "/closed/graphql", "", `{}`, out},
		{"none, no payload", "/closed/graphql", "", `null`, out},
		{"none, no init", "/closed/graphql", "", ``, out},
		{"none, payload no object", "/closed/graphql", "", `"right"`, out},
		{"payload with a key twice", "/closed/graphql", "", `{"accessKey":"wrong","accessKey":"right"}`, out},
		{"unknown project", "/nobody/graphql", "", `{"accessKey":"right"}`, out},
		{"unknown project, no init", "/nobody/graphql", "", ``, out},
		{"none needed", "/open/graphql", "", `{}`, in},
		{"none needed, no init", "/open/graphql", "", ``, in[2:]},
		{"other scheme, none needed", "/open/graphql", "Bearer x", `{}`, in},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: chaingql.StaticProjects{
					"closed": {Secret: "right", RequireSecret: true}, "open": {},
				}})
				var header []string
				if c.header != "" {
					header = []string{"Authorization", c.header}
				}
				s, res, err := serve(t, mounted(h)).open(t, c.path, header...)
				if c.want == nil {
					if err == nil {
						t.Fatal("the handshake was accepted")
					}
					body, _ := io.ReadAll(res.Body)
					equal(t, "status", res.StatusCode, 401)
					equal(t, "body", string(body), refusalBody("Unauthorized access", "UNAUTHENTICATED"))
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.init != "" {
					s.send(initWith(c.init))
				}
				first := s.receive()
				if len(c.want) > 2 || c.init == "" { // admitted, or not decided yet
					s.send(startVersion)
				}
				got := append(first, s.receive()...)
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("received\n%s\nwant\n%s", lines(got), lines(c.want))
				}
			})
		})
	}
}

func TestSocketOperationsUseTheAuthorizersContext(t *testing.T) {
	for what, header := range map[string]string{"by the header": basic(":41"), "by init": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := stubBackend{Backend: memchain.New(),
					balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
						if err := ctx.Err(); err != nil {
							return nil, err
						}
						n, _ := ctx.Value(tenantKey{}).(int)
						return big.NewInt(int64(n)), nil
					}}
				asked := 0
				h, _ := newHandler(t, backend, chaingql.Options{Authorizer: authorizer(
					func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
						asked++
						before, _ := ctx.Value(tenantKey{}).(int)
						return context.WithValue(ctx, tenantKey{}, before+40+len(c.Secret)), nil
					})})
				var pairs []string
				want := "42"
				if header != "" {
					// The context of the second decision is derived from that of the first.
					pairs, want = []string{"Authorization", header}, "84"
				}
				s := serve(t, h).socket(t, pairs...)
				time.Sleep(time.Second) // the handshake's request has ended
				s.send(initWith(`{"accessKey":"41"}`))
				s.expect("init", ack, ka)
				s.send(`{"id":"1","type":"start","payload":` + askBalance + `}`)
				s.expect("query", `{"type":"data","id":"1","payload":`+balanceResponse(want)+`}`, complete)
			})
		})
	}
}

// Otherwise an Authorizer that hangs would keep the socket's slot and Shutdown waiting after the client has left.
func TestAuthorizersContextIsDoneWhenTheSocketEnds(t *testing.T) {
	for what, header := range map[string]string{"after a handshake with a secret": basic(":a"), "without": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hanging, ended := 0, 0
				h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: authorizer(
					func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
						if c.Payload == nil {
							return context.WithValue(ctx, tenantKey{}, 41), nil
						}
						hanging++
						<-ctx.Done()
						ended++
						return nil, ctx.Err()
					})})
				var headers []string
				if header != "" {
					headers = []string{"Authorization", header}
				}
				s := serve(t, h).socket(t, headers...)
				s.send(initWith(`{"token":"t"}`))
				synctest.Wait()
				_ = s.CloseNow()
				time.Sleep(time.Minute)
				synctest.Wait()
				equal(t, "calls of the Authorizer that have ended", fmt.Sprint(ended, " of ", hanging), "1 of 1")
			})
		})
	}
}

func TestExpiredCredentialsCloseTheSocketWithARetryableCode(t *testing.T) {
	for what, header := range map[string]string{"shown in the header": basic(":x"), "shown in init": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{KeepAliveInterval: -1, Authorizer: authorizer(
					func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
						if _, limited := ctx.Deadline(); limited || !c.HasSecret {
							return ctx, nil
						}
						ctx, cancel := context.WithTimeout(ctx, time.Minute)
						t.Cleanup(cancel)
						return ctx, nil
					})})
				var pairs []string
				if header != "" {
					pairs = []string{"Authorization", header}
				}
				s := serve(t, h).socket(t, pairs...)
				s.send(initWith(map[bool]string{true: `{"accessKey":"x"}`, false: `null`}[header == ""]))
				s.expect("init", ack)
				s.send(`{"id":"1","type":"start","payload":{"query":"subscription{blocks{id}}"}}`)
				time.Sleep(time.Minute - 1)
				s.expect("before the expiry")
				time.Sleep(time.Nanosecond)
				got := s.receive()
				const want = `{"type":"connection_error"`
				if len(got) != 2 || !strings.HasPrefix(got[0], want) || strings.Contains(got[0], "Unauth") ||
					got[1] != "CLOSE 1001" {
					t.Errorf("received %s, want connection_error and CLOSE 1001", got)
				}
			})
		})
	}
}

func TestSocketIsRefusedIfTheAuthorizerFails(t *testing.T) {
	for what, authorize := range failingAuthorizers {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, log := newHandler(t, memchain.New(), chaingql.Options{Authorizer: authorize})
				n := serve(t, h)
				_, res, err := n.open(t, "/demo/graphql", "Authorization", basic(":x"))
				if err == nil {
					t.Fatal("the handshake was accepted")
				}
				body, _ := io.ReadAll(res.Body)
				equal(t, "status", res.StatusCode, 500)
				masked(t, string(body), log)

				s := n.socket(t)
				s.send(startVersion)
				got := s.receive()
				if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"connection_error"`) || got[1] != "CLOSE 1011" {
					t.Fatalf("received %s, want connection_error and CLOSE 1011", got)
				}
				masked(t, got[0], log)
			})
		})
	}
}

func TestSocketDropsHeadersAfterTheFirstAuthorization(t *testing.T) {
	for _, row := range []struct {
		what    string
		header  []string
		headers []bool // whether each decision has the handshake's headers
	}{
		{"decided by connection_init", nil, []bool{true, false, false}},
		{"decided by the header", []string{"Authorization", basic(":a")}, []bool{true, false, false, false}},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []bool
				h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: authorizer(
					func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
						got = append(got, c.Request.Header != nil)
						r := c.Request
						equal(t, "request", fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Host, " ", r.RemoteAddr != ""),
							"GET /demo/graphql api.example true")
						return ctx, nil
					})})
				s := serve(t, h).socket(t, row.header...)
				for range 3 {
					s.send(initWith(`{"accessKey":"a"}`))
					s.receive()
				}
				equal(t, "decisions with headers", fmt.Sprint(got), fmt.Sprint(row.headers))
			})
		})
	}
}

func TestTooLongHandshakeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: anySecret{}})
		n := serve(t, h)
		const whole = "Path, query, host and secret of a handshake exceed the limit of 8192 bytes."
		query := "/demo/graphql?" + strings.Repeat("x", 8<<10-len("/demo/graphql?api.example"))
		path := "/" + strings.Repeat("x", 512-len("//graphqlapi.example")) + "/graphql"
		secret := strings.Repeat("x", 8<<10-len("/demo/graphqlapi.example"))
		for _, row := range []struct{ url, longer, secret, longerSecret, message string }{
			{query, query + "x", "", "", whole},
			{path, "/x" + path[1:], "", "", "Path and host exceed the limit of 512 bytes."},
			{"/demo/graphql", "/demo/graphql", secret, secret + "x", whole},
		} {
			if _, _, err := n.open(t, row.url, "Authorization", basic(":"+row.secret)); err != nil {
				t.Errorf("the longest handshake is refused: %v", err)
			}
			_, res, err := n.open(t, row.longer, "Authorization", basic(":"+row.longerSecret))
			if err == nil {
				t.Fatal("a longer handshake is accepted")
			}
			equal(t, "status", res.StatusCode, http.StatusRequestEntityTooLarge)
			body, _ := io.ReadAll(res.Body)
			equal(t, "body", string(body), refusalBody(row.message, "LIMIT_EXCEEDED"))
		}
	})
}
