package gqlws

import (
	"runtime"
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

	mu        sync.Mutex
	queues    [paces]connQueue     // by the turn for which the connections wait; one may be in several
	liveUntil time.Duration        // Clock time until which the first queue is served alone, unless it is empty
	credit    [paces]time.Duration // time that turns may take before the next one with a slower pace
	workers   int                  // number of running goroutines

	wakes   atomic.Uint32 // number of calls of yield
	yielded xsync.Usage   // a part of the time that yield has taken beyond usualYield
}

// A pace tells how long the next call of Stream.Next may take. The worker that serves a connection calls Next only of
// operations with the pace of the connection's turn, or a faster one. So thousands of clients that read stored blocks
// do not delay live blocks, those that find none do not delay those that find some, and neither delay those that
// resume, or that need few blocks. None of them delay clients that have fallen behind the newest block, as all live
// clients do after a burst of blocks.
type pace uint8

const (
	paceLive            pace = iota // new data, if any
	paceRecent                      // data that was new since the stream has last had paceLive
	paceFirst                       // stored data, for the first time
	paceBehind                      // stored data
	paceSearching                   // stored data, of which the last call found none
	paceBehindLong                  // as paceBehind, of a peer whose usage has level 1
	paceSearchingLong               // as paceSearching, of such a peer
	paceBehindLonger                // as paceBehind, of a peer whose usage has level 2
	paceSearchingLonger             // as paceSearching, of such a peer
	paces                           // the number of paces
)

// maxFirstTime is the time after which a turn of paceFirst or paceRecent ends. It is short, because each stream has a
// turn of paceFirst when it starts: clients that start streams again and again should not get much more time than those
// that keep theirs. And after a burst of blocks, thousands of streams may have turns of paceRecent.
const maxFirstTime = 100 * time.Microsecond

// maxTime returns the time after which gather ends a turn.
func (p pace) maxTime() time.Duration {
	if p == paceRecent || p == paceFirst {
		return maxFirstTime
	}
	return maxGatherTime
}

// setPace sets the pace of the operation after a call of Next that returned these results. While the page of a stream
// has not arrived, the pace does not change, unless it is the first page since the stream was live. The caller must
// hold c.mu.
func (op *operation) setPace(found, more, behind bool, usage *xsync.Usage) {
	switch {
	case !behind:
		op.pace = paceLive
	case !found && !more:
		op.pace = max(op.pace, paceFirst)
	case op.pace <= paceRecent:
		op.pace = paceRecent
	default:
		op.pace = paceSearching
		if found {
			op.pace = paceBehind
		}
		op.pace += pace(usage.Level()) * (paceBehindLong - paceBehind)
	}
}

// A connQueue is a list of connections, linked by conn.links.
type connQueue struct{ first, last *conn }

// neighbors are the neighbors of a connection in one queue.
type neighbors struct{ previous, next *conn }

// A slow turn takes about maxGatherTime. After it, connections with new data are served alone for fasterShare times its
// duration, but at most maxAlone. So slow turns have at least a quarter of one worker's time. In the same way, those of
// each pace may take fasterShare times as long as those of slower paces. Turns are not counted, because most of those
// of clients that leave early are short.
const (
	fasterShare = 3
	maxAlone    = 10 * time.Millisecond
)

func newWriterPool() *writerPool { return &writerPool{maxWorkers: runtime.GOMAXPROCS(0)} }

// wakesPerYield is the number of wakes after which yield lets another goroutine run.
const wakesPerYield = 128

// A worker needs up to usualYield for the frames of wakesPerYield connections. Beyond that, all calls of yield may take
// maxYielded at once, and in the long run a tenth of the time that passes. A Usage falls by a thousandth of that time,
// so it counts a hundredth of what they take.
const (
	usualYield    = 500 * time.Microsecond
	maxYielded    = 20 * time.Millisecond
	yieldFraction = 100
)

// yield is called after a wake. If one goroutine wakes many connections on one CPU, a worker otherwise starts after the
// last wake, when the first connections are no longer in the cache of the CPU. If the CPUs have much other work, yield
// takes milliseconds, so it stops letting others run: the next block would have to wait.
func (w *writerPool) yield() {
	if w.wakes.Add(1)%wakesPerYield != 0 || w.yielded.Time() > maxYielded/yieldFraction {
		return
	}
	began := xsync.Clock(0)
	runtime.Gosched()
	if late := xsync.Clock(0) - began - usualYield; late > 0 {
		w.yielded.Add(late / yieldFraction)
	}
}

