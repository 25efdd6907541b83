package chaingql_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A client that reads well is not behind because one of its queries waits for its turn.
func TestSocketWithWaitingQueryStaysOpenIfMemoryIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		chain := blockingChain{chainOf(t, randomBlocks(31, 400)), make(chan struct{}, 100), make(chan struct{})}
		h, _ := newHandler(t, chain, chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: 3 << 20, BackendTimeout: time.Minute},
			Hooks:  d.limitHook(),
		})
		n := serve(t, h)
		s := n.socket(t)
		const running = 32
		for i := range running + 1 {
			s.send(start(fmt.Sprint(i), fmt.Sprintf(`{blockchain{account(address:"0:%064x"){info{balance}}}}`, i)))
		}
		s.expect("responses while all queries wait")
		if _, held := h.Pending(); held == 0 {
			t.Fatal("the waiting query is not counted")
		}
		time.Sleep(time.Millisecond)
		var behind []*wire
		for range 3 {
			behind = append(behind, unreadSocket(t, n, 32))
			synctest.Wait()
		}
		s.expect("response to the waiting query", fmt.Sprintf(`{"type":"error","id":"%d","payload":{"message":`+
			`"Too many answers at once.","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`, running))
		close(chain.release)
		equal(t, "messages with the other responses", len(s.receive()), 2*running)
		for _, w := range behind {
			_ = w.Close()
		}
	})
}

func TestSocketCutForItsMemoryIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: 20 << 10}, Hooks: d.limitHook(),
		})
		w := rawSocket(t, serve(t, h))
		go func() { _, _ = w.Write(maskedFrame(strings.Repeat(" ", 60_000))) }()
		synctest.Wait()
		d.expect(t, "limits", "PendingResponseBytes")
		_, held := h.Pending()
		equal(t, "bytes held afterwards", held, 0)
	})
}

func TestEventStreamCutForItsMemoryIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: 5 << 10}, Hooks: d.limitHook(),
		})
		request := body(`subscription{blocks(after:""){id shard chain_order gen_utime}}`, nil)
		w := serve(t, h).wire(t)
		w.post("/demo/graphql", request, len(request), "Accept: text/event-stream")
		go func() { _, _ = io.Copy(io.Discard, w) }()
		d.expect(t, "limits", "PendingResponseBytes")
		_, held := h.Pending()
		equal(t, "bytes held afterwards", held, 0)
	})
}
