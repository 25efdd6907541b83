package gqlws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
	"unicode/utf8"
)

// maxMalformed is the number of consecutive malformed frames after which the connection is closed.
const maxMalformed = 10

// smallFrame is the maximum size in bytes of a small message, which is processed within microseconds and is not counted
// in the Account.
const smallFrame = 1 << 10

// readMessages reads and processes messages until an error occurs or there is nothing to read (errIdle).
func (c *conn) readMessages() (err error) {
	defer c.recoverPanic("reader", &err)
	for {
		frame, err := c.readMessage()
		if err != nil {
			return err
		}
		if err := c.onNewGoroutine(func() { c.handleMessage(frame) }); err != nil {
			return err
		}
		c.throttle()
		c.setInMessage(false) // again, so that the next frame's deadline excludes the time spent on this message
		if len(frame) > smallFrame {
			// Go preempts a goroutine only after 10 ms. Without this call, hundreds of peers that send long messages
			// would delay all other peers.
			runtime.Gosched()
		}
	}
}

// onNewGoroutine runs f on a new goroutine and waits for it. The reader needs this, because processing a message grows
// the stack, and the reader would otherwise keep its large stack while it waits for the next message. If f panics or
// calls runtime.Goexit, onNewGoroutine returns errInternal.
func (c *conn) onNewGoroutine(f func()) error {
	done := make(chan error)
	go c.runProtected("reader", f, func(err error) { done <- err })
	return <-done
}

// readMessage returns the next message. If the message is too large, readMessage ends the connection and returns the
// beginning of the message, which handleMessage ignores.
func (c *conn) readMessage() ([]byte, error) {
	_, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	c.setInMessage(true)
	limit := c.options.MaxMessage
	counted := &countingReader{Reader: r, account: c.account}
	defer counted.release()
	r = counted
	if limit > 0 {
		r = io.LimitReader(r, limit+1)
	}
	// If the connection ends inside a message, ReadAll may return a part of it without an error. Such a part is not
	// processed, because it is not valid JSON.
	frame, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if limit > 0 && int64(len(frame)) > limit {
		if c.end(overLimit(causeTooBig, fmt.Sprintf("Message is larger than %d bytes", limit))) {
			if err := c.onNewGoroutine(func() { c.callLimit("MessageBytes") }); err != nil {
				return nil, err
			}
		}
		c.throttle()
		// Read the rest of the message: closing a connection with unread bytes sends a TCP reset, which can discard the
		// error before the peer has received it.
		if _, err := io.Copy(io.Discard, counted.Reader); err != nil {
			return nil, err
		}
	}
	c.setInMessage(false)
	// Neither coder/websocket nor encoding/json rejects invalid UTF-8. If an operation id contained it, the response
	// would contain it too, and a browser would close the connection.
	if !utf8.Valid(frame) {
		const detail = "Message is not UTF-8"
		c.end(ending{cause: causeNotUTF8, err: encodeError(detail, "BAD_REQUEST"), detail: detail})
	}
	return frame, nil
}

// setInMessage records whether the reader is inside a message or between two messages. During the close handshake it
// does nothing, because coder/websocket then reads on the writer's goroutine and the reader must not change deadlines.
func (c *conn) setInMessage(inside bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase >= phaseClosing {
		return
	}
	c.net.inMessage = inside
	if !inside {
		c.net.endFrame()
	}
}

// throttle blocks the reader while too many control frames or responses wait to be sent, or while a query waits to be
// started. It returns when enough of them have been sent, when the waiting query has started or was refused, or when a
// stalled write has cut the connection.
//
// If the connection is ending, throttle waits until the close frame has been written. If the reader continued earlier
// and found another protocol violation, coder/websocket would close the connection before the close frame.
func (c *conn) throttle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mustThrottle() {
		return
	}
	if n := c.outboxBytes - maxOutbox; n > 0 { // for example a long pong, or long errors
		c.mu.Unlock()
		c.account.Add(n) // may cut this connection
		c.mu.Lock()
		defer c.account.Add(-n)
	}
	began := time.Now()
	var refusal *queryRefusal // nil as long as the waiting query may wait
	if c.hasWaitingQueries() {
		defer c.limitWait(&refusal)()
	}
	for c.mustThrottle() {
		if refusal != nil && c.hasWaitingQueries() && c.phase < phaseEnding {
			c.refuseLastQuery(refusal)
			continue
		}
		c.changed.Wait()
	}
	c.rate.unread += time.Since(began)
}

// A queryRefusal is the reason for which a waiting query is refused.
type queryRefusal struct{ limit, message string }

var (
	waitedTooLong = &queryRefusal{"SocketQueries", "Too many queries at once on one connection"}
	memoryNeeded  = &queryRefusal{"PendingResponseBytes", "Too many answers at once."}
)

