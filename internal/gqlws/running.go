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
