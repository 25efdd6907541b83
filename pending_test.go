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

func TestSlowBodiesDoNotCountAsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{Requests: 2}})
		n := serve(t, h)
		for range 10 {
			n.wire(t).say("/demo/graphql", "{", 1000)
		}
		synctest.Wait()
		w := n.wire(t)
		w.say("/demo/graphql", ask802, len(ask802))
		status, _ := w.hear()
		equal(t, "status of an honest query", status, 200)
	})
}

func TestUnreadAnswersDoNotCountAsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{Requests: 2}})
		n := serve(t, h)
		for range 10 {
			n.wire(t).say("/demo/graphql", ask802, len(ask802))
		}
		synctest.Wait()
		w := n.wire(t)
		w.say("/demo/graphql", ask802, len(ask802))
		status, _ := w.hear()
		equal(t, "status of an honest query", status, 200)
	})
}

func TestShutdownWaitsForSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		w := serve(t, h).wire(t)
		w.say("/demo/graphql", ask802[:10], len(ask802))
		synctest.Wait()
		down := make(chan error, 1)
		go func() { down <- h.Shutdown(t.Context()) }()
		time.Sleep(time.Second)
		select {
		case <-down:
			t.Error("Shutdown returned before the request was answered")
		default:
		}
		if _, err := w.Write([]byte(ask802[10:])); err != nil {
			t.Fatal(err)
		}
		status, _ := w.hear()
		equal(t, "status", status, 200)
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

func TestSlowestBodiesAreEndedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{
			Limits: chaingql.Limits{PendingBodyBytes: 64 << 10},
			Hooks:  chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { d.note("%s", limit) }},
		})
		n := serve(t, h)
		slow := make([]*wire, 20) // each counts for 4 KiB at least, so 16 have room
		for i := range slow {
			slow[i] = n.wire(t)
			slow[i].say("/demo/graphql", "{", 1000)
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		w := n.wire(t)
		w.say("/demo/graphql", ask802, len(ask802))
		status, _ := w.hear()
		equal(t, "status of an honest query", status, 200)
		for i, w := range slow {
			status, body := w.hear()
			if i < 5 {
				equal(t, "status of a slow body", status, 503)
				equal(t, "body", body, refusalBody("Too many bodies at once.", "SERVICE_UNAVAILABLE"))
				equal(t, "time", time.Since(began), 0)
			} else {
				equal(t, "status of a slow body that had room", status, 408)
			}
		}
		d.expect(t, "limits", slices.Concat(slices.Repeat([]string{"PendingBodyBytes"}, 5), slices.Repeat([]string{"BodyTimeout"}, 15))...)
	})
}

// A body that grows counts for what it takes.
func TestLargeBodiesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{PendingBodyBytes: 64 << 10}})
		n := serve(t, h)
		first, second := n.wire(t), n.wire(t)
		first.say("/demo/graphql", strings.Repeat(" ", 30_000), 100_000)
		synctest.Wait()
		second.say("/demo/graphql", strings.Repeat(" ", 50_000), 100_000)
		status, _ := first.hear()
		equal(t, "status of the slowest", status, 503)
	})
}

// pages asks for much: 40 pages of 50 blocks.
func pages() string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "a%d:blocks(last:50){edges{node{id hash shard chain_order}}}", i)
	}
	return body("{blockchain{"+b.String()+"}}", nil)
}

func TestUnreadAnswersHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{Limits: chaingql.Limits{PendingAnswerBytes: 4 << 20}})
		n := serve(t, h)
		large := pages()
		var unread []*wire
		for range 20 {
			w := n.wire(t)
			w.say("/demo/graphql", large, len(large))
			synctest.Wait()
			unread = append(unread, w)
		}
		further := post(h, large)
		equal(t, "status of a further large answer", further.Code, 503)
		equal(t, "Retry-After", further.Header().Get("Retry-After"), "1")
		equal(t, "its body", further.Body.String(), strings.Replace(refusalBody("Too many answers at once.", "SERVICE_UNAVAILABLE"), "{", `{"data":null,`, 1))
		w := n.wire(t)
		w.say("/demo/graphql", ask802, len(ask802))
		status, _ := w.hear()
		equal(t, "status of a small answer", status, 200)

		time.Sleep(time.Second)
		w = n.wire(t)
		w.say("/demo/graphql", large, len(large))
		status, res := w.hear()
		equal(t, "status once nothing was taken for a second", status, 200)
		if !strings.HasPrefix(res, `{"data":`) {
			t.Errorf("answer %.100s", res)
		}
		text, err := io.ReadAll(unread[0])
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		if len(text) > 64<<10 {
			t.Errorf("the answer that waited longest was sent, %d bytes", len(text))
		}
	})
}

