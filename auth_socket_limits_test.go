package chaingql_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A socket keeps the headers of its handshake until the Authorizer decides.
func TestHandshakeWithTooLargeHeadersIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", 16<<10)
		keyed := chaingql.Options{Authorizer: chaingql.StaticProjects{"demo": {Secret: "s3cret"}}}
		secret := basic(":s3cret")
		var many []string
		for i := range 300 {
			many = append(many, fmt.Sprint("X-", i), "")
		}
		for _, row := range []struct {
			what    string
			options chaingql.Options
			header  []string
			want    int
		}{
			{"that no decision needs", chaingql.Options{}, []string{"Cookie", large}, 101},
			{"with a secret", keyed, []string{"Cookie", large, "Authorization", secret}, 101},
			{"of moderate size", keyed, []string{"Cookie", large[:14<<10]}, 101},
			{"that wait for connection_init", keyed, []string{"Cookie", large}, 431},
			{"that are many", keyed, many, 431},
		} {
			h, _ := newHandler(t, memchain.New(), row.options)
			_, res, _ := serve(t, h).open(t, "/demo/graphql", row.header...)
			equal(t, "status for headers "+row.what, res.StatusCode, row.want)
			if res.StatusCode == 431 {
				body, _ := io.ReadAll(res.Body)
				equal(t, "body", string(body),
					refusalBody("The headers of a handshake exceed the limit of 16384 bytes.", "LIMIT_EXCEEDED"))
			}
		}
	})
}

// net/http keeps the headers of an event stream's request as long as the stream is open.
func TestEventStreamWithTooLargeHeadersIsRefused(t *testing.T) {
	for _, media := range []string{"text/event-stream", "multipart/mixed;subscriptionSpec=1.0"} {
		for what, row := range map[string]struct{ headers, size, want int }{
			"a header of 12 KiB": {1, 12 << 10, 200}, "a header of 16 KiB": {1, 16 << 10, 431},
			"300 headers": {300, 0, 431},
		} {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{})
				headers := []string{"Accept", media}
				for i := range row.headers {
					headers = append(headers, fmt.Sprint("X-", i), strings.Repeat("x", row.size))
				}
				res := serve(t, mounted(h)).stream(t, allBlocks, headers...).res
				equal(t, "status with "+what+" for "+media, res.StatusCode, row.want)
			})
		}
	}
}

// net/http keeps the names of announced trailers, too.
func TestEventStreamWithManyTrailersIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{})
		n := serve(t, h)
		for trailers, want := range map[int]int{10: 200, 300: 431} {
			ask, err := http.NewRequest("POST", "http://api.example/demo/graphql",
				io.MultiReader(strings.NewReader(`{"query":"subscription{blocks{seq_no}}"}`)))
			if err != nil {
				t.Fatal(err)
			}
			ask.Header.Set("Content-Type", "application/json")
			ask.Header.Set("Accept", "text/event-stream")
			ask.Trailer = http.Header{}
			for i := range trailers {
				ask.Trailer[fmt.Sprint("X-", i)] = nil
			}
			res, err := n.client().Do(ask)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprintf("status with %d trailers", trailers), res.StatusCode, want)
			_ = res.Body.Close()
		}
	})
}

// A heldAuthorizer admits everyone when release is closed.
type heldAuthorizer struct {
	calls   atomic.Int32
	release chan struct{}
}

func (a *heldAuthorizer) Authorize(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
	a.calls.Add(1)
	<-a.release
	return ctx, nil
}

// All clients may reconnect at once, so their calls of Authorize wait before they are refused.
func TestConcurrentAuthorizeCallsOfSocketsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, sockets = 3, 8
		for _, wait := range []time.Duration{time.Second, 6 * time.Second} {
			a := &heldAuthorizer{release: make(chan struct{})}
			h, _ := newHandler(t, memchain.New(), chaingql.Options{
				Hooks:      chaingql.Hooks{AccessDenied: func(context.Context, chaingql.Denial) { t.Error("denied") }},
				Authorizer: a, Limits: chaingql.Limits{Requests: most, BackendTimeout: 5 * time.Second},
			})
			n := serve(t, h)
			var all []*socket
			for range sockets {
				s := n.socket(t)
				s.send(initWith("{}"))
				all = append(all, s)
			}
			time.Sleep(wait)
			equal(t, "calls at once", a.calls.Load(), most)
			close(a.release)
			admitted, refused := 0, 0
			for _, s := range all {
				switch got := fmt.Sprint(s.receive()); got {
				case fmt.Sprint([]string{ack, ka}):
					admitted++
				case fmt.Sprint([]string{`{"type":"connection_error","id":null,"payload":{"message":` +
					`"Too many requests at once.","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`, "CLOSE 1013"}):
					refused++
				default:
					t.Errorf("a socket received %s", got)
				}
			}
			if wait < 5*time.Second {
				equal(t, "sockets admitted after a short wait", admitted, sockets)
			} else {
				equal(t, "sockets refused after a long wait", refused, sockets-most)
			}
		}
	})
}
