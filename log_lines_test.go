package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/memchain"
)

// telling is a Handler on a network, whose lines a driver is to bring about.
func telling(t *testing.T, log *slog.Logger, b chaingql.Backend, opts chaingql.Options) (*chaingql.Handler, *network) {
	opts.Logger = log
	h, _ := newHandler(t, b, opts)
	return h, serve(t, mounted(h))
}

// rawSocket opens a socket by hand, says something, and reads bytes only.
func rawSocket(t *testing.T, n *network, frames ...string) *wire {
	w := n.wire(t)
	handshake := "GET /demo/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: graphql-ws\r\n\r\n"
	if _, err := io.WriteString(w, handshake); err != nil {
		t.Fatal(err)
	}
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = w.in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for _, frame := range frames {
		if _, err := w.Write(append([]byte{0x81, 0x80 | 126, byte(len(frame) >> 8), byte(len(frame)), 0, 0, 0, 0}, frame...)); err != nil { // masked by nothing
			t.Fatal(err)
		}
	}
	return w
}

// shaky is a Backend that fails, or panics, when it is told to.
func shaky(chain chaingql.Backend, fail func(q chaingql.BlocksQuery) error) altered {
	return altered{Backend: chain, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
		if err := fail(q); err != nil {
			return nil, err
		}
		return chain.Blocks(ctx, q)
	}}
}

// twice does something that fails, first with an error, then with a panic.
func twice(do func(fail func() error)) {
	do(func() error { return errors.New("down") })
	do(func() error { panic("boom") })
}