// limitWait counts the memory of the waiting query. It sets *refusal, under c.mu, if the query must not wait any
// longer. The reader must call release when the wait has ended. It holds c.mu during both calls, which release c.mu
// temporarily.
func (c *conn) limitWait(refusal **queryRefusal) (release func()) {
	refuse := func(why *queryRefusal) func() {
		return func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			*refusal = cmp.Or(*refusal, why)
			c.changed.Broadcast()
		}
	}
	stop := func() bool { return false }
	if d := c.options.QueryWait; d > 0 {
		stop = c.afterFunc(d, refuse(waitedTooLong)).Stop
	}
	memory := 0
	for _, op := range c.waitingQueries {
		memory += op.memory
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	free := c.account.Hold(memory, refuse(memoryNeeded))
	return func() {
		stop()
		c.mu.Unlock()
		defer c.mu.Lock()
		free()
	}
}

// mustThrottle reports whether throttle has to wait. The caller must hold c.mu.
func (c *conn) mustThrottle() bool {
	wait := c.outboxBytes > maxOutbox || c.exceedsMaxUnsent() || c.hasWaitingQueries() || c.phase >= phaseEnding
	return wait && c.phase < phaseClosed && !(c.closeFrameQueued && !c.inWrite)
}

// refuseLastQuery refuses the query that arrived last among those that wait. It is called by the reader, which must
// hold c.mu. It releases c.mu temporarily.
func (c *conn) refuseLastQuery(why *queryRefusal) {
	op := c.waitingQueries[len(c.waitingQueries)-1]
	c.retire(op, nil)
	c.mu.Unlock()
	defer c.mu.Lock()
	c.dispose(op)
	_ = c.onNewGoroutine(func() {
		c.callLimit(why.limit)
		c.refuse(op.id, why.message, codeRetry)
	})
}

// handleMessage processes one message. It ignores the message if the connection is ending.
func (c *conn) handleMessage(frame []byte) {
	c.mu.Lock()
	ignore := c.phase >= phaseEnding
	c.missedPongs = 0 // the peer is alive, and its pong may be behind messages that the server has not read yet
	c.mu.Unlock()
	if ignore {
		return
	}
	m := c.codec.decode(frame)
	if m.kind != kindMalformed {
		c.malformed = 0
	}
	if m.limit != "" {
		c.callLimit(m.limit)
	}
	switch m.kind {
	case kindMalformed:
		c.malformed++
		if c.malformed >= maxMalformed || c.codec.strict() {
			const tooMany = "Too many messages that are not JSON objects"
			err := encodeError(tooMany, "BAD_REQUEST")
			c.end(ending{cause: causeMalformed, err: err, detail: cmp.Or(m.reason, tooMany)})
			return
		}
		c.sendMessage(m.reply)
	case kindInvalid:
		c.sendMessage(m.reply)
	case kindInit:
		c.stopInitTimer()
		c.handleInit(m.payload)
	case kindStart:
		c.startOperation(m.id, m.payload)
	case kindStop:
		c.stopOperation(m.id)
	case kindPing:
		c.sendMessage(c.codec.appendPong(nil, m.payload))
	case kindTerminate:
		c.end(ending{cause: causeTerminated})
	}
}

// handleInit processes a connection_init message. The first one starts the keep-alives. A later one does not change
// their schedule, because clients measure the time between keep-alives.
func (c *conn) handleInit(payload []byte) {
	repeated := c.inited
	if repeated && c.codec.strict() {
		c.end(ending{cause: causeSecondInit, detail: "Too many initialisation requests"})
		return
	}
	if !c.authenticate(payload) {
		return
	}
	c.inited = true

	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueMessage(c.codec.appendAck(nil))
	if !repeated && c.options.KeepAliveInterval > 0 {
		if c.codec.frequentKeepAlives() {
			c.queueMessage(c.codec.appendKeepAlive(nil))
			c.pingTimer.Stop()
			c.pingTimer = nil // from now on, pings are sent together with keep-alives
		}
		c.nextKeepAlive = time.Now().Add(c.options.KeepAliveInterval)
		c.keepAliveTimer = c.afterFunc(c.options.KeepAliveInterval, c.keepAliveTick)
	}
	c.scheduleWriter()
}

// authenticate calls Session.Init and reports whether it accepted the peer. If it did not, authenticate ends the
// connection.
func (c *conn) authenticate(payload []byte) bool {
	ctx, err := c.callInit(payload)
	var reqErr *RequestError
	switch {
	case errors.As(err, &reqErr) && len(reqErr.Errors) > 0:
		e := ending{cause: causeInternal, err: reqErr.Errors[0], session: reqErr}
		if reqErr.Lost {
			e.cause = causeTryAgain
		}
		c.end(e)
		return false
	case err != nil:
		c.end(ending{cause: causeRefused, err: encodeError("Unauthorized access", "UNAUTHENTICATED"), session: err})
		return false
	}
	c.sessionCtx = ctx

	c.mu.Lock()
	defer c.mu.Unlock()
	c.credentialExpiry = expiryOf(ctx)
	c.resetExpiryTimer()
	return true
}
