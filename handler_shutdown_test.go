package chaingql_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
)

// After a restart, clients must not all reconnect at once.
func TestShutdownSpreadsDisconnectsOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, drain = 400, 6 * time.Second
		_, chain, _ := serveChain(t, chaingql.Options{})
		h, _ := newHandler(t, chain, chaingql.Options{})
		blocks := weave("mmm")
		commit(t, chain, blocks[0])
		var mu sync.Mutex
		var ends []time.Duration
		var begun time.Time
		var clients sync.WaitGroup
		responses := make([]*httptest.ResponseRecorder, streams)
		for i := range streams {
			clients.Go(func() {
				r := httptest.NewRequest("GET", "/demo/graphql?query=subscription%7Bblocks%7Bchain_order%7D%7D", nil)
				r.Header.Set("Accept", "text/event-stream")
				responses[i] = httptest.NewRecorder()
				h.ServeHTTP(responses[i], r)
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, time.Since(begun))
			})
			if i == 0 {
				synctest.Wait() // the others find the document compiled, and do not wait for its preparation
			}
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
		equal(t, "status of a query while streams end", post(h, request802).Code, http.StatusOK)
		time.Sleep(time.Second)
		commit(t, chain, blocks[2]) // reaches the streams that have not ended
		clients.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
		equal(t, "status after the last stream", post(h, request802).Code, http.StatusServiceUnavailable)
		if last := slices.Max(ends); last < 2*time.Second || last > drain/2 {
			t.Errorf("the last stream ended after %v, want 2s to %v", last, drain/2)
		}
		slots := map[time.Duration]int{}
		for _, end := range ends {
			slots[end/(100*time.Millisecond)]++
		}
		if len(slots) < 20 {
			t.Errorf("all streams ended within %d tenths of a second, want at least 20: %v", len(slots), slots)
		}
		later := 0
		for _, w := range responses {
			at := blocks[1].Cursor
			if strings.Contains(w.Body.String(), `{"chain_order":"`+string(blocks[2].Cursor)+`"}`) {
				later++
				at = blocks[2].Cursor
			}
			end := fmt.Sprintf(`"code":"SERVICE_UNAVAILABLE","cursor":%q}`, at)
			if !strings.Contains(w.Body.String(), end) {
				t.Fatalf("a stream lacks the final error %s: %s", end, w.Body)
			}
		}
		if later < streams/4 || later > streams*9/10 {
			t.Errorf("%d of %d streams received a block after the start of Shutdown", later, streams)
		}
	})
}

// Shutdown ends 100 streams per second if that takes at most half of the time until its deadline.
func TestShutdownEndsAHundredStreamsPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := serveChain(t, chaingql.Options{})
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

func TestShutdownEndsASingleStreamAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := serveChain(t, chaingql.Options{})
		e := n.stream(t, allBlocks)
		e.expect("before", ":")
		begun := time.Now()
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "time", time.Since(begun), 0)
	})
}

func TestShutdownEndsRemainingStreamsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := serveChain(t, chaingql.Options{})
		var all []*events
		for range 50 {
			all = append(all, n.stream(t, allBlocks))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Shutdown(ctx); err == nil {
			t.Error("Shutdown returned no error at its deadline")
		}
		for _, e := range all {
			e.expect("final error", ":", "event: next",
				`data: {"errors":[{"message":"Service is shutting down",`+
					`"extensions":{"code":"SERVICE_UNAVAILABLE"}}]}`, "END")
		}
	})
}

// A stream that is not read must not delay Shutdown beyond its deadline.
func TestShutdownAbortsAStreamThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := serveChain(t, chaingql.Options{KeepAliveInterval: -1})
		w := n.wire(t)
		fmt.Fprint(w, streamRequest)
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
			t.Error("Shutdown returned no error at its deadline")
		}
		if err := h.Shutdown(t.Context()); err != nil { // waits for everything that still runs
			t.Error(err)
		}
		if took := time.Since(begun); took > 2200*time.Millisecond {
			t.Errorf("both Shutdowns took %v, want at most 2.2s", took)
		}
	})
}

const streamRequest = "GET /demo/graphql?query=subscription%7Bblocks%7Bchain_order%7D%7D HTTP/1.1\r\n" +
	"Host: x\r\nAccept: text/event-stream\r\n\r\n"

// A client that does not read is disconnected and cannot receive its cursor, so the hooks and the log must report the
// cursor.
func TestHooksAndLogReportTheCursorOfADisconnectedClient(t *testing.T) {
	for transport, open := range map[string]func(w *wire){
		"sse": func(w *wire) {
			fmt.Fprint(w, streamRequest)
		},
		"graphql-ws": func(w *wire) {
			fmt.Fprint(w, socketRequest)
			for line := ""; line != "\r\n"; {
				line, _ = w.in.ReadString('\n')
			}
			_, _ = w.Write(maskedFrame(start("1", allBlocks)))
		},
	} {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d hookRecorder
				finished := chaingql.Hooks{OperationFinished: d.hooks().OperationFinished}
				blocks := randomBlocks(51, 3)
				chain := chainOf(t, blocks[:1])
				log := &testkit.Buffer{}
				logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				h, _ := newHandler(t, chain, chaingql.Options{Hooks: finished, KeepAliveInterval: -1, Logger: logger})
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
				got := d.drain()
				want := `by ` + transport + ` of demo in 10s, failed true, reason "cut", 1 blocks to "` +
					string(blocks[1].Cursor) + `"`
				if len(got) != 1 || !strings.Contains(got[0], want) {
					t.Errorf("OperationFinished reported %q, want %s", got, want)
				}
				for _, line := range []string{"reason=cut", "cursor=" + string(blocks[1].Cursor)} {
					if !strings.Contains(log.String(), line) {
						t.Errorf("the log lacks %s: %s", line, log)
					}
				}
			})
		})
	}
}
