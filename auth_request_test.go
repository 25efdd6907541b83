package chaingql_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestSocketKeepsNoHeadersAfterTheFirstDecision(t *testing.T) {
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
					s.say(initWith(`{"accessKey":"a"}`))
					s.hear()
				}
				equal(t, "decisions with headers", fmt.Sprint(got), fmt.Sprint(row.headers))
			})
		})
	}
}

func TestHandshakeWithALongURLIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{})
		n := serve(t, h)
		longest := "/demo/graphql?" + strings.Repeat("x", 8<<10-len("/demo/graphql?api.example"))
		if _, _, err := n.open(t, longest); err != nil {
			t.Errorf("the longest URL is refused: %v", err)
		}
		_, res, err := n.open(t, longest+"x")
		if err == nil {
			t.Fatal("a longer URL is accepted")
		}
		equal(t, "status", res.StatusCode, http.StatusRequestEntityTooLarge)
		body, _ := io.ReadAll(res.Body)
		equal(t, "body", string(body),
			refusalBody("Path, query and host of a handshake exceed the limit of 8192 bytes.", "LIMIT_EXCEEDED"))
	})
}
