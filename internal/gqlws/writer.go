package gqlws

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

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
		ops := c.retireAll(nil)
		c.mu.Unlock()
		c.goodbye(ops, b)
		return false

	case c.drained():
		c.mu.Unlock()
		c.end(ending{cause: causeShutdown})
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
		c.callClose(op)
		return true
	case c.ending != nil && isLost(err):
		c.mu.Unlock() // the farewell tells where it stands
		return true
	case errors.Is(err, io.EOF):
		c.retire(op, nil)
		c.push(c.codec.appendComplete(nil, op.id))
		c.mu.Unlock()
		c.dispose(op)
		return true
	case err != nil:
		c.retire(op, nil)
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
// are over, part of the frame may be out, and nothing more can be said. Why it
// failed is for the net.Conn to say, or for the reader.
func (c *conn) send(frame []byte) bool {
	if err := c.ws.Write(context.Background(), websocket.MessageText, frame); err != nil {
		c.sever()
		return false
	}
	return true
}

// goodbye says why the connection ends and where its streams stand, and closes
// it. The close handshake of the library has no bound of its own against a peer
// that stalls. The streams are closed when it is known whether the peer was told.
func (c *conn) goodbye(ops []*operation, b *[]byte) {
	bound := c.after(closeWait, func() {
		c.cut(&severed{ErrCut, "farewell took too long", os.ErrDeadlineExceeded})
	})
	defer bound.Stop()
	standings := c.standings(ops)
	c.mu.Lock()
	c.ending.standings = standings
	e := *c.ending
	c.mu.Unlock()

	said, code, reason := c.lastWords(e, b)
	c.mu.Lock()
	c.settleWhy(e.why())
	for _, op := range ops {
		op.why = c.why
	}
	c.mu.Unlock()
	c.dispose(ops...)
	if !said {
		return
	}
	if err := c.ws.Close(code, reason); err != nil {
		c.server.log.DebugContext(c.ctx, "gqlws: close handshake not finished", "error", err)
	}
}

// lastWords writes all but the close frame, which it returns, and reports
// whether it could.
func (c *conn) lastWords(e ending, b *[]byte) (said bool, code websocket.StatusCode, reason string) {
	for _, s := range e.standings {
		if *b = c.codec.appendStanding((*b)[:0], e, s); len(*b) > 0 && !c.send(*b) {
			return false, 0, ""
		}
	}
	*b, code, reason = c.codec.farewell((*b)[:0], e)
	return len(*b) == 0 || c.send(*b), code, reason
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

func isLost(err error) bool {
	var why *RequestError
	return errors.As(err, &why) && why.Lost
}

// fail tells the peer why an operation does not run.
func (c *conn) fail(id identity, err error) {
	var why *RequestError
	if !errors.As(err, &why) || len(why.Errors) == 0 {
		c.server.log.ErrorContext(c.ctx, "gqlws: operation failed", "error", err)
		why = errInternal
	}
	if why.Lost && c.codec.lossEndsAll() {
		c.end(ending{cause: causeLost, err: why.Errors[0], session: why})
		return
	}
	c.say(c.codec.appendErrors(nil, id, why.Errors))
}

// retire takes an operation out of those that run: nothing is said for it any
// more. Called with mu held; dispose follows when mu is free.
func (c *conn) retire(op *operation, why error) {
	op.ended, op.why = true, why
	if op.busy {
		op.handover = true
		c.leaving++
	}
	delete(c.ops, op.id.key)
	c.ready = slices.DeleteFunc(c.ready, func(o *operation) bool { return o == op })
}

// retireAll retires all operations, and returns them in the order of their ids.
func (c *conn) retireAll(why error) []*operation {
	ops := slices.SortedFunc(maps.Values(c.ops), func(a, b *operation) int {
		return strings.Compare(a.id.key, b.id.key)
	})
	for _, op := range ops {
		c.retire(op, why)
	}
	return ops
}

// dispose frees what retired operations hold; whoever is at work on one closes
// its Stream.
func (c *conn) dispose(ops ...*operation) {
	for _, op := range ops {
		op.cancel()
		if op.stream != nil && !op.handover {
			c.callClose(op)
		}
	}
}
