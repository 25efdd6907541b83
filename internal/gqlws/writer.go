package gqlws

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// maxGatherTime is the maximum time in which a connection's operations are called for payloads before other
// connections are served.
const maxGatherTime = time.Millisecond

// bufferPool is a pool of write buffers. A connection holds one only while it writes.
var bufferPool = sync.Pool{New: func() any { return new([]byte) }}

const (
	// batchSize is the size in bytes at which a non-blocking write is complete. A write that waits for the peer holds a
	// single frame, so that a slow peer does not cause calls of Next for payloads that it cannot receive yet.
	batchSize = 16 << 10
	// smallWrite is the maximum size in bytes of a write that is not counted in the account. A small write must not
	// cut a peer if others use up the memory for responses.
	smallWrite = 2 << 10
	// maxPooledBuffer is the maximum size in bytes of a buffer that is returned to the pool.
	maxPooledBuffer = 64 << 10
)

// scheduleWriter schedules a writer if there is something to write and none runs. Called with mu held.
func (c *conn) scheduleWriter() {
	if c.claimWriter() {
		c.server.writers.enqueue(c)
	}
}

// claimWriter reports whether the caller must queue the connection in the writer pool. If the connection cannot write
// without blocking, claimWriter starts its own writer goroutine instead. Called with mu held.
func (c *conn) claimWriter() bool {
	if c.hasWriter || c.phase == phaseClosed || c.closeFrameQueued || !c.hasWork() {
		return false
	}
	c.hasWriter = true
	if c.net.raw == nil {
		c.spawn("writer", func() { c.writeLoop(nil) })
		return false
	}
	c.wg.Add(1) // until writeBatch has returned
	return true
}

func (c *conn) hasWork() bool {
	return len(c.outbox) > 0 || c.keepAliveDue || c.pingDue || len(c.ready) > 0 || c.over()
}

// over reports whether the close handshake follows the queued frames: the connection has an ending, or it is draining
// and no query is left. Called with mu held.
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

// queueMessage queues a message that is written before data. It ignores an empty message. Called with mu held, by the
// reader (which then calls throttle) or when an operation ends. The caller must call scheduleWriter afterwards.
func (c *conn) queueMessage(message []byte) {
	if len(message) > 0 {
		c.queueFrame(appendText(nil, message))
	}
}

func (c *conn) queueFrame(frame []byte) {
	c.outbox = append(c.outbox, frame)
	c.outboxBytes += len(frame) + frameCost
}

// sendMessage calls queueMessage and scheduleWriter. Called without mu.
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
	taskRequeue             // queue the connection again, after others
)

// writeLoop is the writer that may wait for the peer. It sends begun, the rest of frames that are partly written, and
// then everything that is queued.
func (c *conn) writeLoop(begun []byte) {
	if len(begun) > 0 && !c.writeFrames(begun) {
		return
	}
	b := bufferPool.Get().(*[]byte)
	defer func() {
		if cap(*b) <= maxPooledBuffer {
			bufferPool.Put(b)
		}
	}()
	for {
		switch c.gather(b, 1) {
		case taskNone:
			return
		case taskClose:
			c.closeHandshake()
			return
		case taskSend:
			if !c.writeFrames(*b) {
				return
			}
		}
	}
}

// gather collects frames for one write until they have enough bytes: first control frames, then one payload of each
// operation in order. Only gather calls Stream.Next, and only if the previous payload was sent or is part of the same
// write. So no queue grows if the peer is slow.
func (c *conn) gather(b *[]byte, enough int) task {
	*b = (*b)[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	begun := time.Now()
	for {
		over := c.over()
		late := time.Since(begun) > maxGatherTime
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
			if c.outbox = c.outbox[1:]; len(c.outbox) == 0 {
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
			op := c.ready[0]
			c.ready = slices.Delete(c.ready, 0, 1)
			op.queued = false
			op.inCall = true
			*b = c.appendNext(*b, op)

		default:
			c.hasWriter = false
			return taskNone
		}
	}
}

// appendNext calls Next of an operation and appends its payload to b. Called with mu held, which it releases during
// the call.
func (c *conn) appendNext(b []byte, op *operation) []byte {
	c.mu.Unlock()
	defer c.mu.Lock()
	payload, err := c.callNext(op.stream)

	c.mu.Lock()
	op.inCall = false
	ended := op.phase == opEnded // during Next, by the peer or with the connection
	if !ended {
		c.unsentInWrite += op.unsent
		op.unsent = 0
	}
	switch {
	case ended:
		c.uncount(op)
	case c.ending != nil && isLost(err):
		err = nil // the last messages report its position
	case err != nil:
		c.retire(op, nil)
		if errors.Is(err, io.EOF) {
			c.queueMessage(c.codec.appendComplete(nil, op.id))
		}
		c.endIfLost(op.id, err) // before mu is released: another ending would lack its position
	case len(payload) > 0:
		c.queueNext(op) // after the others
	}
	c.mu.Unlock()

	switch {
	case ended:
		op.cancel() // dispose may not have been called yet
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

// writeFrames writes frames, waits until the peer has taken them, and reports whether it succeeded. The net.Conn's
// deadline limits the time. After an error, part of a frame may have been written, so nothing more can be sent; the
// net.Conn or the reader reports the cause.
func (c *conn) writeFrames(frames []byte) bool {
	c.mu.Lock()
	more := max(0, len(frames)-c.unsentInWrite)
	c.mu.Unlock()
	if more <= smallWrite {
		more = 0
	}
	c.account.Add(more)
	_, err := c.net.writeAll(frames)
	c.account.Add(-more)
	if err != nil {
		c.closeNet()
		return false
	}
	c.endWrite()
	return true
}

// endWriteLocked marks the end of a write. Only the goroutine that has set sending may call it, with mu held. It
// wakes a close frame that waits for the write, and a reader that waits for the close frame.
func (c *conn) endWriteLocked() {
	c.inWrite = false
	c.changed.Broadcast()
	if n := c.unsentInWrite; n > 0 {
		c.unsentInWrite = 0
		c.releaseUnsent(n)
	}
}

// beginCloseFrame is called before the library writes a close frame. It waits for the end of the current write and
// prevents all others. endWrite must be called after the close frame.
func (c *conn) beginCloseFrame() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeFrameQueued = true
	for c.inWrite && c.phase < phaseClosed {
		c.changed.Wait()
	}
	c.inWrite = true
}

// endWrite calls endWriteLocked. Called without mu.
func (c *conn) endWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endWriteLocked()
}
