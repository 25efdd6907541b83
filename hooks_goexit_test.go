package chaingql_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// For example, testing.T.FailNow calls runtime.Goexit. The block stream must not end silently.
func TestGoexitInAHookOfTheBlockStreamIsOnlyLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := memchain.New()
		h, log := newHandler(t, chain, chaingql.Options{Hooks: chaingql.Hooks{
			BlockReceived:   func(chaingql.Block, time.Duration) { runtime.Goexit() },
			SourceFailed:    func(error, time.Duration) { runtime.Goexit() },
			SourceRecovered: func(time.Duration) { runtime.Goexit() },
		}})
		blocks := randomBlocks(44, 2)
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", allBlocks))
		synctest.Wait()
		for _, b := range blocks {
			commit(t, chain, b)
			s.expect("a block", data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
			chain.Interrupt(nil)
			time.Sleep(time.Second)
		}
		for _, hook := range []string{"BlockReceived", "SourceFailed", "SourceRecovered"} {
			if !strings.Contains(log.String(), "hook="+hook+` error="runtime.Goexit was called"`) {
				t.Errorf("the log lacks %s: %s", hook, log)
			}
		}
	})
}

// driveGoexit delivers a block to a subscription whose BlockDelivered calls runtime.Goexit.
func driveGoexit(t *testing.T, log *slog.Logger) {
	chain := memchain.New()
	h, _ := newLoggedHandler(t, log, chain, chaingql.Options{Hooks: chaingql.Hooks{
		BlockDelivered: func(context.Context, chaingql.Delivery) { runtime.Goexit() },
	}})
	n := serve(t, mounted(h))
	for range 5 { // the last two are suppressed
		n.socket(t).send(start("1", allBlocks))
	}
	synctest.Wait()
	commit(t, chain, randomBlocks(44, 1)[0])
	time.Sleep(time.Second)
}

// A goexit calls runtime.Goexit once in the hook that it names.
type goexit struct {
	hook string
	done atomic.Bool
}

func (g *goexit) in(hook string) {
	if hook == g.hook && g.done.CompareAndSwap(false, true) {
		runtime.Goexit()
	}
}

func (g *goexit) hooks() chaingql.Hooks {
	return chaingql.Hooks{
		OperationStarted: func(ctx context.Context, _ chaingql.Operation) context.Context {
			g.in("OperationStarted")
			return ctx
		},
		OperationFinished: func(context.Context, chaingql.Operation, chaingql.Outcome) { g.in("OperationFinished") },
		SocketOpened:      func(context.Context, chaingql.Socket) { g.in("SocketOpened") },
		SocketClosed:      func(context.Context, chaingql.Socket, chaingql.Reason, error) { g.in("SocketClosed") },
		BlockDelivered:    func(context.Context, chaingql.Delivery) { g.in("BlockDelivered") },
		LimitHit:          func(context.Context, string) { g.in("LimitHit") },
		ReadStarted: func(ctx, _ context.Context) context.Context {
			g.in("ReadStarted")
			return ctx
		},
	}
}

// Everything that the connection or the request had is released, so that the next one of its kind is served.
func TestGoexitInAHookIsLoggedAndReleasesEverything(t *testing.T) {
	for _, tc := range []string{
		"OperationStarted", "OperationFinished", "SocketOpened", "SocketClosed", "BlockDelivered", "LimitHit",
		"ReadStarted", "OperationStarted of events", "OperationFinished of events", "BlockDelivered of events",
	} {
		t.Run(tc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook, ofEvents := strings.CutSuffix(tc, " of events")
				chain := memchain.New()
				g := &goexit{hook: hook}
				h, log := newHandler(t, chain, chaingql.Options{Hooks: g.hooks(), Limits: chaingql.Limits{
					Requests: 1, Subscriptions: 1, Connections: 1, InFlight: 1,
				}})
				n := serve(t, mounted(h))
				if hook == "ReadStarted" {
					n.ask(t, "POST", "{blockchain{blocks{pageInfo{endCursor}}}}", nil, "application/json")
				}
				blocks := randomBlocks(44, 2)
				if ofEvents {
					e := n.stream(t, allBlocks)
					synctest.Wait()
					commit(t, chain, blocks[0])
					synctest.Wait()
					_ = e.res.Body.Close()
				} else {
					s := n.socket(t)
					s.send(start("1", allBlocks))
					synctest.Wait()
					commit(t, chain, blocks[0])
					synctest.Wait()
					_ = s.CloseNow()
					query(h, "{"+strings.Repeat("x", 40_000)+"}", nil) // hits a limit
				}
				synctest.Wait()
				if !strings.Contains(log.String(), "hook="+hook+` error="runtime.Goexit was called"`) {
					t.Errorf("the log lacks %s: %s", hook, log)
				}
				got := n.ask(t, "POST", "{info{version}}", nil, "text/event-stream")
				equal(t, "a query as an event stream is served", strings.Contains(got, "0.1.0"), true)
				expectServed(t, h, n.socket(t), chain, blocks[1])
			})
		})
	}
}