// enqueue appends connections to the queue of a turn. None of them may already be in that queue.
func (w *writerPool) enqueue(turn pace, conns ...*conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.queues[turn]
	for _, c := range conns {
		if q.last == nil {
			q.first = c
		} else {
			q.last.links[turn].next, c.links[turn].previous = c, q.last
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
	var turn pace
	for c, turn = w.dequeue(); c != nil; c, turn = w.dequeue() {
		if turn == paceLive {
			c.writeBatch(p)
		} else {
			begun := xsync.Clock(0)
			if c.beginTurn(turn) {
				c.writeBatch(p)
			}
			taken := w.endSlowTurn(turn, begun)
			c.usage.Add(min(taken, 2*maxGatherTime)) // more means that the goroutine did not run
		}
		c.wg.Done()
	}
}

// tryWriterPool is a pool of tryWriters. A worker has one only while it runs.
var tryWriterPool = sync.Pool{New: func() any { return newTryWriter() }}

// dequeue removes and returns the next connection, and its turn. If there is none, it returns nil, and the calling
// goroutine must end, because dequeue has subtracted it from workers.
func (w *writerPool) dequeue() (c *conn, turn pace) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slow := w.nextSlow(); w.queues[paceLive].first == nil || slow != paceLive && xsync.Clock(0) >= w.liveUntil {
		turn = slow
	}
	if c = w.queues[turn].first; c == nil {
		w.workers--
		return nil, paceLive
	}
	w.unlink(c, turn)
	return c, turn
}

// unlink removes the connection from a queue in which it is. The caller must hold w.mu.
func (w *writerPool) unlink(c *conn, turn pace) {
	q, l := &w.queues[turn], c.links[turn]
	if c.links[turn] = (neighbors{}); l.previous == nil {
		q.first = l.next
	} else {
		l.previous.links[turn].next = l.next
	}
	if l.next == nil {
		q.last = l.previous
	} else {
		l.next.links[turn].previous = l.previous
	}
}

// remove removes the connection from a queue and reports whether it was in it.
func (w *writerPool) remove(c *conn, turn pace) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.links[turn].previous == nil && w.queues[turn].first != c {
		return false
	}
	w.unlink(c, turn)
	c.wg.Done()
	return true
}

// nextSlow returns the next turn other than paceLive, or paceLive if no connection waits for one.
func (w *writerPool) nextSlow() (turn pace) {
	for p := paceLive + 1; p < paces; p++ {
		if w.queues[p].first == nil {
			continue
		}
		if turn = p; w.credit[p] >= 0 {
			break
		}
	}
	return turn
}

// endSlowTurn records that a turn has ended that began at a time on the Clock, and returns how long it took.
func (w *writerPool) endSlowTurn(turn pace, begun time.Duration) (taken time.Duration) {
	now := xsync.Clock(0)
	taken = now - begun
	w.mu.Lock()
	defer w.mu.Unlock()
	w.liveUntil = now + min(fasterShare*taken, maxAlone)
	w.credit[turn] = max(w.credit[turn]-taken, -maxAlone)
	for p := range turn {
		w.credit[p] = min(w.credit[p]+fasterShare*taken, maxAlone)
	}
	return taken
}

// waitForTurn makes the connection wait for a turn other than paceLive, unless it already does. Meanwhile it has no
// writer, so that it does not delay other work: scheduleWriter starts one for that. The caller must hold c.mu.
func (c *conn) waitForTurn(turn pace) {
	if c.waits[turn] {
		return
	}
	c.waits[turn] = true
	c.wg.Add(1) // until writeBatch has returned
	c.server.writers.enqueue(turn, c)
}

// beginTurn is called when the connection has waited for a turn. It reports whether the caller is now its writer. If
// the connection is in the first queue, it leaves that one. If it has another writer, its turn is lost: it waits again
// when the writer has ended.
func (c *conn) beginTurn(turn pace) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits[turn] = false
	if c.lostTurn = c.hasWriter && !c.server.writers.remove(c, paceLive); c.lostTurn {
		return false
	}
	c.hasWriter, c.turn = true, turn
	return true
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
