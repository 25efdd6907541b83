package gqlws

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

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
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // expire may come too late to see op among the running
		c.end(ending{cause: causeExpired})
	}
	c.account.Add(len(payload)) // may cut this connection, so not with mu held
	c.mu.Lock()
	defer c.mu.Unlock()
	op.run, op.begin = nil, nil // and what they hold: the answer may wait for long
	op.busy = false
	c.expected -= op.size
	c.unsent += len(payload)
	defer c.begin()
	if op.ended {
		c.leave(op)
		c.release(len(payload))
		return
	}
	op.unsent = len(payload)
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
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lose(id, why)
		return
	}
	c.say(c.codec.appendErrors(nil, id, why.Errors))
}

// lose ends the connection if a stream was lost and the protocol has no way to end
// it alone. Called with mu held.
func (c *conn) lose(id identity, err error) {
	var why *RequestError
	if c.ending == nil && !c.dead && errors.As(err, &why) && why.Lost && c.codec.lossEndsAll() {
		c.ending = &ending{cause: causeLost, session: why, standings: []standing{{id: id, own: why}}}
		c.kick()
	}
}

// retire takes an operation out of those that run: nothing is said for it any
// more. Called with mu held; dispose follows when mu is free.
func (c *conn) retire(op *operation, why error) {
	op.ended, op.why = true, why
	if op.busy {
		op.handover = true
	}
	delete(c.ops, op.id.key)
	c.ready = slices.DeleteFunc(c.ready, func(o *operation) bool { return o == op })
	c.waiting = slices.DeleteFunc(c.waiting, func(o *operation) bool { return o == op })
	c.release(op.unsent)
	op.unsent = 0
	if !op.handover {
		c.leave(op)
	}
	c.awaitUse()
}

// leave frees the place of an operation that has ended and that nobody is at work
// on. Called with mu held.
func (c *conn) leave(op *operation) {
	switch {
	case op.running:
		c.running--
	case !op.query:
		c.streams--
	}
	c.begin()
	c.room.Broadcast()
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
