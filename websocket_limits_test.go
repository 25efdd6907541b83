package chaingql_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A slowChain is a chain. Its Balance takes the time takes.
type slowChain struct {
	*memchain.Chain
	takes time.Duration
}

func (c slowChain) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(c.takes):
		return c.Chain.Balance(ctx, a)
	}
}

func askBalanceOf(i int) string {
	return fmt.Sprintf(`{blockchain{account(address:"0:%064x"){info{balance}}}}`, i)
}

// A client that watches many accounts restarts all its subscriptions and queries all accounts when it reconnects. The
// default limits must allow this.
func TestClientMayRestartAllOperationsAtOnceAfterReconnecting(t *testing.T) {
	const subscriptions, queries = 256, 300
	for protocol, words := range map[string]struct{ begin, value, init string }{
		"graphql-ws":           {"start", "data", ""},
		"graphql-transport-ws": {"subscribe", "next", `{"type":"connection_init"}`},
	} {
		served := func(t *testing.T, takes time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				blocks := randomBlocks(5, 20)
				chain := slowChain{chainOf(t, blocks[:10]), takes}
				h, _ := newHandler(t, chain, chaingql.Options{})
				s, _, err := serve(t, mounted(h)).openWith(t, protocol, "/demo/graphql")
				if err != nil {
					t.Fatal(err)
				}
				if words.init != "" {
					s.send(words.init)
					s.expect("init", ack)
				}
				begin := func(id, document string) string {
					return fmt.Sprintf(`{"id":%q,"type":%q,"payload":{"query":%q}}`, id, words.begin, document)
				}
				live := fmt.Sprintf(`subscription{blocks(after:%q){chain_order}}`, blocks[9].Cursor)
				go func() { // writes block while the Handler does not read
					for i := range subscriptions + queries {
						text := begin(fmt.Sprint("s", i), live)
						if i >= subscriptions {
							text = begin(fmt.Sprint("q", i), askBalanceOf(i))
						}
						_ = s.Write(context.Background(), websocket.MessageText, []byte(text))
					}
				}()
				time.Sleep((queries/32 + 2) * max(takes, time.Millisecond))
				responses := 0
				for _, frame := range s.receive() {
					switch {
					case strings.Contains(frame, `"balance":`) && strings.HasPrefix(frame, `{"type":"`+words.value):
						responses++
					case !strings.Contains(frame, `"complete"`) && frame != ka:
						t.Fatalf("the socket received an unexpected frame: %s", frame)
					}
				}
				equal(t, "responses", responses, queries)
				commit(t, chain.Chain, blocks[10])
				got := s.receive()
				equal(t, "values of subscriptions", len(got), subscriptions)
				s.send(begin("further", live))
				if got := s.receive(); len(got) != 1 || !strings.Contains(got[0], "More than 256 subscriptions") {
					t.Errorf("a subscription beyond the limit received %s", got)
				}
			})
		}
		t.Run(protocol+"/by a fast backend", func(t *testing.T) { served(t, 0) })
		t.Run(protocol+"/by a slow backend", func(t *testing.T) { served(t, 300*time.Millisecond) })
	}
}

// BackendTimeout ends hanging queries, so a query that waits for them runs before its own wait is over.
func TestQueryThatWaitsForHangingQueriesIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		chain := slowChain{memchain.New(), time.Hour}
		h, _ := newHandler(t, chain, chaingql.Options{Limits: chaingql.Limits{SocketQueries: 2},
			Hooks: d.limitHook()})
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", askBalanceOf(1)))
		s.send(start("2", askBalanceOf(2)))
		s.send(start("3", "{info{version}}"))
		time.Sleep(chaingql.DefaultLimits().BackendTimeout - time.Millisecond)
		s.expect("while two hang")
		time.Sleep(time.Millisecond)
		got := fmt.Sprint(s.receive())
		if strings.Count(got, `"TIMEOUT"`) != 2 || !strings.Contains(got, `"id":"3","payload":{"data":{"info"`) {
			t.Errorf("received %s, want two timeouts and the response to query 3", got)
		}
		d.expect(t, "limits", "BackendTimeout", "BackendTimeout")
	})
}

// A query may take longer than the next query on the socket waits for it.
func TestSocketQueryThatWaitsTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		chain := slowChain{memchain.New(), time.Hour}
		h, _ := newHandler(t, chain, chaingql.Options{Limits: chaingql.Limits{SocketQueries: 1, BackendTimeout: -1},
			Hooks: d.limitHook()})
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", askBalanceOf(1)))
		s.send(start("2", "{info{version}}"))
		time.Sleep(chaingql.DefaultLimits().WriteTimeout)
		s.expect("in the end", `{"type":"error","id":"2","payload":`+
			`{"message":"Too many queries at once on one connection",`+
			`"extensions":{"code":"SERVICE_UNAVAILABLE"}}}`)
		d.expect(t, "limits", "SocketQueries")
	})
}

func TestIncompleteSocketMessagesCountTowardPendingResponseBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{PendingResponseBytes: 1 << 20}})
		n := serve(t, h)
		half := append([]byte{0x81, 0x80 | 126, 0xff, 0xff, 0, 0, 0, 0}, bytes.Repeat([]byte(" "), 60_000)...)
		var all []*wire
		for range 40 {
			w := rawSocket(t, n)
			if _, err := w.Write(half); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(time.Millisecond)
			all = append(all, w)
		}
		if _, held := h.Pending(); held < 500_000 || held > 1<<20 {
			t.Errorf("%d bytes are counted, want 500,000 to 1 MiB", held)
		}
		if _, err := io.Copy(io.Discard, all[0]); err != nil {
			t.Error(err)
		}
		equal(t, "whether the newest socket can still send", wroteAll(all[39], bytes.Repeat([]byte(" "), 5535)), true)
	})
}

func wroteAll(w io.Writer, text []byte) bool {
	n, err := w.Write(text)
	return n == len(text) && err == nil
}
