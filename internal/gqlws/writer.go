package gqlws

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// maxGatherTime is the maximum time that gather spends on the Streams of one connection before other connections are
// served. Only tests change it.
var maxGatherTime = time.Millisecond

// bufferPool is a pool of buffers for writes that may wait for the peer. A connection has one only while it writes.
var bufferPool = sync.Pool{New: func() any { return new([]byte) }}

const (
	// batchSize is the size in bytes at which gather stops adding frames to a non-blocking write. A write that waits
	// for the peer contains a single frame, so that Next is not called for payloads that a slow peer cannot receive
	// yet.
	batchSize = 16 << 10
	// smallWrite is the maximum size in bytes of a write that is not counted in the Account. Small writes are not
	// counted, so that a peer is not cut when other peers have used up the memory for responses.
	smallWrite = 2 << 10
	// maxPooledBuffer is the maximum size in bytes of a buffer that is returned to tryWriterPool.
	maxPooledBuffer = 64 << 10
)

// scheduleWriter starts a writer if there is something to write and no writer is active. The caller must hold c.mu.
func (c *conn) scheduleWriter() {
	if c.claimWriter() {
		c.server.writers.enqueue(paceLive, c)
	}
}

// claimWriter reports whether the caller must add the connection to the first queue of the writer pool. For operations
// that read stored data, the connection waits for other turns, too. claimWriter returns false if it has no other work,
// or if it does not support non-blocking writes and therefore gets a separate writer goroutine, unless it has lost a
// turn to that one. The caller must hold c.mu.
func (c *conn) claimWriter() bool {
	if c.hasWriter || c.phase == phaseClosed || c.closeFrameQueued || !c.hasWork() {
		return false
	}
	live, slow := len(c.outbox) > 0 || c.keepAliveDue || c.pingDue || c.over(), false
	for _, op := range c.ready {
		if op.pace == paceLive {
			live = true
		} else {
			slow = true
			c.waitForTurn(op.pace)
		}
	}
	if !live {
		return false
	}
	c.hasWriter = true
	if c.raw == nil && !(slow && c.lostTurn) {
		c.spawn("writer", func() { c.writeLoop(nil) })
		return false
	}
	c.wg.Add(1) // until writeBatch has returned
	return true
}

func (c *conn) hasWork() bool {
	return len(c.outbox) > 0 || c.keepAliveDue || c.pingDue || len(c.ready) > 0 || c.over()
}

// over reports whether the writer must perform the close handshake after the queued frames. That is the case if the
// connection has an ending, or if it is draining and no query is left. The caller must hold c.mu.
func (c *conn) over() bool {
	if c.phase != phaseDraining {
		return c.phase >= phaseEnding
	}
	for _, op := range c.ops {
		if op.query {
			return false
		}
	}
	return true
}

// queueMessage adds a message to the outbox, which is written before data. It ignores an empty message. The caller must
// hold c.mu and must then call scheduleWriter. The reader must also call throttle, which limits the size of the outbox.
func (c *conn) queueMessage(message []byte) {
	if len(message) > 0 {
		c.queueFrame(appendText(nil, message))
	}
}

func (c *conn) queueFrame(frame []byte) {
	c.outbox = append(c.outbox, frame)
	c.outboxBytes += len(frame) + frameCost
}

// sendMessage calls queueMessage and scheduleWriter. The caller must not hold c.mu.
func (c *conn) sendMessage(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueMessage(message)
	c.scheduleWriter()
}

// A task is the next step of a writer.
type task int

const (
	taskNone    task = iota // nothing to write: the writer ends
	taskSend                // send the gathered frames
	taskClose               // run the close handshake
	taskRequeue             // append the connection to the queue of the writer pool again
)

// writeLoop is the writer that may wait for the peer. It first writes begun, which is the rest of a partial write, and
// then everything that is queued. Only workers of the pool read stored data, so that thousands of peers do not do so at
// once.
func (c *conn) writeLoop(begun []byte) {
	if len(begun) > 0 && !c.writeFrames(begun) {
		return
	}
	b := bufferPool.Get().(*[]byte)
	release := func() {
		if cap(*b) > smallWrite {
			*b = nil // a write counts the size of its frames, not that of the buffer
		}
	}
	defer func() { release(); bufferPool.Put(b) }() // also after a failed write
	for {
		release()
		switch c.gather(b, 1) {
		case taskNone:
			return
		case taskClose:
			c.closeHandshake()
			return
		case taskRequeue:
			c.requeue()
			return
		case taskSend:
			if !c.writeFrames(*b) {
				return
			}
		}
	}
}

