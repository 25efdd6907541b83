package gqlws

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A writerPool is a pool of goroutines that write the frames of queued connections without blocking. Its goroutines
// exist only while connections are queued. There are at most GOMAXPROCS of them (the value when the pool was created),
// so that a payload for 10,000 peers does not start 10,000 goroutines. If a peer does not accept all bytes at once, its
// connection writes the rest on a goroutine of its own.
type writerPool struct {
	maxWorkers int // maximum number of running goroutines
	wg         sync.WaitGroup

	mu         sync.Mutex
	ready      connQueue     // connections whose writer is due
	searching  connQueue     // connections that wait for a turn to search; they may be in ready, too
	lastSearch time.Duration // Clock time at which a connection was last taken from searching
	workers    int           // number of running goroutines

	wakes atomic.Uint32 // number of calls of yield
}

// A connQueue is a list of connections, linked by conn.next[link].
type connQueue struct {
	first, last *conn
	link        int
}

// searchInterval is the time after which the pool serves a connection that only searches although others wait. One turn
// of such a connection takes about maxGatherTime.
const searchInterval = 10 * time.Millisecond

// maxPassedOver is the number of payloads of a connection after which its searches have a turn although it has more.
const maxPassedOver = 200

func newWriterPool() *writerPool {
	return &writerPool{maxWorkers: runtime.GOMAXPROCS(0), searching: connQueue{link: 1}}
}

// wakesPerYield is the number of wakes after which yield lets another goroutine run.
const wakesPerYield = 128

// yield is called after a wake. If one goroutine wakes many connections on one CPU, a worker otherwise starts after the
// last wake, when the first connections are no longer in the cache of the CPU.
func (w *writerPool) yield() {
	if w.wakes.Add(1)%wakesPerYield == 0 {
		runtime.Gosched()
	}
}

// enqueue appends connections to a queue of w. None of them may already be in that queue.
func (w *writerPool) enqueue(q *connQueue, conns ...*conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if q.last == nil {
			q.first = c
		} else {
			q.last.next[q.link] = c
		}
		q.last = c
	}
	for range min(len(conns), w.maxWorkers-w.workers) {
		w.workers++
		w.wg.Go(w.run)
	}
}

// run writes the frames of queued connections until the queue is empty. One deferred call for all of them costs less
// than one for each: if it runs because of a panic or because the host's code has called runtime.Goexit, another
// goroutine continues.
func (w *writerPool) run() {
	p := tryWriterPool.Get().(*tryWriter)
	var c *conn
	defer func() {
		if c == nil {
			if cap(p.bytes) <= maxPooledBuffer {
				tryWriterPool.Put(p)
			}
			return
		}
		defer c.wg.Done()
		w.wg.Go(w.run)
		c.reportPanic("writer", recover())
		c.cut(&cutError{ErrCut, "writer failed", errInternal})
	}()
	var searches bool
	for c, searches = w.dequeue(); c != nil; c, searches = w.dequeue() {
		if !searches || c.beginSearchTurn() {
			c.writeBatch(p)
		}
		c.wg.Done()
	}
}

// tryWriterPool is a pool of tryWriters. A worker has one only while it runs.
var tryWriterPool = sync.Pool{New: func() any { return newTryWriter() }}

// dequeue removes and returns the next connection, and whether it has its turn to search. If there is none, it returns
// nil, and the calling goroutine must end, because dequeue has subtracted it from workers. Searches must not delay live
// blocks, which take far less time, but they must not wait forever either.
func (w *writerPool) dequeue() (c *conn, searches bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.ready
	if w.searching.first != nil {
		if now := xsync.Clock(0); q.first == nil || now-w.lastSearch > searchInterval {
			q, w.lastSearch = &w.searching, now
		}
	}
	if c = q.first; c == nil {
		w.workers--
		return nil, false
	}
	if q.first, c.next[q.link] = c.next[q.link], nil; q.first == nil {
		q.last = nil
	}
	return c, q == &w.searching
}

// queueSearch makes the connection wait for a turn to search, unless it already waits. Meanwhile it has no writer, so
// that it does not delay other work: scheduleWriter starts one for that. The caller must hold c.mu.
func (c *conn) queueSearch() {
	if c.searchQueued {
		return
	}
	c.searchQueued = true
	c.wg.Add(1) // until writeBatch has returned
	c.server.writers.enqueue(&c.server.writers.searching, c)
}

// beginSearchTurn is called when the connection has waited for its turn to search. It reports whether the caller is now
// its writer. If the connection has another writer, that one queues the search again when it has done the other work.
func (c *conn) beginSearchTurn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.searchQueued = false
	if c.hasWriter {
		return false
	}
	c.hasWriter, c.searchTurn = true, true
	return true
}

// needsSearchTurn reports whether all that the connection has to do is to call Next of streams that search stored data
// and have found nothing so far, or whether these have waited for too many payloads. The caller must hold c.mu.
func (c *conn) needsSearchTurn() bool {
	return c.passedOver == maxPassedOver || len(c.outbox) == 0 && !c.keepAliveDue && !c.pingDue && !c.over() &&
		!slices.ContainsFunc(c.ready, func(op *operation) bool { return !op.searching })
}

// requeue is called by the writer of the connection before it ends. It queues the connection again.
func (c *conn) requeue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasWriter = false
	c.scheduleWriter()
}

// writeBatch writes at most one batch of frames, so that a connection with much data does not delay other connections.
// If the peer does not accept all bytes at once, or if the close handshake is due, a separate goroutine of the
// connection does the rest.
func (c *conn) writeBatch(p *tryWriter) {
	switch c.gather(&p.bytes, batchSize) {
	case taskRequeue:
		c.requeue()
	case taskClose:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spawn("writer", c.closeHandshake)
	case taskSend:
		n, failed := p.tryWrite(c.raw)
		if failed != nil {
			c.net.reportError("write failed", failed)
			c.closeNet()
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.unsentBytes > 0 { // otherwise the account has nothing that the peer could leave unread
			c.account.Progress(n)
		}
		if n < len(p.bytes) {
			rest := append([]byte(nil), p.bytes[n:]...)
			c.spawn("writer", func() { c.writeLoop(rest) })
			return
		}
		c.endWriteLocked()
		c.hasWriter = false
		c.scheduleWriter()
	}
}
