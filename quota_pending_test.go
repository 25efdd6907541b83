package chaingql_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestResponsesBeingReadDoNotOccupyRequestSlots(t *testing.T) {
	for name, sent := range map[string]struct {
		body   string
		length int
	}{
		"body not sent":     {"{", 1000},
		"response not read": {request802, len(request802)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{Requests: 2}})
				n := serve(t, h)
				for range 10 {
					n.wire(t).post("/demo/graphql", sent.body, sent.length)
				}
				synctest.Wait()
				w := n.wire(t)
				w.post("/demo/graphql", request802, len(request802))
				status, _ := w.response()
				equal(t, "status of an honest query", status, 200)
			})
		})
	}
}

// pages returns the body of a query with a large response: 40 pages of 50 blocks.
func pages() string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "a%d:blocks(last:50){edges{node{id hash shard chain_order}}}", i)
	}
	return body("{blockchain{"+b.String()+"}}", nil)
}

// newPagesHandler returns a Handler that can answer the query of pages. budget is its PendingResponseBytes.
func newPagesHandler(t *testing.T, budget int) *chaingql.Handler {
	limits := chaingql.Limits{PendingResponseBytes: budget}
	h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{Limits: limits})
	return h
}

func TestMemoryOfUnreadResponsesIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPagesHandler(t, 4<<20)
		n := serve(t, h)
		large := pages()
		var unread []*wire
		for range 20 {
			w := n.wire(t)
			w.post("/demo/graphql", large, len(large))
			synctest.Wait()
			unread = append(unread, w)
		}
		further := post(h, large)
		equal(t, "status of another large response", further.Code, 503)
		equal(t, "Retry-After", further.Header().Get("Retry-After"), "1")
		want := refusalBody("Too many answers at once.", "SERVICE_UNAVAILABLE")
		equal(t, "its body", further.Body.String(), strings.Replace(want, "{", `{"data":null,`, 1))
		w := n.wire(t)
		w.post("/demo/graphql", request802, len(request802))
		status, _ := w.response()
		equal(t, "status of a small response", status, 200)

		time.Sleep(time.Second)
		w = n.wire(t)
		w.post("/demo/graphql", large, len(large))
		status, res := w.response()
		equal(t, "status after a second without reads", status, 200)
		if !strings.HasPrefix(res, `{"data":`) {
			t.Errorf("the response has no data: %.100s", res)
		}
		text, err := io.ReadAll(unread[0])
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		if len(text) > 64<<10 {
			t.Errorf("%d bytes of the oldest unread response were sent", len(text))
		}
	})
}

// A client that reads slowly uses as much memory as a client that does not read.
func TestSlowReadersAreDisconnectedIfTheBudgetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPagesHandler(t, 4<<20)
		n := serve(t, h)
		large := pages()
		var readers sync.WaitGroup
		var slow []*wire
		for range 20 {
			w := n.wire(t)
			w.post("/demo/graphql", large, len(large))
			slow = append(slow, w)
			readers.Go(func() {
				for piece := make([]byte, 3<<10); ; time.Sleep(time.Second / 10) {
					if _, err := io.ReadFull(w, piece); err != nil {
						return
					}
				}
			})
			synctest.Wait()
		}
		equal(t, "status while all readers are less than a second behind", post(h, large).Code, 503)
		time.Sleep(1300 * time.Millisecond)
		equal(t, "status of an honest query", post(h, large).Code, 200)
		for _, w := range slow {
			_ = w.Close()
		}
		readers.Wait()
	})
}

func TestEventStreamResponsesCountTowardPendingResponseBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPagesHandler(t, 2<<20)
		n := serve(t, h)
		large := pages()
		for range 20 {
			n.wire(t).post("/demo/graphql", large, len(large), "Accept: text/event-stream")
			synctest.Wait()
		}
		w := n.wire(t)
		w.post("/demo/graphql", large, len(large))
		status, _ := w.response()
		equal(t, "status of another large response", status, 503)
	})
}

func TestTooLongAcceptHeaderIsRefused(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	long := strings.Repeat("a/b;c=d,", 125) + "application/json"
	equal(t, "status within the limit", post(h, `{"query":"{info{version}}"}`, "Accept", long).Code, 200)
	const version = `{"query":"{info{version}}"}`
	equal(t, "status beyond it", post(h, version, "Accept", long+strings.Repeat(" ", 100)).Code, 406)
}

