package chaingql_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// Whoever stops and starts a service must not be met by all clients at once.
func TestShutdownSpreadsItsGoodbyes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, drain = 400, 6 * time.Second
		_, chain, _ := live(t, chaingql.Options{})
		h, _ := newHandler(t, chain, chaingql.Options{})
		blocks := weave("mmm")
		commit(t, chain, blocks[0])
		var mu sync.Mutex
		var ends []time.Duration
		var begun time.Time
		var clients sync.WaitGroup
		answers := make([]*httptest.ResponseRecorder, streams)
		for i := range streams {
			clients.Go(func() {
				r := httptest.NewRequest("GET", "/demo/graphql?query=subscription%7Bblocks%7Bchain_order%7D%7D", nil)
				r.Header.Set("Accept", "text/event-stream")
				answers[i] = httptest.NewRecorder()
				h.ServeHTTP(answers[i], r)
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, time.Since(begun))
			})
		}
		synctest.Wait()
		commit(t, chain, blocks[1])
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), drain)
		defer cancel()
		begun = time.Now()
		done := make(chan error, 1)
		go func() { done <- h.Shutdown(ctx) }()
		time.Sleep(time.Millisecond)
		refused := post(h, `{"query":"subscription{blocks{id}}"}`, "Accept", "text/event-stream")
		equal(t, "status of a new stream", refused.Code, http.StatusServiceUnavailable)
		equal(t, "its Retry-After", refused.Header().Get("Retry-After"), "1")
		equal(t, "status of a query while streams end", post(h, ask802).Code, http.StatusOK)
		time.Sleep(time.Second)
		commit(t, chain, blocks[2]) // which reaches those who have not been told
		clients.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
		equal(t, "status of a query when all streams have ended", post(h, ask802).Code, http.StatusServiceUnavailable)
		if last := slices.Max(ends); last < 2*time.Second || last > drain/2 {
			t.Errorf("the last was told after %v of %v", last, drain)
		}
		slots := map[time.Duration]int{}
		for _, end := range ends {
			slots[end/(100*time.Millisecond)]++
		}
		if len(slots) < 20 {
			t.Errorf("told in %d tenths of a second: %v", len(slots), slots)
		}
		later := 0
		for _, w := range answers {
			at := blocks[1].Cursor
			if strings.Contains(w.Body.String(), `{"chain_order":"`+string(blocks[2].Cursor)+`"}`) {
				later++
				at = blocks[2].Cursor
			}
			if told := fmt.Sprintf(`"code":"SERVICE_UNAVAILABLE","cursor":%q}`, at); !strings.Contains(w.Body.String(), told) {
				t.Fatalf("not told: %s", w.Body)
			}
		}
		if later < streams/4 || later > streams*9/10 {
			t.Errorf("%d of %d streams went on after Shutdown had begun", later, streams)
		}
	})
}

// A hundred a second, where that leaves half of the time.
func TestShutdownHurriesNobodyWithoutNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := live(t, chaingql.Options{})
		for range 1_200 {
			n.stream(t, allBlocks).expect("before", ":")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		equal(t, "time", time.Since(begun), 1_199*10*time.Millisecond)
	})
}

func TestOneStreamIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := live(t, chaingql.Options{})
		e := n.stream(t, allBlocks)
		e.expect("before", ":")
		begun := time.Now()
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "time", time.Since(begun), 0)
	})
}

func TestShutdownTellsTheRestAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := live(t, chaingql.Options{})
		var all []*events
		for range 50 {
			all = append(all, n.stream(t, allBlocks))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Shutdown(ctx); err == nil {
			t.Error("no error")
		}
		for _, e := range all {
			e.expect("told", ":", "event: next", `data: {"errors":[{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE"}}]}`, "END")
		}
	})
}

