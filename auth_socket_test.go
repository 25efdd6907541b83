package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func initWith(payload string) string { return `{"type":"connection_init","payload":` + payload + `}` }

func TestSecretOnASocketComesInTheHeaderOrInInit(t *testing.T) {
	right, wrong := basic(":right"), basic(":wrong")
	in := []string{ack, ka, dataVersion, complete}
	out := []string{refuse, "CLOSE 1008"}
	for _, c := range []struct {
		what, path, header, init string
		want                     []string // nil: refused at the handshake
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
		{"Authorization before accessKey", "/closed/graphql", "", `{"Authorization":"` + wrong + `","accessKey":"right"}`, out},
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
					s.say(initWith(c.init))
				}
				first := s.hear()
				if len(c.want) > 2 || c.init == "" { // let in, or not yet asked
					s.say(startVersion)
				}
				got := append(first, s.hear()...)
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("heard\n%s\nwant\n%s", lines(got), lines(c.want))
				}
			})
		})
	}
}

func TestContextOfTheAuthorizerServesTheSocket(t *testing.T) {
	for what, header := range map[string]string{"by the header": basic(":41"), "by init": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := altered{Backend: memchain.New(), balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
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
					pairs, want = []string{"Authorization", header}, "84" // both in one context
				}
				s := serve(t, h).socket(t, pairs...)
				time.Sleep(time.Second) // the handshake's request is long over
				s.say(initWith(`{"accessKey":"41"}`))
				s.expect("init", ack, ka)
				s.say(`{"id":"1","type":"start","payload":` + askBalance + `}`)
				s.expect("query", `{"type":"data","id":"1","payload":`+balanceAnswer(want)+`}`, complete)
			})
		})
	}
}

func TestExpiryOfTheCredentialClosesTheSocketRetriably(t *testing.T) {
	for what, header := range map[string]string{"shown in the header": basic(":x"), "shown in init": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{KeepAlive: -1, Authorizer: authorizer(
					func(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
						if _, told := ctx.Deadline(); told || !c.HasSecret {
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
				s.say(initWith(map[bool]string{true: `{"accessKey":"x"}`, false: `null`}[header == ""]))
				s.expect("init", ack)
				s.say(`{"id":"1","type":"start","payload":{"query":"subscription{blocks{id}}"}}`)
				time.Sleep(time.Minute - 1)
				s.expect("before the expiry")
				time.Sleep(time.Nanosecond)
				got := s.hear()
				if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"connection_error"`) || strings.Contains(got[0], "Unauth") || got[1] != "CLOSE 1001" {
					t.Errorf("heard %s", got)
				}
			})
		})
	}
}

func TestTroubleOfTheAuthorizerLetsNobodyIn(t *testing.T) {
	for what, authorize := range map[string]authorizer{
		"error":   func(context.Context, chaingql.Credentials) (context.Context, error) { return nil, errors.New("s3cret") },
		"panic":   func(context.Context, chaingql.Credentials) (context.Context, error) { panic("s3cret") },
		"nothing": func(context.Context, chaingql.Credentials) (context.Context, error) { return nil, nil },
	} {
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
				s.say(startVersion)
				got := s.hear()
				if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"connection_error"`) || got[1] != "CLOSE 1011" {
					t.Fatalf("heard %s", got)
				}
				masked(t, got[0], log)
			})
		})
	}
}
