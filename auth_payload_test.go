package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// refusals contains, for each protocol, how a socket is closed if its connection_init is refused.
var refusals = map[string]string{"graphql-ws": "CLOSE 1008", "graphql-transport-ws": "CLOSE 4403"}

// initOver opens a socket with protocol, sends connection_init with payload and returns the frames received.
func initOver(t *testing.T, h *chaingql.Handler, protocol, payload string, header ...string) (*socket, string) {
	t.Helper()
	s, _, err := serve(t, mounted(h)).openWith(t, protocol, "/demo/graphql", header...)
	if err != nil {
		t.Fatal(err)
	}
	s.send(initWith(payload))
	return s, strings.Join(s.receive(), " ")
}

func TestBearerTokenInConnectionInitIsAuthorized(t *testing.T) {
	const good, bad = `{"Authorization":"Bearer good"}`, `{"Authorization":"Bearer bad"}`
	for protocol, refused := range refusals {
		for _, row := range []struct {
			what, header, payload string
			admitted              bool
		}{
			{"in the payload", "", good, true},
			{"wrong in the payload", "", bad, false},
			{"none", "", `{}`, false},
			{"none, payload null", "", `null`, false},
			{"in the header", "Bearer good", `{}`, true},
			{"in the header, payload null", "Bearer good", `null`, true},
			{"in the header, wrong in the payload", "Bearer good", bad, false},
			{"wrong in the header, right in the payload", "Bearer bad", good, true},
			{"escaped", "", `{"Authorization":"Bearer \u0067ood"}`, true},
			{"not a string", "", `{"Authorization":{"Bearer":"good"}}`, false},
			{"twice", "", `{"Authorization":"Bearer good","Authorization":"Bearer good"}`, false},
		} {
			t.Run(protocol+"/"+row.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					demo := bearer{func(project, token string) bool { return project == "demo" && token == "good" }}
					h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: demo})

					var header []string
					if row.header != "" {
						header = []string{"Authorization", row.header}
					}
					s, got := initOver(t, h, protocol, row.payload, header...)
					if row.admitted != strings.HasPrefix(got, ack) || row.admitted == strings.Contains(got, refused) {
						t.Fatalf("received %s, want admission: %v", got, row.admitted)
					}
					if row.admitted {
						start := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[protocol]
						s.send(strings.Replace(startVersion, "start", start, 1))
						got := strings.Join(s.receive(), " ")
						if !strings.Contains(got, `"version":"`+chaingql.Version) {
							t.Errorf("a query received %s, want the version", got)
						}
					}
				})
			})
		}
	}
}

// A recordingAuthorizer admits every client and records the credentials.
type recordingAuthorizer struct{ all []chaingql.Credentials }

func (s *recordingAuthorizer) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	s.all = append(s.all, c)
	return ctx, nil
}

func TestAuthorizerReceivesThePayloadOfEachConnectionInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := &recordingAuthorizer{}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: auth})
		query(h, "{info{version}}", nil)
		s := serve(t, h).socket(t, "Authorization", basic(":a"))
		for _, payload := range []string{
			`{"token": "one"}`, `{}`, `null`, `5`, `{"accessKey":"b","n":1e3}`, ` { "token":"two" } `,
		} {
			s.send(initWith(payload))
			s.receive()
		}
		var got []string
		for _, c := range auth.all {
			got = append(got, fmt.Sprintf("%v %s %s", c.Payload == nil, c.Secret, c.Payload))
		}
		want := []string{
			"true  ", // over HTTP
			"true a ",
			`false a {"token": "one"}`, // unchanged, with the secret of the handshake
			`false b {"accessKey":"b","n":1e3}`,
			`false a { "token":"two" }`,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the Authorizer received\n%s\nwant\n%s", lines(got), lines(want))
		}
		for _, c := range auth.all[2:] {
			for i := range c.Payload {
				c.Payload[i] = 'x' // an Authorizer may change the payload
			}
		}
		s.send(startVersion)
		s.expect("a query", dataVersion, complete)
	})
}

func TestSecondConnectionInitIsAuthorizedByItsOwnPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notBad := bearer{func(_, token string) bool { return token != "bad" }}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: notBad})
		s, got := initOver(t, h, "graphql-ws", `{"Authorization":"Bearer one"}`)
		equal(t, "the first", got, ack+" "+ka)
		s.send(initWith(`{"Authorization":"Bearer two"}`))
		s.expect("another good one", ack)
		s.send(initWith(`{"Authorization":"Bearer bad"}`))
		s.expect("a bad one", unauthorizedError, "CLOSE 1008")
	})
	synctest.Test(t, func(t *testing.T) {
		anyToken := bearer{func(string, string) bool { return true }}
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: anyToken})
		s, got := initOver(t, h, "graphql-ws", `{"Authorization":"Bearer one"}`)
		equal(t, "the first", got, ack+" "+ka)
		s.send(initWith(`{}`))
		s.expect("one without a token", unauthorizedError, "CLOSE 1008")
	})
}

func TestInvalidConnectionInitPayloadDoesNotReachTheAuthorizer(t *testing.T) {
	deep := func(levels int) string {
		return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
	}
	sized := func(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes-len(`{"a":""}`)) + `"}` }
	for protocol, refused := range refusals {
		over := map[string]string{
			"graphql-ws":           `exceeds the limit of 8192 bytes.","extensions":{"code":"LIMIT_EXCEEDED"}`,
			"graphql-transport-ws": "CLOSE 4500",
		}[protocol]
		for _, row := range []struct{ what, payload, want string }{
			{"a string", `"Bearer good"`, "none"},
			{"a list", `["Bearer good"]`, "none"},
			{"a number", `1e400`, "none"},
			{"of the maximum depth", deep(20), "shown"},
			{"deeper", deep(21), refused},
			{"of the maximum size", sized(8 << 10), "shown"},
			{"larger", sized(8<<10 + 1), over},
			{"larger, of empty lists", `{"a":[` + strings.Repeat("[],", 3000) + `[]]}`, over},
			{"a key twice", `{"a":1,"a":1}`, refused},
		} {
			t.Run(protocol+"/"+row.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					auth := &recordingAuthorizer{}
					h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: auth})
					_, got := initOver(t, h, protocol, row.payload)
					switch {
					case len(auth.all) == 0:
					case auth.all[0].Payload == nil:
						got = "none"
					case string(auth.all[0].Payload) == row.payload && json.Valid(auth.all[0].Payload):
						got = "shown"
					}
					// graphql-transport-ws itself refuses a payload that is not an object.
					closed := row.want == "none" && strings.Contains(got, "CLOSE 4400")
					if !strings.Contains(got, row.want) && !closed {
						t.Errorf("the result is %s, want %s", got, row.want)
					}
				})
			})
		}
	}
}
