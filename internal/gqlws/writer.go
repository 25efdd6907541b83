package gqlws

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// frames holds buffers to encode data frames in: a connection has one only while
// it writes.
var frames = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is the size above which a buffer is left to the garbage collector.
const maxPooled = 64 << 10

// kick starts the writer if there is none and something to write. Called with mu
// held.
func (c *conn) kick() {
	if c.writing || c.broken || !c.hasWork() {
		return
	}
	c.writing = true
	c.spawn("writer", c.write)
}

func (c *conn) hasWork() bool {
	return len(c.outbox) > 0 || c.kaDue || len(c.ready) > 0 || c.ending != nil || c.drained()
}

// drained is whether nothing keeps a draining connection any more.
func (c *conn) drained() bool {
	if !c.draining {
		return false
	}
	for _, op := range c.ops {
		if op.run != nil {
			return false
		}
	}
	return true
}

// push has a control frame written ahead of all data; an empty one is none.
// Called with mu held, by the reader, which waitRoom holds up, or at the end of
// an operation. kick follows.
func (c *conn) push(frame []byte) {
	if len(frame) == 0 {
		return
	}
	c.outbox = append(c.outbox, frame)
	c.pending += len(frame) + frameCost
}

// say is push where mu is not held.
func (c *conn) say(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.push(frame)
	c.kick()
}

// write is the writer: control frames first, then each operation in turn, until
// nothing is left. Only it asks a Stream for more, when what came before is
// written, so no queue grows for a slow peer.
func (c *conn) write() {
	b := frames.Get().(*[]byte)
	defer func() {
		if cap(*b) <= maxPooled {
			frames.Put(b)
		}
	}()
	for c.writeNext(b) {
	}
}

// writeNext writes what is next; false is the writer's end.
func (c *conn) writeNext(b *[]byte) bool {
	c.mu.Lock()
	switch {
	case c.broken:
		c.mu.Unlock()
		return false

	case len(c.outbox) > 0:
		frame := c.outbox[0]
		if c.outbox = c.outbox[1:]; len(c.outbox) == 0 {
			c.outbox = nil
		}
		c.pending -= len(frame) + frameCost
		c.room.Broadcast()
		c.mu.Unlock()
		return c.send(frame)

	case c.ending != nil:
		c.closing = true
		e := *c.ending
		c.mu.Unlock()
		c.goodbye(e, b)
		return false

	case c.drained():
		c.mu.Unlock()
		c.end(ending{cause: causeShutdown, err: encodeError("Service is shutting down", "SERVICE_UNAVAILABLE")})
		return true

	case c.kaDue:
		c.kaDue = false
		c.mu.Unlock()
		*b = c.codec.appendKeepAlive((*b)[:0])
		return c.send(*b)

	case len(c.ready) > 0:
		op := c.ready[0]
		if c.ready = c.ready[1:]; len(c.ready) == 0 {
			c.ready = nil
		}
		op.queued = false
		op.busy = true
		c.mu.Unlock()
		return c.writeStream(op, b)

	default:
		c.writing = false
		c.mu.Unlock()
		return false
	}
}

// writeStream asks an operation for its next payload and writes it.
func (c *conn) writeStream(op *operation, b *[]byte) bool {
	payload, err := c.callNext(op.stream)

	c.mu.Lock()
	op.busy = false
	switch {
	case op.ended: // meanwhile, by the peer or with the connection
		c.leaving--
		c.mu.Unlock()
		c.callClose(op.stream)
		return true
	case errors.Is(err, io.EOF):
		c.retire(op)
		c.push(c.codec.appendComplete(nil, op.id))
		c.mu.Unlock()
		c.dispose(op)
		return true
	case err != nil:
		c.retire(op)
		c.mu.Unlock()
		c.dispose(op)
		c.fail(op.id, err)
		return true
	case len(payload) == 0:
		c.mu.Unlock()
		return true
	}
	c.queue(op) // behind the others
	c.mu.Unlock()
	*b = c.codec.appendData((*b)[:0], op.id, payload)
	return c.send(*b)
}

// send writes one frame. Its bounds are the deadlines of the net.Conn; when they
// are over, part of the frame may be out, and nothing more can be said.
func (c *conn) send(frame []byte) bool {
	if err := c.ws.Write(context.Background(), websocket.MessageText, frame); err != nil {
		c.cut("write failed", err)
		return false
	}
	return true
}

// goodbye says why the connection ends and closes it. The close handshake of the
// library has no bound of its own against a peer that stalls.
func (c *conn) goodbye(e ending, b *[]byte) {
	bound := time.AfterFunc(closeWait, func() { _ = c.net.Close() })
	defer bound.Stop()
	frame, code, reason := c.codec.farewell((*b)[:0], e)
	*b = frame
	if len(frame) > 0 && !c.send(frame) {
		return
	}
	if err := c.ws.Close(code, reason); err != nil {
		c.server.log.DebugContext(c.ctx, "gqlws: close handshake not finished", "error", err)
	}
}

// queue gives a started operation a turn to write. Called with mu held.
func (c *conn) queue(op *operation) {
	if !op.started || op.queued || op.ended {
		return
	}
	op.queued = true
	c.ready = append(c.ready, op)
	c.kick()
}

func (c *conn) wake(op *operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue(op)
}

// answer runs a query.
func (c *conn) answer(ctx context.Context, op *operation) {
	payload, err := c.callRun(ctx, op.run)
	c.mu.Lock()
	defer c.mu.Unlock()
	op.busy = false
	if op.ended {
		c.leaving--
		return
	}
	op.stream = &answer{payload, err}
	c.queue(op)
}

// fail tells the peer why an operation does not run.
func (c *conn) fail(id identity, err error) {
	var why *RequestError
	if !errors.As(err, &why) || len(why.Errors) == 0 {
		c.server.log.ErrorContext(c.ctx, "gqlws: operation failed", "error", err)
		why = errInternal
	}
	if why.Lost && c.codec.lossEndsAll() {
		c.end(ending{cause: causeLost, err: why.Errors[0]})
		return
	}
	c.say(c.codec.appendErrors(nil, id, why.Errors))
}

// retire takes an operation out of those that run: nothing is said for it any
// more. Called with mu held; dispose follows when mu is free.
func (c *conn) retire(op *operation) {
	op.ended = true
	if op.busy {
		op.handover = true
		c.leaving++
	}
	delete(c.ops, op.id.key)
	c.ready = slices.DeleteFunc(c.ready, func(o *operation) bool { return o == op })
}

func (c *conn) retireAll() []*operation {
	ops := make([]*operation, 0, len(c.ops))
	for _, op := range c.ops {
		c.retire(op)
		ops = append(ops, op)
	}
	return ops
}

// dispose frees what retired operations hold; whoever is at work on one closes
// its Stream.
func (c *conn) dispose(ops ...*operation) {
	for _, op := range ops {
		op.cancel()
		if op.stream != nil && !op.handover {
			c.callClose(op.stream)
		}
	}
}

// callNext, callClose and callRun keep panics from the connection.
func (c *conn) callNext(s Stream) (payload []byte, err error) {
	defer c.recovered("Stream.Next", &err)
	return s.Next()
}

func (c *conn) callClose(s Stream) {
	var err error
	defer c.recovered("Stream.Close", &err)
	s.Close()
}

func (c *conn) callRun(ctx context.Context, run func(context.Context) []byte) (payload []byte, err error) {
	defer c.recovered("Operation.Run", &err)
	if payload = run(ctx); len(payload) == 0 {
		err = errors.New("gqlws: query has no answer")
	}
	return payload, err
}