// A client that takes a little all the time holds as much memory as one that takes
// nothing.
func TestSlowReadersAreEndedIfTheBudgetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{Limits: chaingql.Limits{PendingAnswerBytes: 4 << 20}})
		n := serve(t, h)
		large := pages()
		var readers sync.WaitGroup
		var slow []*wire
		for range 20 {
			w := n.wire(t)
			w.say("/demo/graphql", large, len(large))
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
		equal(t, "status while all are within their second", post(h, large).Code, 503)
		time.Sleep(1300 * time.Millisecond)
		equal(t, "status of an honest query", post(h, large).Code, 200)
		for _, w := range slow {
			_ = w.Close()
		}
		readers.Wait()
	})
}

func TestAnswersAsEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{Limits: chaingql.Limits{PendingAnswerBytes: 2 << 20}})
		n := serve(t, h)
		large := pages()
		for range 20 {
			n.wire(t).say("/demo/graphql", large, len(large), "Accept: text/event-stream")
			synctest.Wait()
		}
		w := n.wire(t)
		w.say("/demo/graphql", large, len(large))
		status, _ := w.hear()
		equal(t, "status of a further large answer", status, 503)
	})
}

func TestLongAcceptHeaderIsRefused(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	long := strings.Repeat("a/b;c=d,", 500) + "application/json"
	equal(t, "status within the limit", post(h, `{"query":"{info{version}}"}`, "Accept", long).Code, 200)
	equal(t, "status beyond it", post(h, `{"query":"{info{version}}"}`, "Accept", long+strings.Repeat(" ", 100)).Code, 406)
}

// deafSocket opens a socket that asks n times for much and takes nothing.
func deafSocket(t *testing.T, n *network, times int) *wire {
	w := rawSocket(t, n)
	var all bytes.Buffer
	for i := range times {
		text := fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, pages())
		all.Write(append([]byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...))
	}
	go func() { _, _ = w.Write(all.Bytes()) }() // until it is not read any more
	return w
}

func TestDeafSocketStartsNoFurtherQueries(t *testing.T) {
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
		reads := deafSocket(t, n, 32)
		synctest.Wait()
		if _, held := h.Pending(); held > 2<<20 {
			t.Errorf("%d bytes are held", held)
		}
		if n := started.Load(); n < 2 || n > 10 {
			t.Errorf("%d queries were started", n)
		}
		// It is served all the same, once it reads.
		text := make([]byte, 0, 32<<20)
		for !bytes.Contains(text, []byte(`{"type":"complete","id":"31","payload":null}`)) {
			part := make([]byte, 1<<20)
			k, err := reads.Read(part)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, part[:k]...)
		}
		equal(t, "answers", bytes.Count(text, []byte(`"payload":{"data":`)), 32)
		equal(t, "refusals", bytes.Count(text, []byte(`"errors"`)), 0)
		synctest.Wait()
		_, held := h.Pending()
		equal(t, "bytes held afterwards", held, 0)
	})
}

func TestDeafSocketsAreCutWhenTheBudgetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{
			Limits: chaingql.Limits{PendingAnswerBytes: 4 << 20, Requests: 4},
			Hooks:  chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { d.note("%s", limit) }},
		})
		n := serve(t, h)
		var deaf []*wire
		for range 6 {
			deaf = append(deaf, deafSocket(t, n, 32))
			synctest.Wait()
			time.Sleep(time.Millisecond)
			if _, held := h.Pending(); held > 4<<20 {
				t.Errorf("%d bytes are held", held)
			}
		}
		if got := d.since(); !slices.Contains(got, "PendingAnswerBytes") {
			t.Errorf("limits hit: %s", got)
		}
		// Whoever reads is served, on a socket and over HTTP.
		s := n.socket(t)
		s.SetReadLimit(-1)
		s.say(`{"id":"1","type":"start","payload":` + pages() + `}`)
		if got := s.hear(); len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"data","id":"1","payload":{"data":{`) {
			t.Errorf("heard %.200s", got)
		}
		equal(t, "status", post(h, ask802).Code, 200)
		began := time.Now()
		if _, err := io.Copy(io.Discard, deaf[0]); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		equal(t, "time until the socket that was deaf for longest is cut", time.Since(began), 0)
	})
}

func TestBudgetIsEmptyAfterAllTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		n := serve(t, h)
		for way, ask := range everyWay {
			if got := ask(t, n, "{info{version}}", nil); !strings.Contains(got, "0.1.0") {
				t.Errorf("%s: %s", way, got)
			}
		}
		s := n.socket(t)
		s.say(start("1", allBlocks))
		synctest.Wait()
		_ = s.CloseNow()
		gone := n.wire(t)
		gone.say("/demo/graphql", ask802, len(ask802))
		_ = gone.Close()
		slow := n.wire(t)
		slow.say("/demo/graphql", "{", 100)
		time.Sleep(time.Minute)
		bodies, answers := h.Pending()
		equal(t, "bytes of bodies", bodies, 0)
		equal(t, "bytes of answers", answers, 0)
	})
}
