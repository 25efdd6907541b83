package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A database that refuses connections, and one that answers too late, must look the same to clients.
func TestBackendOutageIsReportedAsServiceUnavailable(t *testing.T) {
	for name, wait := range map[string]time.Duration{"refused": 0, "timeout": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreakable()
				b.grow(t, 3)
				fail := func(ctx context.Context) error {
					select {
					case <-time.After(wait):
					case <-ctx.Done():
					}
					return fmt.Errorf("%w: secret: %w", chaingql.ErrUnavailable, errors.Join(ctx.Err()))
				}
				h, log := newHandler(t, stubBackend{Backend: b,
					balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) { return nil, fail(ctx) },
					blocks: func(ctx context.Context, _ chaingql.BlocksQuery) ([]chaingql.Block, error) {
						return nil, fail(ctx)
					},
				}, chaingql.Options{})
				n := serve(t, mounted(h))
				for _, body := range []string{askBalance, askBlocks, `{"query":"{info{lastBlockTime}}"}`} {
					w := post(h, body)
					got := w.Body.String()
					if code := parse(t, got).code(); w.Code != 503 || code != "SERVICE_UNAVAILABLE" ||
						w.Header().Get("Retry-After") == "" || strings.Contains(got, "secret") {
						t.Errorf("%s received status %d and %s, want 503 and SERVICE_UNAVAILABLE", body, w.Code, got)
					}
				}
				if !strings.Contains(log.String(), "secret") {
					t.Errorf("the log lacks the cause:\n%s", log)
				}
				got := n.askSocket(t, "graphql-ws", "start", "{blockchain{blocks(last:1){edges{cursor}}}}", nil)
				if !strings.Contains(got, "SERVICE_UNAVAILABLE") {
					t.Errorf("a socket received %s, want SERVICE_UNAVAILABLE", got)
				}
			})
		})
	}
}

func TestHostFieldMayReportAnOutageAfterBackendTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newQueryHandler(t, graphql.Fields{"late": &graphql.Field{Type: graphql.Int,
			Resolve: func(p graphql.ResolveParams) (any, error) {
				<-p.Context.Done()
				return nil, fmt.Errorf("no answer: %w", chaingql.ErrUnavailable)
			}}})
		equal(t, "code", parse(t, query(h, "{late}", nil)).code(), "SERVICE_UNAVAILABLE")
	})
}

func TestSubscriptionsEndIfTheSourceIsLostForOutageTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, _ := newHandler(t, b, chaingql.Options{OutageTimeout: 20 * time.Second, KeepAliveInterval: -1})
		n := serve(t, mounted(h))
		s := n.stream(t, `subscription{blocks{seq_no}}`)
		s.expect("a stream", ":")
		for range 5 { // short outages
			b.breakDown(errors.New("down"))
			time.Sleep(15 * time.Second)
			b.restore()
			time.Sleep(15 * time.Second)
		}
		b.grow(t, 1)
		s.expect("a stream after short outages", "event: next", "id: 04", `data: {"data":{"blocks":{"seq_no":4}}}`)
		b.breakDown(errors.New("down"))
		time.Sleep(19 * time.Second)
		s.expect("a stream during an outage")
		late := n.stream(t, `subscription{blocks{seq_no}}`, "Last-Event-ID", "04")
		late.expect("a stream that begins during the outage", ":")
		time.Sleep(2 * time.Second)
		end := streamEnd("The stream of blocks was interrupted.", "04")
		s.expect("a stream during a longer outage", end...)
		again := n.stream(t, `subscription{blocks{seq_no}}`, "Last-Event-ID", "04")
		again.expect("a stream that begins after the first ones have ended", ":")
		time.Sleep(18 * time.Second)
		again.expect("that stream before it ends")
		time.Sleep(3 * time.Second)
		again.expect("that stream after the time", end...)
		b.restore()
		resumed := n.stream(t, `subscription{blocks{seq_no}}`, "Last-Event-ID", "04")
		time.Sleep(15 * time.Second)
		b.grow(t, 1)
		resumed.expect("a stream after the outage",
			":", "event: next", "id: 05", `data: {"data":{"blocks":{"seq_no":5}}}`)
	})
}

func TestSubscriptionsWaitForTheSourceByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, _ := newHandler(t, b, chaingql.Options{KeepAliveInterval: -1})
		s := serve(t, mounted(h)).stream(t, `subscription{blocks{seq_no}}`)
		s.expect("a stream", ":")
		b.breakDown(errors.New("down"))
		time.Sleep(time.Hour)
		s.expect("a stream during an outage")
		b.restore()
		time.Sleep(chaingql.DefaultRetryInterval)
		b.grow(t, 1)
		s.expect("a stream after an outage", "event: next", "id: 04", `data: {"data":{"blocks":{"seq_no":4}}}`)
	})
}

func TestStreamContinuesAtOnceIfAQueryHasSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 3)
		h, _ := newHandler(t, b, chaingql.Options{KeepAliveInterval: -1, RetryInterval: time.Hour})
		s := serve(t, mounted(h)).stream(t, `subscription{blocks{seq_no}}`)
		s.expect("a stream", ":")
		b.breakDown(errors.New("down"))
		time.Sleep(2 * time.Hour)
		b.restore()
		b.grow(t, 1)
		s.expect("a stream before the next retry")
		post(h, askBalance)
		s.expect("a stream after a query", "event: next", "id: 04", `data: {"data":{"blocks":{"seq_no":4}}}`)
	})
}

// driveOutage makes a source fail until its subscriptions end, once with an error and once with a panic.
func driveOutage(t *testing.T, log *slog.Logger) {
	withErrorAndPanic(func(fail func() error) {
		b := failingPages(memchain.New(), func(chaingql.BlocksQuery) error { return fail() })
		_, n := newLoggedHandler(t, log, b, chaingql.Options{OutageTimeout: time.Second})
		n.stream(t, allBlocks, "Last-Event-ID", "01")
		time.Sleep(10 * time.Second)
	})
}
