package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
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
	"github.com/chaingql/chaingql/internal/xsync"
	"github.com/chaingql/chaingql/memchain"
)

// newLoggedHandler returns a Handler that logs to log, and a network that serves the Handler.
func newLoggedHandler(
	t *testing.T, log *slog.Logger, b chaingql.Backend, opts chaingql.Options,
) (*chaingql.Handler, *network) {
	opts.Logger = log
	h, _ := newHandler(t, b, opts)
	return h, serve(t, mounted(h))
}

// rawSocket opens a socket and sends frames. A test can read raw bytes from it.
func rawSocket(t *testing.T, n *network, frames ...string) *wire {
	w := n.wire(t)

	if _, err := io.WriteString(w, socketRequest); err != nil {
		t.Fatal(err)
	}
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = w.in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for _, frame := range frames {
		if _, err := w.Write(maskedFrame(frame)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// failingPages returns a Backend that calls fail before each read of blocks. fail may return an error or panic.
func failingPages(chain chaingql.Backend, fail func(q chaingql.BlocksQuery) error) stubBackend {
	return stubBackend{Backend: chain,
		blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if err := fail(q); err != nil {
				return nil, err
			}
			return chain.Blocks(ctx, q)
		}}
}

// withErrorAndPanic calls do with a function that returns an error, and then with a function that panics.
func withErrorAndPanic(do func(fail func() error)) {
	do(func() error { return errors.New("down") })
	do(func() error { panic("boom") })
}

// lineDrivers contains, for each log message, a function that causes it.
var lineDrivers = map[string]func(*testing.T, *slog.Logger){
	"chaingql: no Authorizer: every project is open to everyone": func(t *testing.T, log *slog.Logger) {
		newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
	},
	"chaingql: internal error; the client received only its id": func(t *testing.T, log *slog.Logger) {
		for _, fail := range []func() error{
			func() error { return errors.New("down") },
			func() error { panic("down") },
		} {
			h, _ := newLoggedHandler(t, log, stubBackend{Backend: memchain.New(),
				balance: func(context.Context, chaingql.Address) (*big.Int, error) { return nil, fail() },
			}, chaingql.Options{})
			for range 5 { // the last two are suppressed
				post(h, askBalance)
			}
			time.Sleep(time.Second)
		}
	},
	"chaingql: backend unavailable; the client should retry": func(t *testing.T, log *slog.Logger) {
		h, _ := newLoggedHandler(t, log, stubBackend{Backend: memchain.New(),
			balance: func(context.Context, chaingql.Address) (*big.Int, error) { return nil, chaingql.ErrUnavailable },
		}, chaingql.Options{})
		for range 5 { // the last two are suppressed
			post(h, askBalance)
		}
		time.Sleep(time.Second)
	},
	"block source lost for too long; ending subscriptions": driveOutage,
	"chaingql: the file limit is too small for Limits.Connections; connections will be refused": func(
		t *testing.T, log *slog.Logger,
	) {
		limits := chaingql.Limits{Connections: math.MaxInt32}
		newLoggedHandler(t, log, memchain.New(), chaingql.Options{Limits: limits})
	},
	"chaingql: backend check failed; the instance is not ready": driveCheck,
	"chaingql: backend check succeeded after a failure":         driveCheck,
	"chaingql: hook panicked; the panic has no other effect": func(t *testing.T, log *slog.Logger) {
		panics := chaingql.Hooks{LimitHit: func(context.Context, string) { panic("boom") }}
		h, _ := newLoggedHandler(t, log, memchain.New(), chaingql.Options{Hooks: panics})
		for range 5 { // the last two are suppressed
			query(h, "{"+strings.Repeat("x", 40_000)+"}", nil)
		}
		time.Sleep(time.Second)
	},
	"chaingql: hook called runtime.Goexit; its connection ends": driveGoexit,
	"chaingql: operation finished":                              driveSocketCut,
	"chaingql: socket opened":                                   driveSocket,
	"chaingql: socket closed":                                   driveSocketCut,
	"chaingql: limit hit; a request was refused or a connection ended": func(t *testing.T, log *slog.Logger) {
		h, _ := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
		query(h, "{"+strings.Repeat("x", 40_000)+"}", nil)
	},
	"chaingql: access denied": func(t *testing.T, log *slog.Logger) {
		h, _ := newLoggedHandler(t, log, memchain.New(), chaingql.Options{Authorizer: chaingql.StaticProjects{}})
		query(h, "{info{version}}", nil)
	},
	"chaingql: chain replaced; all block subscriptions end": func(t *testing.T, log *slog.Logger) {
		chain := memchain.New()
		h, _ := newLoggedHandler(t, log, chain, chaingql.Options{})
		chain.Replace("one")
		query(h, "{blockchain{blocks{pageInfo{endCursor}}}}", nil)
	},
	"chaingql: event stream cut, because the client was too slow": func(t *testing.T, log *slog.Logger) {
		_, n := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
		n.wire(t).post("/demo/graphql", `{"query":"`+allBlocks+`"}`, len(allBlocks)+12, "Accept: text/event-stream")
		time.Sleep(time.Minute)
	},
	"chaingql: response not delivered, because the client left or was too slow": func(t *testing.T, log *slog.Logger) {
		_, n := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
		n.wire(t).post("/demo/graphql", askBlocks, len(askBlocks), "Accept: text/event-stream")
		time.Sleep(time.Minute)
	},
	"gqlws: client disconnected during the handshake": func(t *testing.T, log *slog.Logger) {
		_, n := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
		w := n.wire(t)
		if _, err := io.WriteString(w, socketRequest); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = w.Close()
		synctest.Wait()
	},
	"gqlws: client did not answer the close frame": func(t *testing.T, log *slog.Logger) {
		h, n := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
		w := rawSocket(t, n)
		go func() { _, _ = io.Copy(io.Discard, w) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = h.Shutdown(ctx)
	},
	"gqlws: operation failed; the client received an internal error": func(t *testing.T, log *slog.Logger) {
		driveSession(t, log, func() error { return errors.New("down") })
	},
	panicIn + "…": func(t *testing.T, log *slog.Logger) {
		driveSession(t, log, func() error { panic("boom") })
	},
	"block source failed; retrying": func(t *testing.T, log *slog.Logger) {
		blocks := randomBlocks(51, 2)
		chain := chainOf(t, blocks[:1])
		h, _ := newLoggedHandler(t, log, chain, chaingql.Options{})
		startStream(t, h, chain, blocks[1])
		chain.Interrupt(errors.New("connection lost"))
		synctest.Wait()
		withErrorAndPanic(func(fail func() error) {
			b := failingPages(memchain.New(), func(chaingql.BlocksQuery) error { return fail() })
			h, _ := newLoggedHandler(t, log, b, chaingql.Options{})
			query(h, "{info{latency}}", nil)
			synctest.Wait()
		})
	},
	"block source is silent; checking it": driveSilence,
	"block source recovered":              driveSilence,
	"gap repaired; the missing blocks are delivered": func(t *testing.T, log *slog.Logger) {
		driveGap(t, log, weave("mmmm")[:2], weave("mmmm")[2:], nil)
	},
	"gap not repaired; affected subscriptions ended": func(t *testing.T, log *slog.Logger) {
		withErrorAndPanic(func(fail func() error) { driveGap(t, log, weave("mmmm")[:2], weave("mmmm")[2:], fail) })
	},
	"gap check failed; retrying": func(t *testing.T, log *slog.Logger) {
		before, then := merged()
		withErrorAndPanic(func(fail func() error) { driveGap(t, log, before, then, fail) })
	},
	"reading stored blocks for subscriptions failed; retrying": func(t *testing.T, log *slog.Logger) {
		withErrorAndPanic(func(fail func() error) {
			blocks := randomBlocks(52, 3)
			_, n := newLoggedHandler(t, log, failingPages(chainOf(t, blocks), func(q chaingql.BlocksQuery) error {
				if q.First == 0 {
					return nil
				}
				return fail()
			}), chaingql.Options{WindowSize: 1})
			s := n.socket(t)
			s.send(start("1", fmt.Sprintf(`subscription{blocks(after:%q){id}}`, blocks[0].Cursor)))
			synctest.Wait()
		})
	},
	"event function panicked; blocks are still delivered":  driveLog,
	"block evaluation panicked; its subscriptions end":     driveLog,
	"workchain filter panicked; its subscriptions may end": driveLog,
	"wake function panicked; other subscriptions continue": driveLog,
}

func driveSocket(t *testing.T, log *slog.Logger) {
	_, n := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
	s := n.socket(t)
	s.send(start("1", allBlocks))
	synctest.Wait()
	_ = s.Close(websocket.StatusNormalClosure, "")
	synctest.Wait()
}

// driveSocketCut opens a socket with a client that does not read.
func driveSocketCut(t *testing.T, log *slog.Logger) {
	_, n := newLoggedHandler(t, log, memchain.New(), chaingql.Options{})
	rawSocket(t, n, start("1", allBlocks))
	time.Sleep(time.Minute)
}

func driveSilence(t *testing.T, log *slog.Logger) {
	blocks := randomBlocks(53, 3)
	chain := chainOf(t, blocks[:1])
	h, _ := newLoggedHandler(t, log, chain, chaingql.Options{})
	startStream(t, h, chain, blocks[1])
	time.Sleep(time.Minute)
	commit(t, chain, blocks[2])
	synctest.Wait()
}

// driveGap follows a chain with the blocks before, and then commits the blocks then. If there are at least two of
// these, Follow skips the first. If fail is not nil, reads of missing blocks return its error.
func driveGap(t *testing.T, log *slog.Logger, before, then []chaingql.Block, fail func() error) {
	s := &gappyChain{Chain: chainOf(t, before)}
	if len(then) > 1 {
		s.missing = map[chaingql.Cursor]bool{then[0].Cursor: true}
	}
	h, _ := newLoggedHandler(t, log, failingPages(s, func(q chaingql.BlocksQuery) error {
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

// merged returns a masterchain block and one block of each of two shards (before), and a block of the shard into which
// the two shards merge (then).
func merged() (before, then []chaingql.Block) {
	return weave("mab"), []chaingql.Block{{
		Shard: wholeShard, SeqNo: 2, Time: time.Unix(1_700_000_000, 0), Cursor: chaingql.SeqCursor(4),
	}}
}

// A fakeSession is a gqlws.Session. Its Start calls start and returns its error.
type fakeSession struct{ start func() error }

func (fakeSession) Opened(context.Context, string, func() bool) {}
func (fakeSession) Closed(error)                                {}
func (fakeSession) Limit(string)                                {}
func (fakeSession) Blocked(bool)                                {}
func (fakeSession) Init(ctx context.Context, _ []byte) (context.Context, error) {
	return ctx, nil
}
func (d fakeSession) Start(context.Context, []byte) (gqlws.Operation, error) {
	return gqlws.Operation{}, d.start()
}

// driveSession starts an operation that fails in a way in which no operation of a Handler fails.
func driveSession(t *testing.T, log *slog.Logger, fail func() error) {
	server := gqlws.NewServer(gqlws.Options{Logger: log})
	n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.Accept(w, r, fakeSession{fail}); err != nil {
			t.Error(err)
		}
	}))
	sendFrames(t, n, "graphql-ws", nil, `{"type":"connection_init"}`, startVersion)
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// driveLog uses a block log whose callbacks all panic, unlike those of a Handler, and follows it until a block is
// missing.
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
		Place: func(b int) blocklog.Place {
			return blocklog.Place{Workchain: -1, Shard: wholeShard, SeqNo: uint32(b)}
		},
	}, blocklog.Options[int]{Logger: log, Events: blocklog.Events[int]{Block: func(int) { panic("boom") }}})
	join := func(key string, eval func(int) []byte, concerns func(int32) bool) {
		panics := func() { panic("boom") }
		_, err := l.Join(blocklog.Interest[int]{Key: key, Eval: eval, Concerns: concerns, Wake: xsync.WakeFunc(panics)})
		if err != nil {
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
