package chaingql_test

import (
	"cmp"
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
				w := post(h, askBlocks, "Accept", "text/event-stream")
				equal(t, "status of an event stream", w.Code, 200)
				if !strings.Contains(log.String(), "secret") {
					t.Errorf("the log lacks the cause:\n%s", log)
				}
				for transport, ask := range allTransports {
					got := ask(t, n, "{blockchain{blocks(last:1){edges{cursor}}}}", nil)
					if parse(t, got).code() != "SERVICE_UNAVAILABLE" || strings.Contains(got, "secret") {
						t.Errorf("over %s, the response is %s, want SERVICE_UNAVAILABLE", transport, got)
					}
				}
			})
		})
	}
}

// Otherwise a database that hangs would delay a query with 50 pages by 50 times BackendTimeout.
func TestAQueryWaitsForAnUnavailableBackendOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		h, log := newHandler(t, stubBackend{Backend: memchain.New(),
			blocks: func(ctx context.Context, _ chaingql.BlocksQuery) ([]chaingql.Block, error) {
				if chaingql.ForSubscriptions(ctx) {
					return nil, nil
				}
				calls++
				<-ctx.Done()
				return nil, fmt.Errorf("%w: secret: %w", chaingql.ErrUnavailable, ctx.Err())
			},
		}, chaingql.Options{Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{"own": constField(graphql.Int, 1)}}})
		began := time.Now()
		w := post(h, `{"query":"{blockchain{a:blocks(first:1){__typename} b:blocks(first:2){__typename} `+
			`account(address:\"0:`+strings.Repeat("0", 64)+`\"){info{address balance}}} own}"}`)
		equal(t, "time", time.Since(began), 5*time.Second)
		equal(t, "calls", calls, 1)
		equal(t, "status", w.Code, 503)
		r := parse(t, w.Body.String())
		equal(t, "errors", len(r.Errors), 4)
		for _, err := range r.Errors {
			equal(t, "message", err.Message, "The chain's data is unavailable.")
			equal(t, "code", err.Extensions["code"], any("SERVICE_UNAVAILABLE"))
		}
		if got := log.String(); !strings.Contains(got, "secret") || !strings.Contains(got, "failures=4") {
			t.Errorf("the log lacks the cause or the number of failures:\n%s", got)
		}
	})
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
			time.Sleep(4 * time.Second) // so that the time since the previous outage began passes during the next one
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

// A connection that was cut without a reset keeps Follow waiting, and the outage is noticed late.
func TestOutageTimeoutCountsFromTheLastBlockOfAFrozenSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 1)
		const timeout = 2 * chaingql.DefaultStallTimeout
		h, _ := newHandler(t, b, chaingql.Options{OutageTimeout: timeout, KeepAliveInterval: -1})
		s := serve(t, mounted(h)).stream(t, `subscription{blocks{seq_no}}`)
		s.expect("a stream", ":")
		b.grow(t, 1)
		s.expect("a stream", "event: next", "id: 02", `data: {"data":{"blocks":{"seq_no":2}}}`)
		frozen := errFrozen
		b.down.Store(&frozen)
		time.Sleep(timeout - time.Second)
		s.expect("a stream before the timeout")
		time.Sleep(2 * time.Second)
		s.expect("a stream after the timeout", streamEnd("The stream of blocks was interrupted.", "02")...)
	})
}

func TestOutageEndsAHundredSubscriptionsPerSecondButNoHostStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		b.grow(t, 1)
		ticks := &tickSource{events: untilDone}
		h, _ := newHandler(t, b, chaingql.Options{
			OutageTimeout: 20 * time.Second, KeepAliveInterval: -1, Schema: ticks.schema(),
		})
		n := serve(t, mounted(h))
		host := n.stream(t, `subscription{tick}`)
		var streams []*events
		for range 201 {
			s := n.stream(t, allBlocks)
			s.expect("a stream", ":")
			streams = append(streams, s)
		}
		b.breakDown(errors.New("down"))
		time.Sleep(21 * time.Second)
		synctest.Wait()
		ended := 0
		for _, s := range streams {
			if len(s.lines) > 0 {
				ended++
			}
		}
		if ended < 90 || ended > 110 {
			t.Errorf("%d of 201 subscriptions have ended one second after the timeout, want about 100", ended)
		}
		time.Sleep(2 * time.Second)
		for _, s := range streams {
			s.expect("the end of a stream", streamEnd("The stream of blocks was interrupted.", "01")...)
		}
		host.expect("a stream of the host", ":")
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
	for name, document := range map[string]string{
		"balance":  balancesOf(1),
		"balances": balancesOf(2),
		"blocks":   "{blockchain{blocks(first:1){edges{cursor}}}}",
		"block":    `{blockchain{block(hash:"` + strings.Repeat("11", 32) + `"){seq_no}}}`,
	} {
		t.Run(name, func(t *testing.T) {
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
				if got := query(h, document, nil); parse(t, got).code() != "" {
					t.Errorf("the query received %s", got)
				}
				s.expect("a stream after a query", "event: next", "id: 04", `data: {"data":{"blocks":{"seq_no":4}}}`)
			})
		})
	}
}

// balancesOf returns a query for the balances of n accounts.
func balancesOf(n int) string {
	var fields strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, `a%d:account(address:"0:%064x"){info{balance}}`, i, i)
	}
	return "{blockchain{" + fields.String() + "}}"
}

// A source that fails at once is called again after at most RetryInterval, which is two seconds by default.
func TestWaitBetweenRetriesIsLimited(t *testing.T) {
	for _, interval := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBreakable()
			b.grow(t, 1)
			var longest time.Duration
			h, _ := newHandler(t, b, chaingql.Options{RetryInterval: interval, StallTimeout: -1, Hooks: chaingql.Hooks{
				SourceFailed: func(_ error, wait time.Duration) { longest = max(longest, wait) },
			}})
			h.Health(t.Context())
			synctest.Wait()
			b.breakDown(errors.New("down"))
			time.Sleep(time.Hour)
			synctest.Wait()
			most := cmp.Or(interval, 2*time.Second)
			if longest > most || longest < most*9/10 {
				t.Errorf("the longest wait with RetryInterval %v is %v, want nearly %v", interval, longest, most)
			}
		})
	}
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