// One that takes nothing does not keep a shutdown past its deadline.
func TestShutdownCutsAStreamThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := live(t, chaingql.Options{KeepAlive: -1})
		w := n.wire(t)
		fmt.Fprint(w, "GET /demo/graphql?query=subscription%7Bblocks%7Bchain_order%7D%7D HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
		for line := ""; line != ":\n"; {
			line, _ = w.in.ReadString('\n')
		}
		synctest.Wait()
		commit(t, chain, weave("m")...)
		synctest.Wait()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err == nil {
			t.Error("no error")
		}
		if err := h.Shutdown(t.Context()); err != nil { // waits for what is left
			t.Error(err)
		}
		if took := time.Since(begun); took > 2200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A client that takes nothing is cut; nothing can be told on its connection.
func TestHostIsToldWhereACutClientStood(t *testing.T) {
	for transport, open := range map[string]func(w *wire){
		"sse": func(w *wire) {
			fmt.Fprint(w, "GET /demo/graphql?query=subscription%7Bblocks%7Bchain_order%7D%7D HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
		},
		"graphql-ws": func(w *wire) {
			fmt.Fprint(w, "GET /demo/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: graphql-ws\r\n\r\n")
			for line := ""; line != "\r\n"; {
				line, _ = w.in.ReadString('\n')
			}
			frame := start("1", allBlocks)
			_, _ = w.Write(append([]byte{0x81, 0x80 | 126, byte(len(frame) >> 8), byte(len(frame)), 0, 0, 0, 0}, frame...))
		},
	} {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				hooks := d.hooks()
				blocks := randomBlocks(51, 3)
				chain := chainOf(t, blocks[:1])
				h, log := newHandler(t, chain, chaingql.Options{Hooks: chaingql.Hooks{OperationFinished: hooks.OperationFinished}, KeepAlive: -1})
				w := serve(t, mounted(h)).wire(t)
				open(w)
				synctest.Wait()
				if transport == "sse" {
					for line := ""; line != ":\n"; {
						line, _ = w.in.ReadString('\n')
					}
				}
				synctest.Wait()
				commit(t, chain, blocks[1])
				time.Sleep(9 * time.Second)
				d.expect(t, "before the deadline")
				time.Sleep(2 * time.Second)
				got := d.since()
				if len(got) != 1 || !strings.Contains(got[0], `by `+transport+` of demo in 10s, failed true, reason "cut", 1 blocks to "`+string(blocks[1].Cursor)+`"`) {
					t.Errorf("hooks: %q", got)
				}
				for _, line := range []string{"level=INFO", " cut\"", "cursor", string(blocks[1].Cursor)} {
					if !strings.Contains(log.String(), line) {
						t.Errorf("the log does not have %s: %s", line, log)
					}
				}
			})
		})
	}
}

func TestLatencyTellsThatTheStreamFailsWhateverTheBackendHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 10 * time.Second
		var stalled chaingql.Cursor
		blocks := weave(strings.Repeat("m", 100))
		for i := range blocks {
			blocks[i].Time = time.Now().Add(time.Duration(i-30) * time.Second)
		}
		stalled = blocks[40].Cursor
		l := late{&counting{Chain: chainOf(t, blocks[:30])}, func() chaingql.Cursor { return stalled }, make(chan struct{})}
		h, _ := newHandler(t, l, chaingql.Options{Silence: silence})
		askInfo(t, h)
		synctest.Wait()
		tick := func(from, to int) {
			for i := from; i < to; i++ {
				time.Sleep(time.Until(blocks[i].Time))
				commit(t, l.Chain, blocks[i])
				synctest.Wait()
			}
		}
		tick(30, 41)
		equal(t, "latency while all is well", askInfo(t, h).Latency, 0)
		tick(41, 50)
		equal(t, "latency before the silence is one", askInfo(t, h).Latency, 8_000)
		tick(50, 60)
		i := askInfo(t, h)
		equal(t, "latency in silence, though the backend has fresh blocks", i.Latency, 18_000)
		equal(t, "the newest block, from the backend", *i.LastBlockTime, blocks[59].Time.UnixMilli())
		stalled = blocks[99].Cursor
		l.more <- struct{}{}
		synctest.Wait()
		equal(t, "latency when it has spoken", askInfo(t, h).Latency, 0)
		l.Interrupt(nil)
		synctest.Wait()
		time.Sleep(90 * time.Millisecond) // it is asked again after that
		if got := askInfo(t, h).Latency; got > 90 {
			t.Errorf("latency as soon as it fails: %d", got)
		}
	})
}
