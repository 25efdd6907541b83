package chaingql_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A rateLimiter is an Authorizer that contains the number of remaining requests of each project.
type rateLimiter map[string]int

func (m rateLimiter) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if m[c.Project]--; m[c.Project] < 0 {
		return nil, fmt.Errorf("rate limiter: %w", chaingql.RateLimitError{RetryAfter: 1500 * time.Millisecond})
	}
	return ctx, nil
}

func TestRateLimitedRequestReceivesStatus429(t *testing.T) {
	h, log := newHandler(t, memchain.New(), chaingql.Options{Authorizer: rateLimiter{"demo": 2, "other": 1}})
	for range 2 {
		equal(t, "status", post(h, `{"query":"{__typename}"}`).Code, 200)
	}
	w := post(h, `{"query":"{__typename}"}`)
	equal(t, "status", w.Code, 429)
	equal(t, "retry", w.Header().Get("Retry-After"), "2")
	equal(t, "type", w.Header().Get("Content-Type"), "application/json; charset=utf-8")
	equal(t, "body", w.Body.String(), refusalBody("Too many requests.", "RATE_LIMITED"))
	equal(t, "another project", do(h, "GET", "/other/graphql?query={__typename}", "").Code, 200)
	if strings.Contains(log.String(), "internal error") {
		t.Errorf("an internal error was logged: %s", log)
	}
}

func TestRateLimitedSocketIsClosedWithARetryableCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: rateLimiter{"demo": 1}})
		n := serve(t, h)
		first := n.socket(t)
		first.send(initWith("null"))
		first.expect("admitted", ack, ka)
		second := n.socket(t)
		second.send(initWith("null"))
		second.expect("limited",
			`{"type":"connection_error","id":null,"payload":{"message":"Too many requests.",`+
				`"extensions":{"code":"RATE_LIMITED"}}}`, "CLOSE 1013")
		_, res, err := n.open(t, "/demo/graphql", "Authorization", "Basic Ong=")
		if err == nil || res.StatusCode != 429 || res.Header.Get("Retry-After") != "2" {
			t.Errorf("the response to a handshake with a secret is %v, %v, want status 429", res, err)
		}
	})
}

func TestRetryAfterIsInWholeSeconds(t *testing.T) {
	for after, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", 1: "1",
		time.Second: "1", time.Second + 1: "2", time.Hour: "3600", math.MaxInt64: "2147483647",
	} {
		for _, err := range []error{
			chaingql.RateLimitError{RetryAfter: after},
			&chaingql.RateLimitError{RetryAfter: after},
		} {
			limited := authorizer(func(context.Context, chaingql.Credentials) (context.Context, error) {
				return nil, err
			})
			h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: limited})
			w := post(h, `{"query":"{__typename}"}`)
			equal(t, "status", w.Code, 429)
			equal(t, "retry", w.Header().Get("Retry-After"), want)
		}
	}
}
