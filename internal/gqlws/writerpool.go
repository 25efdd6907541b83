package gqlws

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A writerPool is a pool of goroutines that write the frames of queued connections without blocking. Its goroutines
// exist only while connections are queued. There are at most GOMAXPROCS of them (the value when the pool was created),
// so that a payload for 10,000 peers does not start 10,000 goroutines. If a peer does not accept all bytes at once, its
// connection writes the rest on a goroutine of its own.
type writerPool struct {
	maxWorkers int // maximum number of running goroutines
	wg         sync.WaitGroup

	mu          sync.Mutex
	first, last *conn // ends of the queue, a list linked by conn.next
	workers     int   // number of running goroutines

	wakes atomic.Uint32 // number of calls of yield
}

func newWriterPool() *writerPool { return &writerPool{maxWorkers: runtime.GOMAXPROCS(0)} }

// wakesPerYield is the number of wakes after which yield lets another goroutine run.
const wakesPerYield = 128

// yield is called after a wake. If one goroutine wakes many connections on one CPU, a worker otherwise starts after the
// last wake, when the first connections are no longer in the cache of the CPU.
func (w *writerPool) yield() {
	if w.wakes.Add(1)%wakesPerYield == 0 {
		runtime.Gosched()
	}
}

// enqueue appends connections to the queue. None of them may already be queued.
func (w *writerPool) enqueue(conns ...*conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.last == nil {
			w.first = c
		} else {
			w.last.next = c
		}
		w.last = c
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
	for c = w.dequeue(); c != nil; c = w.dequeue() {
		c.writeBatch(p)
		c.wg.Done()
	}
}

// tryWriterPool is a pool of tryWriters. A worker has one only while it runs.
var tryWriterPool = sync.Pool{New: func() any { return newTryWriter() }}

// dequeue removes and returns the first connection of the queue. If the queue is empty, it returns nil, and the calling
// goroutine must end, because dequeue has subtracted it from workers.
func (w *writerPool) dequeue() *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.first
	if c == nil {
		w.workers--
		return nil
	}
	if w.first, c.next = c.next, nil; w.first == nil {
		w.last = nil
	}
	return c
}

// writeBatch writes at most one batch of frames, so that a connection with much data does not delay other connections.
// If the peer does not accept all bytes at once, or if the close handshake is due, a separate goroutine of the
// connection does the rest.
func (c *conn) writeBatch(p *tryWriter) {
	switch c.gather(&p.bytes, batchSize) {
	case taskRequeue:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wg.Add(1)
		c.server.writers.enqueue(c)
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