// lineDrivers bring about the lines of the log, by message.
var lineDrivers = map[string]func(*testing.T, *slog.Logger){
	"chaingql: no Authorizer: every project is open to everyone": func(t *testing.T, log *slog.Logger) {
		telling(t, log, memchain.New(), chaingql.Options{})
	},
	"chaingql: internal error": func(t *testing.T, log *slog.Logger) {
		h, _ := telling(t, log, altered{Backend: memchain.New(), balance: func(context.Context, chaingql.Address) (*big.Int, error) { return nil, errors.New("down") }}, chaingql.Options{})
		post(h, askBalance)
	},
	"chaingql: hook panicked": func(t *testing.T, log *slog.Logger) {
		h, _ := telling(t, log, memchain.New(), chaingql.Options{Hooks: chaingql.Hooks{LimitHit: func(context.Context, string) { panic("boom") }}})
		query(h, "{"+strings.Repeat("x", 40_000)+"}", nil)
	},
	"chaingql: operation finished": driveSocket,
	"chaingql: socket opened":      driveSocket,
	"chaingql: socket closed":      driveSocket,
	"chaingql: limit hit": func(t *testing.T, log *slog.Logger) {
		h, _ := telling(t, log, memchain.New(), chaingql.Options{})
		query(h, "{"+strings.Repeat("x", 40_000)+"}", nil)
	},
	"chaingql: access denied": func(t *testing.T, log *slog.Logger) {
		h, _ := telling(t, log, memchain.New(), chaingql.Options{Authorizer: chaingql.StaticProjects{}})
		query(h, "{info{version}}", nil)
	},
	"chaingql: event stream cut": func(t *testing.T, log *slog.Logger) {
		_, n := telling(t, log, memchain.New(), chaingql.Options{})
		n.wire(t).say("/demo/graphql", `{"query":"`+allBlocks+`"}`, len(allBlocks)+12, "Accept: text/event-stream")
		time.Sleep(time.Minute)
	},
	"chaingql: answer cut": func(t *testing.T, log *slog.Logger) {
		_, n := telling(t, log, memchain.New(), chaingql.Options{})
		n.wire(t).say("/demo/graphql", askBlocks, len(askBlocks), "Accept: text/event-stream")
		time.Sleep(time.Minute)
	},
	"gqlws: connection cut": func(t *testing.T, log *slog.Logger) {
		_, n := telling(t, log, memchain.New(), chaingql.Options{})
		rawSocket(t, n, start("1", allBlocks))
		time.Sleep(time.Minute) // it takes nothing
		if _, err := rawSocket(t, n).Write([]byte("no frame")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	},
	"gqlws: peer refused": func(t *testing.T, log *slog.Logger) {
		_, n := telling(t, log, memchain.New(), chaingql.Options{Authorizer: chaingql.StaticProjects{"demo": {Secret: "right", RequireSecret: true}}})
		talk(t, n, "graphql-ws", nil, `{"type":"connection_init","payload":{"accessKey":"wrong"}}`)
	},
	"gqlws: handshake not finished": func(t *testing.T, log *slog.Logger) {
		_, n := telling(t, log, memchain.New(), chaingql.Options{})
		w := n.wire(t)
		if _, err := io.WriteString(w, "GET /demo/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: graphql-ws\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = w.Close()
		synctest.Wait()
	},
	"gqlws: close handshake not finished": func(t *testing.T, log *slog.Logger) {
		h, n := telling(t, log, memchain.New(), chaingql.Options{})
		w := rawSocket(t, n)
		go func() { _, _ = io.Copy(io.Discard, w) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = h.Shutdown(ctx)
	},
	"gqlws: operation failed": func(t *testing.T, log *slog.Logger) {
		driveSession(t, log, func() error { return errors.New("down") })
	},
	panicIn + "…": func(t *testing.T, log *slog.Logger) {
		driveSession(t, log, func() error { panic("boom") })
	},
	"block source failed": func(t *testing.T, log *slog.Logger) {
		blocks := randomBlocks(51, 2)
		chain := chainOf(t, blocks[:1])
		h, _ := telling(t, log, chain, chaingql.Options{})
		waken(t, h, chain, blocks[1])
		chain.Interrupt(errors.New("line cut"))
		synctest.Wait()
		twice(func(fail func() error) {
			h, _ := telling(t, log, shaky(memchain.New(), func(chaingql.BlocksQuery) error { return fail() }), chaingql.Options{})
			query(h, "{info{latency}}", nil)
			synctest.Wait()
		})
	},
	"block source is silent": driveSilence,
	"block source recovered": driveSilence,
	"missing blocks were found": func(t *testing.T, log *slog.Logger) {
		driveHole(t, log, weave("mmmm")[:2], weave("mmmm")[2:], nil)
	},
	"blocks are missing": func(t *testing.T, log *slog.Logger) {
		twice(func(fail func() error) { driveHole(t, log, weave("mmmm")[:2], weave("mmmm")[2:], fail) })
	},
	"gap check failed; retrying": func(t *testing.T, log *slog.Logger) {
		before, then := merged()
		twice(func(fail func() error) { driveHole(t, log, before, then, fail) })
	},
	"block page failed": func(t *testing.T, log *slog.Logger) {
		twice(func(fail func() error) {
			blocks := randomBlocks(52, 3)
			_, n := telling(t, log, shaky(chainOf(t, blocks), func(q chaingql.BlocksQuery) error {
				if q.First == 0 {
					return nil
				}
				return fail()
			}), chaingql.Options{Window: 1})
			s := n.socket(t)
			s.say(start("1", fmt.Sprintf(`subscription{blocks(after:%q){id}}`, blocks[0].Cursor)))
			synctest.Wait()
		})
	},
	"event panicked":                     driveLog,
	"evaluation of a block panicked":     driveLog,
	"evaluation of a workchain panicked": driveLog,
	"wake of a reader panicked":          driveLog,
}

func driveSocket(t *testing.T, log *slog.Logger) {
	_, n := telling(t, log, memchain.New(), chaingql.Options{})
	s := n.socket(t)
	s.say(start("1", allBlocks))
	synctest.Wait()
	_ = s.Close(websocket.StatusNormalClosure, "")
	synctest.Wait()
}

func driveSilence(t *testing.T, log *slog.Logger) {
	blocks := randomBlocks(53, 3)
	chain := chainOf(t, blocks[:1])
	h, _ := telling(t, log, chain, chaingql.Options{})
	waken(t, h, chain, blocks[1])
	time.Sleep(time.Minute)
	commit(t, chain, blocks[2])
	synctest.Wait()
}

// driveHole follows a chain to which blocks come, of which Follow leaves the
// first out, if there is a second. fail, if there is one, is what asking for
// missing blocks comes to.
func driveHole(t *testing.T, log *slog.Logger, before, then []chaingql.Block, fail func() error) {
	s := &sieve{Chain: chainOf(t, before)}
	if len(then) > 1 {
		s.hole = map[chaingql.Cursor]bool{then[0].Cursor: true}
	}
	h, _ := telling(t, log, shaky(s, func(q chaingql.BlocksQuery) error {
		if q.Before == "" || fail == nil {
			return nil
		}
		return fail()
	}), chaingql.Options{})
	query(h, "{info{latency}}", nil)
	synctest.Wait()
	commit(t, s.Chain, then...)
	time.Sleep(time.Minute)
}

// merged are a block of each of two shards, and one of the shard that they
// become.
func merged() (before, then []chaingql.Block) {
	return weave("mab"), []chaingql.Block{{Shard: wholeShard, SeqNo: 2, Time: time.Unix(1_700_000_000, 0), Cursor: chaingql.SeqCursor(4)}}
}

// A double is a Session whose Start is the test's.
type double struct{ start func() error }

func (double) Opened(context.Context, string) {}
func (double) Closed(error)                   {}
func (double) Limit(string)                   {}
func (double) Init(ctx context.Context, _ []byte) (context.Context, error) {
	return ctx, nil
}
func (d double) Start(context.Context, []byte) (gqlws.Operation, error) {
	return gqlws.Operation{}, d.start()
}

// driveSession starts an operation that fails as those of a Handler do not.
func driveSession(t *testing.T, log *slog.Logger, fail func() error) {
	server := gqlws.NewServer(gqlws.Options{Logger: log})
	n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.Accept(w, r, double{fail}); err != nil {
			t.Error(err)
		}
	}))
	talk(t, n, "graphql-ws", nil, `{"type":"connection_init"}`, startVersion)
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// driveLog follows blocks whose every listener panics, as those of a Handler
// do not, until one is missing.
func driveLog(t *testing.T, log *slog.Logger) {
	grown := make(chan int)
	l := blocklog.New(blocklog.Source[int]{
		Recent: func(context.Context, int) ([]int, error) { return []int{1}, nil },
		Follow: func(ctx context.Context, _ string) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for {
					select {
					case b := <-grown:
						if !yield(b, nil) {
							return
						}
					case <-ctx.Done():
						yield(0, ctx.Err())
						return
					}
				}
			}
		},
		Page:    func(context.Context, string, int) ([]int, error) { return nil, nil },
		Between: func(context.Context, string, int, int) ([]int, error) { return nil, nil },
		Cursor:  func(b int) string { return strconv.Itoa(b) },
		Place:   func(b int) blocklog.Place { return blocklog.Place{Workchain: -1, Shard: wholeShard, SeqNo: uint32(b)} },
	}, blocklog.Options[int]{Logger: log, Events: blocklog.Events[int]{Block: func(int) { panic("boom") }}})
	join := func(key string, eval func(int) []byte, concerns func(int32) bool) {
		if _, err := l.Join(blocklog.Interest[int]{Key: key, Eval: eval, Concerns: concerns, Wake: func() { panic("boom") }}); err != nil {
			t.Fatal(err)
		}
	}
	join("a", func(int) []byte { panic("boom") }, nil)
	join("b", func(int) []byte { return nil }, func(int32) bool { panic("boom") })
	synctest.Wait()
	grown <- 2
	grown <- 4
	time.Sleep(time.Minute)
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
