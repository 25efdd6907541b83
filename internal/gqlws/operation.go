package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

// An opPhase is a stage in the life of an operation. An operation never returns to an earlier stage.
type opPhase int8

const (
	opStarting opPhase = iota // Session.Start or Operation.Open is running; calls to wake have no effect
	opActive                  // the operation is in conn.ops
	opEnded                   // the operation is no longer in conn.ops, and operation.why is set
)

// An operation is one query or subscription of a connection. The connection's mu guards all fields that change after
// opStarting.
type operation struct {
	// The fields that each payload of a Stream needs come first, so that few cache lines are loaded.
	conn           *conn
	stream         Stream // subscription: its Stream; query: a queryResult, set when Run has returned
	phase          opPhase
	query          bool
	running        bool // query: its goroutine was started
	queued         bool // the operation is in conn.ready
	inCall         bool // Run or Next is in progress
	pace           pace // the turn in which Next is called
	closeAfterCall bool // the operation ended during Run or Next, whose goroutine must close the stream
	counted        bool // Operation.Counted
	unsent         int  // query: size of the response until a write contains it
	id             operationID
	shortID        [40]byte // the array of id.raw if it is short; a UUID in quotes has 38 bytes

	// ctx is the context of the operation. It has no timeout: it is a Timeout because that needs little memory as long
	// as nothing waits for its end.
	ctx     *xsync.Timeout
	expires time.Time                    // expiry of the credential under which the operation started; zero if none
	run     func(context.Context) []byte // query: Operation.Run; nil after Run has returned
	size    int                          // Operation.Size
	memory  int                          // Operation.Memory
	why     error                        // argument of Stream.Close
}

// A queryResult is a Stream that returns the result of a query: one payload, or an error.
type queryResult struct {
	payload []byte
	err     error
}

func (r *queryResult) Next() (payload []byte, more bool, err error) {
	if payload, r.payload = r.payload, nil; payload == nil && r.err == nil {
		return nil, false, io.EOF
	}
	return payload, true, r.err
}

func (r *queryResult) Behind() bool                      { return false }
func (r *queryResult) Position() (string, *RequestError) { return "", nil }
func (r *queryResult) Close(error)                       {}

// startOperation processes a start or subscribe message. If the protocol is not strict, the peer may omit
// connection_init; the first operation then authenticates the peer.
func (c *conn) startOperation(id operationID, payload []byte) {
	if !c.inited && c.codec.strict() {
		c.end(ending{cause: causeNoInit, detail: "Operation before connection_init"})
		return
	}
	if c.sessionCtx == nil && !c.authenticate(nil) || !c.freeID(id) {
		return
	}

	op := &operation{conn: c, id: id, ctx: xsync.WithTimeout(c.sessionCtx, 0), expires: expiryOf(c.sessionCtx)}
	o, err := c.callStart(op.ctx, payload)
	if id.raw != nil {
		op.id.raw = append(op.shortID[:0], id.raw...)
	}
	op.run, op.query, op.size, op.memory, op.counted = o.Run, o.Run != nil, o.Size, o.Memory, o.Counted
	if err == nil && o.Open != nil {
		if c.hasMaxSubscriptions() {
			op.ctx.Stop()
			c.callLimit("SocketSubscriptions")
			detail := fmt.Sprintf("More than %d subscriptions on one connection", c.options.MaxSubscriptions)
			c.refuse(id, detail, "LIMIT_EXCEEDED")
			return
		}
		err = c.callOpen(o, op)
	}
	if err != nil {
		expired := hasExpired(op.ctx)
		if op.ctx.Stop(); expired {
			// The end of the connection reports the reason. Clients would not start the operation again if it failed.
			c.end(ending{cause: causeExpired})
			return
		}
		c.failOperation(id, err)
		return
	}

	c.mu.Lock()
	if c.ending != nil {
		op.phase, op.why = opEnded, c.ending.why()
		c.mu.Unlock()
		c.dispose(op)
		return
	}
	op.phase = opActive
	c.ops[id.key] = op
	if op.query {
		c.waitingQueries = append(c.waitingQueries, op)
		c.startQueries()
	} else {
		c.streams++
		c.queueNext(op)
	}
	c.mu.Unlock()
}

// freeID reports whether an operation with the given id may start. It returns false if the connection is draining. If
// the id is in use, freeID ends the connection or, if the protocol is not strict, the operation that uses the id.
func (c *conn) freeID(id operationID) bool {
	c.mu.Lock()
	if c.phase >= phaseDraining || c.drainTimer != nil {
		c.advance(phaseDraining) // a request for an operation ends the delay of drainAfter
		c.scheduleWriter()
		c.mu.Unlock()
		return false // the close frame reports the reason
	}
	old := c.ops[id.key]
	if old != nil && c.codec.strict() {
		c.mu.Unlock()
		c.end(ending{cause: causeIDInUse, detail: "Subscriber for " + id.text() + " already exists"})
		return false
	}
	if old != nil {
		c.retire(old, nil)
		c.queueMessage(c.codec.appendComplete(nil, old.id))
		c.scheduleWriter()
	}
	c.mu.Unlock()
	if old != nil {
		c.dispose(old)
	}
	return true
}

// hasMaxSubscriptions reports whether the connection has so many subscriptions that no further one may start.
func (c *conn) hasMaxSubscriptions() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options.MaxSubscriptions > 0 && c.streams >= c.options.MaxSubscriptions
}