// gather collects frames in *b until it has enough bytes, and returns the next step of the writer. It takes frames from
// the outbox first, and then one payload from each ready operation in turn. Only gather calls Stream.Next. It calls
// Next only if the previous payload of the stream was sent or is in *b, so that no queue grows while a peer is slow.
// Operations that read stored data wait for a turn of the writer pool, which bounds the number of such calls at once.
func (c *conn) gather(b *[]byte, enough int) task {
	*b = (*b)[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	begun, late := xsync.Clock(0), false
	turn := c.turn
	var resumed *operation // the one whose first call of Next was the last one
	c.turn = paceLive
	for {
		over := c.over()
		switch {
		case c.phase == phaseClosed || c.closeFrameQueued:
			return taskNone
		case late && len(*b) == 0 && c.hasWork():
			return taskRequeue
		case late && len(*b) > 0:
			c.inWrite = true
			return taskSend
		case len(*b) >= enough, len(*b) > 0 && (over || !c.hasWork()):
			c.inWrite = true
			return taskSend

		case len(c.outbox) > 0:
			frame := c.outbox[0]
			if c.outbox = slices.Delete(c.outbox, 0, 1); len(c.outbox) == 0 {
				c.outbox = nil
			}
			c.outboxBytes -= len(frame) + frameCost
			*b = append(*b, frame...)

		case over:
			if c.phase < phaseEnding {
				c.phase, c.ending = phaseEnding, &ending{cause: causeShutdown}
			}
			return taskClose

		case c.pingDue:
			c.pingDue = false
			c.awaitsPong = true
			*b = appendControl(*b, finPing, nil)

		case c.keepAliveDue:
			c.keepAliveDue = false
			from := len(*b)
			*b = sealFrame(c.codec.appendKeepAlive(openFrame(*b)), from)

		case len(c.ready) > 0:
			i := slices.IndexFunc(c.ready, func(op *operation) bool { return op.pace <= turn || op == resumed })
			if i > 0 && enough < batchSize { // writeLoop does not end as long as it has payloads
				c.waitForTurn(c.ready[0].pace)
				if c.lostTurn {
					i = -1
				}
			}
			if late = i < 0; late {
				continue
			}
			op := c.ready[i]
			c.ready = slices.Delete(c.ready, i, i+1)
			op.queued, op.inCall = false, true
			if op.pace == paceFirst {
				resumed = op
			}
			*b = c.appendNext(*b, op)
			if op.pace != paceBehind {
				resumed = nil
			}
			late = len(c.ready) > 0 && xsync.Clock(0)-begun > turn.maxTime()

		default:
			c.hasWriter = false
			return taskNone
		}
	}
}

// appendNext calls Next of an operation and appends the payload to b. The caller must hold c.mu, which appendNext
// releases during the call to Next.
func (c *conn) appendNext(b []byte, op *operation) []byte {
	c.mu.Unlock()
	defer c.mu.Lock()
	returned := false
	defer func() {
		if !returned { // Next called runtime.Goexit: this goroutine ends, and run then cuts the connection
			c.endNext(op)
		}
	}()
	payload, more, behind, err := c.callNext(op.stream)
	returned = true

	c.mu.Lock()
	op.inCall = false
	op.setPace(len(payload) > 0, more, behind, c.usage)
	ended := op.phase == opEnded // by the peer or with the connection, while Next was running
	if !ended {
		c.unsentInWrite += op.unsent
		op.unsent = 0
	}
	switch {
	case ended:
		c.uncount(op)
	case c.ending != nil && isLost(err):
		err = nil // the last messages report the position of the stream
	case err != nil:
		c.retire(op, nil)
		if errors.Is(err, io.EOF) {
			c.queueMessage(c.codec.appendComplete(nil, op.id))
		}
		c.endIfLost(op.id, err) // before c.mu is released, so that no other ending omits this stream
	case more && len(payload) > 0:
		c.queueNext(op) // after the other ready operations
	}
	c.mu.Unlock()

	switch {
	case ended:
		op.ctx.Stop() // dispose may not have been called yet
		c.callClose(op)
	case err != nil:
		c.dispose(op)
		if !errors.Is(err, io.EOF) {
			c.failOperation(op.id, err)
		}
	case len(payload) > 0:
		from := len(b)
		b = sealFrame(c.codec.appendData(openFrame(b), op.id, payload), from)
	}
	return b
}

// endNext records that the goroutine of a call to Next has ended. If op ended meanwhile, it closes op's stream.
func (c *conn) endNext(op *operation) {
	c.mu.Lock()
	op.inCall = false
	ended := op.phase == opEnded
	c.mu.Unlock()
	if ended {
		c.callClose(op)
	}
}

// writeFrames writes frames, waits until the connection has accepted them, and reports whether it succeeded. The write
// timeout limits the wait. After an error, nothing more can be sent, because a part of a frame may have been written.
// The netConn or the reader reports the cause.
func (c *conn) writeFrames(frames []byte) bool {
	c.mu.Lock()
	more := max(0, len(frames)-c.unsentInWrite)
	c.mu.Unlock()
	if more <= smallWrite {
		more = 0
	}
	c.account.Add(more)
	c.callBlocked(true)
	_, err := c.net.writeAll(frames)
	c.callBlocked(false)
	c.account.Add(-more)
	if err != nil {
		c.closeNet()
		return false
	}
	c.endWrite()
	return true
}

// endWriteLocked marks the end of a write. Only the goroutine that has set inWrite may call it. It wakes
// beginCloseFrame, which waits for the end of the write, and throttle, which waits for the close frame. The caller must
// hold c.mu.
func (c *conn) endWriteLocked() {
	c.inWrite = false
	c.changed.Broadcast()
	if n := c.unsentInWrite; n > 0 {
		c.unsentInWrite = 0
		c.releaseUnsent(n)
	}
}

// beginCloseFrame is called before coder/websocket writes a close frame. It prevents new writes and waits until the
// current write has ended. The caller must call endWrite after the close frame.
func (c *conn) beginCloseFrame() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeFrameQueued = true
	for c.inWrite && c.phase < phaseClosed {
		c.changed.Wait()
	}
	c.inWrite = true
}

// endWrite calls endWriteLocked. The caller must not hold c.mu.
func (c *conn) endWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endWriteLocked()
}
