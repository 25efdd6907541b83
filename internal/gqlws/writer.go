package gqlws

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// turnTime is how long a connection is asked for what it has before others have their turn.
const turnTime = time.Millisecond

// frames holds buffers of writers: a connection has one only while it writes.
var frames = sync.Pool{New: func() any { return new([]byte) }}

const (
	// batch is how many bytes of frames are enough for a write that does not wait
	// for the peer. One that does takes a single frame, so that a peer that reads
	// slowly is asked for nothing that it cannot have.
	batch = 16 << 10
	// maxPooled is the size above which a buffer is left to the garbage
	// collector.
	maxPooled = 64 << 10
)

// kick has what there is written, if nobody is at it. Called with mu held.
func (c *conn) kick() {
	if c.toAttend() {
		c.server.crew.call(c)
	}
}

// toAttend reports whether the crew has to be called to write what there is; a writer of the connection's own is
// started here. Called with mu held.
func (c *conn) toAttend() bool {
	if c.writing || c.broken || c.shut || !c.hasWork() {
		return false
	}
	c.writing = true
	if c.net.raw == nil {
		c.spawn("writer", func() { c.write(nil) })
		return false
	}
	c.wg.Add(1) // until it was attended to
	return true
}

func (c *conn) hasWork() bool {
	return len(c.outbox) > 0 || c.kaDue || c.pingDue || len(c.ready) > 0 || c.ending != nil || c.drained()
}

// drained is whether nothing keeps a draining connection any more.
func (c *conn) drained() bool {
	if !c.draining {
		return false
	}
	for _, op := range c.ops {
		if op.query {
			return false
		}
	}
	return true
}

// push has a message written ahead of all data; an empty one is none. Called with
// mu held, by the reader, which waitRoom holds up, or at the end of an operation.
// kick follows.
func (c *conn) push(message []byte) {
	if len(message) > 0 {
		c.pushFrame(appendText(nil, message))
	}
}

func (c *conn) pushFrame(frame []byte) {
	c.outbox = append(c.outbox, frame)
	c.pending += len(frame) + frameCost
}

// say is push where mu is not held.
func (c *conn) say(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.push(message)
	c.kick()
}

// A task is what a writer is to do next.
type task int

const (
	taskNone  task = iota // it is no writer any more
	taskSend              // send what was gathered
	taskLeave             // say goodbye
	taskLater             // let others have their turn
)

// write is the writer, where it may have to wait for the peer: it sends what is
// left of frames that were begun, and then all there is.
func (c *conn) write(begun []byte) {
	if len(begun) > 0 && !c.send(begun) {
		return
	}
	b := frames.Get().(*[]byte)
	defer func() {
		if cap(*b) <= maxPooled {
			frames.Put(b)
		}
	}()
	for {
		switch c.gather(b, 1) {
		case taskNone:
			return
		case taskLeave:
			c.goodbye()
			return
		case taskSend:
			if !c.send(*b) {
				return
			}
		}
	}
}

// gather makes one write of what there is, up to some bytes that are enough:
// control frames first, then of each operation in turn. Only it asks a Stream for
// more, when what came before was sent, or goes with it, so no queue grows for a
// slow peer.
func (c *conn) gather(b *[]byte, enough int) task {
	*b = (*b)[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	begun := time.Now()
	for {
		over := c.ending != nil || c.drained()
		late := time.Since(begun) > turnTime
		switch {
		case c.broken || c.shut:
			return taskNone
		case late && len(*b) == 0 && c.hasWork():
			return taskLater
		case late && len(*b) > 0:
			c.sending = true
			return taskSend
		case len(*b) >= enough, len(*b) > 0 && (over || !c.hasWork()):
			c.sending = true
			return taskSend

		case len(c.outbox) > 0:
			frame := c.outbox[0]
			if c.outbox = c.outbox[1:]; len(c.outbox) == 0 {
				c.outbox = nil
			}
			c.pending -= len(frame) + frameCost
			*b = append(*b, frame...)

		case over:
			if c.ending == nil {
				c.ending = &ending{cause: causeShutdown}
			}
			return taskLeave

		case c.pingDue:
			c.pingDue = false
			c.pinged = true
			*b = appendControl(*b, finPing, nil)

		case c.kaDue:
			c.kaDue = false
			from := len(*b)
			*b = sealFrame(c.codec.appendKeepAlive(openFrame(*b)), from)

		case len(c.ready) > 0:
			op := c.ready[0]
			c.ready = slices.Delete(c.ready, 0, 1)
			op.queued = false
			op.busy = true
			*b = c.appendNext(*b, op)

		default:
			c.writing = false
			return taskNone
		}
	}
}

// appendNext asks an operation for its next payload and adds it. Called with mu
// held, which it lets go of meanwhile.
func (c *conn) appendNext(b []byte, op *operation) []byte {
	c.mu.Unlock()
	defer c.mu.Lock()
	payload, err := c.callNext(op.stream)

	c.mu.Lock()
	op.busy = false
	ended := op.ended // meanwhile, by the peer or with the connection
	if !ended {
		c.inWrite += op.unsent
		op.unsent = 0
	}
	switch {
	case ended:
		c.leave(op)
	case c.ending != nil && isLost(err):
		err = nil // the farewell tells where it stands
	case err != nil:
		c.retire(op, nil)
		if errors.Is(err, io.EOF) {
			c.push(c.codec.appendComplete(nil, op.id))
		}
		c.lose(op.id, err) // now, or another end would not have its position
	case len(payload) > 0:
		c.queue(op) // behind the others
	}
	c.mu.Unlock()

	switch {
	case ended:
		op.cancel() // who ended it may not have come to that yet
		c.callClose(op)
	case err != nil:
		c.dispose(op)
		if !errors.Is(err, io.EOF) {
			c.fail(op.id, err)
		}
	case len(payload) > 0:
		from := len(b)
		b = sealFrame(c.codec.appendData(openFrame(b), op.id, payload), from)
	}
	return b
}

// send writes frames, and waits for the peer to take them. Its bounds are the
// deadlines of the net.Conn; when they are over, part of a frame may be out, and
// nothing more can be said. Why it failed is for the net.Conn to say, or for the
// reader.
func (c *conn) send(frames []byte) bool {
	c.mu.Lock()
	more := max(0, len(frames)-c.inWrite)
	c.mu.Unlock()
	c.account.Add(more)
	_, err := c.net.put(frames)
	c.account.Add(-more)
	if err != nil {
		c.sever()
		return false
	}
	c.told()
	return true
}

// sent is called with mu held when bytes are out, by whoever set sending for them
// and nobody else. The close frame may wait for it, or a reader for the close
// frame.
func (c *conn) sent() {
	c.sending = false
	c.room.Broadcast()
	if n := c.inWrite; n > 0 {
		c.inWrite = 0
		c.release(n)
	}
}

// waitShut is called by the library, which has a close frame to write: it waits
// until no other frame is half out, and lets none follow. told comes behind it.
func (c *conn) waitShut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	for c.sending && !c.broken {
		c.room.Wait()
	}
	c.sending = true
}

// told is sent where mu is not held.
func (c *conn) told() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent()
}
