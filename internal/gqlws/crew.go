package gqlws

import (
	"runtime"
	"sync"
)

// A crew writes for the connections that have something to say and whose net.Conn
// can be asked to take what it takes at once. Its hands are goroutines, there only
// while there is work, and at most as many as there were processors when the
// Server was made: a block for 10,000 peers is no reason to start 10,000. A hand
// never waits for a peer.
type crew struct {
	most    int // hands
	working sync.WaitGroup

	mu          sync.Mutex
	first, last *conn // in line, by their next
	hands       int
}

func newCrew() *crew { return &crew{most: runtime.GOMAXPROCS(0)} }

// call puts connections, which are not in it, at the end of the line.
func (w *crew) call(conns ...*conn) {
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
	for range min(len(conns), w.most-w.hands) {
		w.hands++
		w.working.Go(w.work)
	}
}

// work attends to connections until none is in line.
func (w *crew) work() {
	p := newParcel()
	var c *conn
	defer func() {
		if c != nil { // foreign code has ended this goroutine
			w.working.Go(w.work)
		}
	}()
	for c = w.take(); c != nil; c = w.take() {
		c.guarded("writer", func() { c.attend(p) })
	}
}

// take returns the first in line; nil ends a hand.
func (w *crew) take() *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.first
	if c == nil {
		w.hands--
		return nil
	}
	if w.first, c.next = c.next, nil; w.first == nil {
		w.last = nil
	}
	return c
}

// attend has a connection write what it has, once, so that one with much to say
// does not hold up the others. What its peer does not take at once, and the
// farewell, are left to a goroutine of the connection's own.
func (c *conn) attend(p *parcel) {
	switch c.gather(&p.bytes, batch) {
	case taskLater:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wg.Add(1)
		c.server.crew.call(c)
	case taskLeave:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spawn("writer", c.goodbye)
	case taskSend:
		n, failed := p.offer(c.net)
		if failed != nil {
			c.net.failed("write failed", failed)
			c.sever()
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if n < len(p.bytes) {
			rest := append([]byte(nil), p.bytes[n:]...)
			c.spawn("writer", func() { c.write(rest) })
			return
		}
		c.sent()
		c.writing = false
		c.kick()
	}
}