// refuse sends an error for an operation that may not start because of a limit.
func (c *conn) refuse(id operationID, message, code string) {
	c.failOperation(id, &RequestError{Errors: []json.RawMessage{encodeError(message, code)}})
}

// stopOperation processes a stop or complete message.
func (c *conn) stopOperation(id operationID) {
	c.mu.Lock()
	op := c.ops[id.key]
	if op == nil {
		c.mu.Unlock()
		return
	}
	c.retire(op, nil)
	c.queueMessage(c.codec.appendStopped(nil, op.id))
	c.scheduleWriter()
	c.mu.Unlock()
	c.dispose(op)
}

// queueNext schedules a call to op's Next, unless a call is already scheduled or op is not active. The caller must hold
// c.mu.
func (c *conn) queueNext(op *operation) {
	if op.phase != opActive || op.queued {
		return
	}
	op.queued = true
	c.ready = append(c.ready, op)
	c.scheduleWriter()
}

// Wake is called by the Stream of the operation. It implements xsync.Waker, because a function would be another object
// whose memory is loaded for each payload.
func (op *operation) Wake() {
	c := op.conn
	c.mu.Lock()
	c.queueNext(op)
	c.mu.Unlock()
	c.server.writers.yield()
}

// runQuery runs a query and queues its response.
func (c *conn) runQuery(op *operation) {
	payload, err := c.callRun(op.ctx, op.run)
	if hasExpired(op.ctx) { // the expiry timer may fire only after op has ended
		c.end(ending{cause: causeExpired})
	}
	if !op.counted {
		c.account.Add(len(payload)) // may cut this connection, so c.mu must not be held
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	op.run = nil // releases its memory, because the response may wait for a long time
	op.inCall = false
	c.expectedBytes -= op.size
	c.unsentBytes += len(payload)
	defer c.startQueries()
	if op.phase == opEnded {
		c.uncount(op)
		c.releaseUnsent(len(payload))
		return
	}
	op.unsent = len(payload)
	op.stream = &queryResult{payload, err}
	c.queueNext(op)
}

// isLost reports whether err is a *RequestError with Lost set.
func isLost(err error) bool {
	var why *RequestError
	return errors.As(err, &why) && why.Lost
}

// failOperation ends an operation: it sends err to the peer. If err is not a *RequestError, failOperation logs it and
// sends errInternal instead. If err is lost and the codec requires it, failOperation ends the connection.
func (c *conn) failOperation(id operationID, err error) {
	var why *RequestError
	if !errors.As(err, &why) || len(why.Errors) == 0 {
		c.server.log.ErrorContext(c.ctx, "gqlws: operation failed; the client received an internal error",
			guard.Error(err))
		why = errInternal
	}
	if why.Lost && c.codec.lossEndsConnection() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endIfLost(id, why)
		return
	}
	c.sendMessage(c.codec.appendErrors(nil, id, why.Errors))
}

// endIfLost ends the connection if err reports a lost stream and the protocol cannot end that stream alone. The caller
// must hold c.mu.
func (c *conn) endIfLost(id operationID, err error) {
	var why *RequestError
	if c.phase < phaseEnding && errors.As(err, &why) && why.Lost && c.codec.lossEndsConnection() {
		c.phase = phaseEnding
		c.ending = &ending{cause: causeLost, session: why, resumePoints: []resumePoint{{id: id, err: why}}}
		c.scheduleWriter()
	}
}

// retire removes an operation from the connection, so that nothing more is sent for it. why is the argument for
// Stream.Close. The caller must hold c.mu, and must call dispose after it has released c.mu.
func (c *conn) retire(op *operation, why error) {
	op.phase, op.why = opEnded, why
	if op.inCall {
		op.closeAfterCall = true
	}
	delete(c.ops, op.id.key)
	c.ready = slices.DeleteFunc(c.ready, func(o *operation) bool { return o == op })
	c.waitingQueries = slices.DeleteFunc(c.waitingQueries, func(o *operation) bool { return o == op })
	c.releaseUnsent(op.unsent)
	op.unsent = 0
	if !op.closeAfterCall {
		c.uncount(op)
	}
	c.resetInitTimer()
}

// uncount subtracts an ended operation from the number of queries or subscriptions. It is called when neither Run nor
// Next of the operation is running any longer. The caller must hold c.mu.
func (c *conn) uncount(op *operation) {
	switch {
	case op.running:
		c.runningQueries--
	case !op.query:
		c.streams--
	}
	c.startQueries()
	c.changed.Broadcast()
}

// retireAll retires all operations and returns them sorted by id. The caller must hold c.mu.
func (c *conn) retireAll(why error) []*operation {
	ops := slices.SortedFunc(maps.Values(c.ops), func(a, b *operation) int {
		return strings.Compare(a.id.key, b.id.key)
	})
	for _, op := range ops {
		c.retire(op, why)
	}
	return ops
}

// dispose cancels the contexts of retired operations and closes their Streams. If the Next or Run of an operation is
// still running, the goroutine of that call closes the Stream instead.
func (c *conn) dispose(ops ...*operation) {
	for _, op := range ops {
		op.ctx.Stop()
		if op.stream != nil && !op.closeAfterCall {
			c.callClose(op)
		}
	}
}