// startAll opens a graphql-ws socket that sends a start message for each request and reads nothing.
func startAll(t *testing.T, n *network, requests []string) *wire {
	w := rawSocket(t, n)
	var all bytes.Buffer
	for i, request := range requests {
		text := fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, request)
		all.Write(maskedFrame(text))
	}
	go func() { _, _ = w.Write(all.Bytes()) }() // blocks when the Handler stops reading
	return w
}

// unreadSocket opens a socket that sends the query of pages several times and reads nothing.
func unreadSocket(t *testing.T, n *network, times int) *wire {
	return startAll(t, n, slices.Repeat([]string{pages()}, times))
}

func TestSocketThatDoesNotReadStartsNoFurtherQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int32
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{
			Limits: chaingql.Limits{PendingSocketBytes: 1 << 20},
			Hooks: chaingql.Hooks{OperationStarted: func(ctx context.Context, _ chaingql.Operation) context.Context {
				started.Add(1)
				return ctx
			}},
		})
		n := serve(t, h)
		reads := unreadSocket(t, n, 32)
		synctest.Wait()
		if _, held := h.Pending(); held > 2<<20 {
			t.Errorf("responses use %d bytes, want at most %d", held, 2<<20)
		}
		if n := started.Load(); n < 2 || n > 10 {
			t.Errorf("%d queries were started, want 2 to 10", n)
		}
		// Once the client reads, all queries are answered.
		text := make([]byte, 0, 32<<20)
		for !bytes.Contains(text, []byte(`{"type":"complete","id":"31","payload":null}`)) {
			part := make([]byte, 1<<20)
			k, err := reads.Read(part)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, part[:k]...)
		}
		equal(t, "responses", bytes.Count(text, []byte(`"payload":{"data":`)), 32)
		equal(t, "refusals", bytes.Count(text, []byte(`"errors"`)), 0)
		synctest.Wait()
		_, held := h.Pending()
		equal(t, "bytes held afterwards", held, 0)
	})
}

func TestSocketsThatDoNotReadAreClosedIfTheBudgetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{
			Limits: chaingql.Limits{PendingResponseBytes: 4 << 20, Requests: 4},
			Hooks:  d.limitHook(),
		})
		n := serve(t, h)
		var nonReaders []*wire
		for range 6 {
			nonReaders = append(nonReaders, unreadSocket(t, n, 32))
			synctest.Wait()
			time.Sleep(time.Millisecond)
			if _, held := h.Pending(); held > 4<<20 {
				t.Errorf("responses use %d bytes, want at most %d", held, 4<<20)
			}
		}
		if got := d.drain(); !slices.Contains(got, "PendingResponseBytes") {
			t.Errorf("LimitHit was called for %s, not for PendingResponseBytes", got)
		}
		// Clients that read are served on sockets and over HTTP.
		s := n.socket(t)
		s.SetReadLimit(-1)
		s.send(`{"id":"1","type":"start","payload":` + pages() + `}`)
		got := s.receive()
		if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"data","id":"1","payload":{"data":{`) {
			t.Errorf("a socket that reads received %.200s", got)
		}
		equal(t, "status", post(h, request802).Code, 200)
		began := time.Now()
		if _, err := io.Copy(io.Discard, nonReaders[0]); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		equal(t, "time until the oldest unread socket is closed", time.Since(began), 0)
	})
}

func TestNoMemoryIsCountedAfterAllConnectionsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		n := serve(t, h)
		for transport, ask := range allTransports {
			if got := ask(t, n, "{info{version}}", nil); !strings.Contains(got, chaingql.Version) {
				t.Errorf("%s: the query failed: %s", transport, got)
			}
		}
		s := n.socket(t)
		s.send(start("1", allBlocks))
		synctest.Wait()
		_ = s.CloseNow()
		gone := n.wire(t)
		gone.post("/demo/graphql", request802, len(request802))
		_ = gone.Close()
		slow := n.wire(t)
		slow.post("/demo/graphql", "{", 100)
		time.Sleep(time.Minute)
		bodies, responses := h.Pending()
		equal(t, "bytes of bodies", bodies, 0)
		equal(t, "bytes of responses", responses, 0)
	})
}
