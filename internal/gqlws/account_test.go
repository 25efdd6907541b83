package gqlws

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestMissingPongsDoNotCountIfReadingIsPaused(t *testing.T) {
	for _, row := range []struct {
		name                             string
		maxUnsent, unsent                int
		waiting                          int // number of waiting queries
		exceeds, hasWaiting              bool
		writeTimeout, countsMissingPongs bool
	}{
		{name: "no limits", unsent: 1, writeTimeout: true, countsMissingPongs: true},
		{name: "exactly MaxUnsent", maxUnsent: 10, unsent: 10, writeTimeout: true, countsMissingPongs: true},
		{name: "one byte more", maxUnsent: 10, unsent: 11, exceeds: true, writeTimeout: true},
		{name: "one byte more without WriteTimeout", maxUnsent: 10, unsent: 11, exceeds: true,
			countsMissingPongs: true},
		{name: "a waiting query", waiting: 1, hasWaiting: true, writeTimeout: true},
	} {
		o := testOptions
		o.MaxUnsent = row.maxUnsent
		if !row.writeTimeout {
			o.WriteTimeout = 0
		}
		c := newConn(t.Context(), NewServer(o), legacy{}, nil)
		c.mu.Lock()
		c.unsentBytes, c.waitingQueries, c.awaitsPong = row.unsent, make([]*operation, row.waiting), true
		if c.exceedsMaxUnsent() != row.exceeds || c.hasWaitingQueries() != row.hasWaiting {
			t.Errorf("%s: exceedsMaxUnsent %v, hasWaitingQueries %v, want %v and %v", row.name,
				c.exceedsMaxUnsent(), c.hasWaitingQueries(), row.exceeds, row.hasWaiting)
		}
		c.schedulePing()
		if counts := c.missedPongs == 1; counts != row.countsMissingPongs {
			t.Errorf("%s: missing pong counted: %v, want %v", row.name, counts, row.countsMissingPongs)
		}
		c.mu.Unlock()
		c.cancel()
	}
}

func TestZeroLimitsAllowAnyNumberOfQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxQueries, o.MaxUnsent = 0, 0
		s, ss := NewServer(o), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		for id := range 20 {
			p.sendText(fmt.Sprintf(startWait, id))
		}
		synctest.Wait()
		if ss.queries != 20 {
			t.Errorf("%d queries run, want 20", ss.queries)
		}
		close(ss.release)
		if got := receivedAll(p); len(got) != 2*20 {
			t.Errorf("received %d messages, want %d", len(got), 2*20)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestQueryStartsIfExpectedResponsesFit(t *testing.T) {
	for maxUnsent, want := range map[int]int{9: 1, 10: 2, 19: 2, 20: 3} {
		o := testOptions
		o.MaxUnsent = maxUnsent
		c := newConn(t.Context(), NewServer(o), legacy{}, nil)
		c.mu.Lock()
		for range 3 {
			run := func(context.Context) []byte { return []byte("{}") }
			op := &operation{size: 10, ctx: xsync.WithTimeout(c.ctx, 0), run: run}
			c.waitingQueries = append(c.waitingQueries, op)
		}
		c.startQueries()
		started := c.runningQueries
		c.mu.Unlock()
		if started != want {
			t.Errorf("MaxUnsent %d: %d queries of 10 bytes started, want %d", maxUnsent, started, want)
		}
		c.cancel()
	}
}

// A sumAccount is an Account that contains the sum of all counted bytes.
type sumAccount struct{ sum atomic.Int64 }

func (a *sumAccount) Hold(n int, _ func()) func() {
	a.Add(n)
	return func() { a.Add(-n) }
}

func (a *sumAccount) Add(n int)    { a.sum.Add(int64(n)) }
func (a *sumAccount) Progress(int) {}
func (a *sumAccount) Close()       {}

// A progressAccount is an Account that contains the sum of the bytes that its peer has taken.
type progressAccount struct {
	sumAccount
	taken atomic.Int64
}

func (a *progressAccount) Progress(n int) { a.taken.Add(int64(n)) }

// Otherwise a peer that always has a response in flight, and takes each at once, would look as if it took none.
func TestBytesThatAPeerTakesAtOnceAreProgress(t *testing.T) {
	const size, queries = 5000, 10
	account := new(progressAccount)
	o := withoutPings()
	o.Account = func(Session, func()) Account { return account }
	s := NewServer(o)
	response := `"` + strings.Repeat("x", size-2) + `"`
	ss := &runSession{newFakeSession(t), func() []byte { return []byte(response) }}
	url, _ := serveLoopback(t, s, ss)
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	c := dialClient(t, nc, err)
	for range queries {
		c.send(startA)
		c.expect(`{"type":"data","id":"a","payload":`+response+`}`, `{"type":"complete","id":"a","payload":null}`)
	}
	c.nc.Close()
	shutdown(t, s)
	if n := account.taken.Load(); n < size*queries {
		t.Errorf("%d bytes count as taken, want at least %d", n, size*queries)
	}
}

// The pong for a long ping message is equally long. While the peer does not read the pong, the bytes beyond maxOutbox
// are counted.
func TestLongQueuedPongIsCountedInTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100 << 10
		account := new(sumAccount)
		o := testOptions
		o.MaxMessage = 2 * size
		o.Account = func(Session, func()) Account { return account }
		s, ss := NewServer(o), newFakeSession(t)
		p := dialAs(t, s, ss, "graphql-transport-ws", nil)
		p.sendText(`{"type":"ping"}`) // so that a write, which contains the pong, waits for the peer
		synctest.Wait()
		p.sendText(fmt.Sprintf(`{"type":"ping","payload":{"a":"%s"}}`, strings.Repeat("x", size)))
		synctest.Wait()
		if sum := account.sum.Load(); sum < size-maxOutbox {
			t.Errorf("%d bytes are counted while a pong of %d bytes is queued", sum, size)
		}
		p.startReading()
		synctest.Wait()
		if sum := account.sum.Load(); sum != 0 {
			t.Errorf("%d bytes are counted after the peer has read, want 0", sum)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// Only a waiting query counts: the host limits the queries that run.
func TestMemoryOfWaitingQueryIsCounted(t *testing.T) {
	for name, end := range map[string]func(*fakeSession){
		"until it starts":     func(ss *fakeSession) { close(ss.release) },
		"until it is refused": func(*fakeSession) { time.Sleep(testOptions.QueryWait) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := new(sumAccount)
				o := testOptions
				o.Account = func(Session, func()) Account { return account }
				s, ss := NewServer(o), newFakeSession(t)
				p := dial(t, s, ss).startReading()
				startMaxQueries(p)
				if sum := account.sum.Load(); sum != queryMemory {
					t.Errorf("%d bytes are counted while a query waits, want %d", sum, queryMemory)
				}
				end(ss)
				synctest.Wait()
				if sum := account.sum.Load(); sum != 0 {
					t.Errorf("%d bytes are counted afterwards, want 0", sum)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// A runSession is a fakeSession with one query.
type runSession struct {
	*fakeSession
	run func() []byte
}

func (s *runSession) Start(context.Context, []byte) (Operation, error) {
	return s.query(func(context.Context) []byte { return s.run() }), nil
}

// The memory of a response is not counted any more after the client has stopped the query.
func TestResponseOfAStoppedQueryIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var response weak.Pointer[[1 << 20]byte]
		s := NewServer(testOptions)
		p := dial(t, s, &runSession{newFakeSession(t), func() []byte {
			b := new([1 << 20]byte)
			response = weak.Make(b)
			return b[:]
		}})
		p.sendText(`{"type":"connection_init"}`) // the peer does not read the acknowledgement, so the response waits
		p.sendText(fmt.Sprintf(startWait, 1))
		synctest.Wait()
		if runtime.GC(); response.Value() == nil {
			t.Error("the response is not in memory before the peer has stopped the query")
		}
		p.sendText(`{"type":"stop","id":"1"}`)
		synctest.Wait()
		if runtime.GC(); response.Value() != nil {
			t.Error("the response of a stopped query is still in memory")
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// A capConn records the capacity of the buffers that are written.
type capConn struct {
	net.Conn
	caps chan int
}

func (c capConn) Write(p []byte) (int, error) {
	c.caps <- cap(p)
	return c.Conn.Write(p)
}

// The memory of a small write is not counted, so it must not keep the buffer of a large one.
func TestBufferOfALargeWriteIsNotReusedForASmallOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		caps := make(chan int, 100)
		s := NewServer(testOptions)
		ss := &runSession{newFakeSession(t), func() []byte { return make([]byte, 1<<20) }}
		go s.Accept(&pipeWriter{conn: capConn{there, caps}, header: http.Header{}}, upgradeRequest("graphql-ws"), ss)
		if _, err := http.ReadResponse(bufio.NewReader(here), nil); err != nil {
			t.Fatal(err)
		}
		p := &peer{t: t, conn: here, writing: make(chan struct{}, 1)}
		p.sendText(fmt.Sprintf(startWait, 1)) // the complete message follows the response
		p.startReading()
		synctest.Wait()
		largest, last := 0, 0
		for len(caps) > 0 {
			last = <-caps
			largest = max(largest, last)
		}
		if largest < 1<<20 || last > 2*smallWrite {
			t.Errorf("the largest buffer has %d bytes and the last one %d, want at least %d and at most %d",
				largest, last, 1<<20, 2*smallWrite)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// The pool of buffers counts nothing, so it must not receive the buffer of a large response that was not written.
func TestBufferOfAFailedLargeWriteIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		s := NewServer(testOptions)
		ss := &runSession{newFakeSession(t), func() []byte { return make([]byte, 1<<20) }}
		go s.Accept(&pipeWriter{conn: there, header: http.Header{}}, upgradeRequest("graphql-ws"), ss)
		if _, err := http.ReadResponse(bufio.NewReader(here), nil); err != nil {
			t.Fatal(err)
		}
		p := &peer{t: t, conn: here, writing: make(chan struct{}, 1)}
		p.sendText(fmt.Sprintf(startWait, 1))
		synctest.Wait()
		_ = here.Close()
		synctest.Wait()
		if b := bufferPool.Get().(*[]byte); cap(*b) > smallWrite {
			t.Errorf("the pool has a buffer of %d bytes, want at most %d", cap(*b), smallWrite)
		}
		shutdown(t, s)
	})
}
