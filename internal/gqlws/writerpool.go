package gqlws

import (
	"runtime"
	"sync"
)

// A writerPool is a pool of goroutines that write without blocking for the connections of a server. Goroutines exist
// only while connections are queued. Their maximum is GOMAXPROCS at the time of NewServer, so that a block for 10,000
// peers does not start 10,000 goroutines. If a peer does not take a write at once, the connection continues on its
// own goroutine.
type writerPool struct {
	maxWorkers int // maximum of running goroutines
	wg         sync.WaitGroup

	mu          sync.Mutex
	first, last *conn // queue, linked by conn.next
	workers     int   // running goroutines
}

func newWriterPool() *writerPool { return &writerPool{maxWorkers: runtime.GOMAXPROCS(0)} }

// enqueue appends connections to the queue. They must not be in it.
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

// run writes for queued connections until the queue is empty.
func (w *writerPool) run() {
	p := newTryWriter()
	var c *conn
	defer func() {
		if c != nil { // code of the host has called runtime.Goexit
			w.wg.Go(w.run)
		}
	}()
	for c = w.dequeue(); c != nil; c = w.dequeue() {
		c.runOrCut("writer", func() { c.writeBatch(p) })
	}
}

// dequeue removes and returns the first connection of the queue. If the queue is empty, it returns nil, and the
// goroutine must end.
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

// writeBatch writes one batch, so that a connection with much data does not delay the others. The bytes that the peer
// does not take at once, and the close handshake, are left to a goroutine of the connection.
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
		n, failed := p.tryWrite(c.net)
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
