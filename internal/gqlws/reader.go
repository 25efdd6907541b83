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

// maxMalformed is the number of consecutive malformed frames that ends a connection.
const maxMalformed = 10

// smallFrame is the maximum size in bytes of a message that is processed within microseconds.
const smallFrame = 1 << 10

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
		c.setInMessage(false) // again: the next frame's deadline must not include the time since the first call
		if len(frame) > smallFrame {
			// Go preempts a goroutine only after 10 ms. Hundreds of peers with long messages would delay the others.
			runtime.Gosched()
		}
	}
}

// onNewGoroutine runs f on a new goroutine and waits for it. Processing a message grows the stack, and the reader
// would keep the large stack while it waits for the next message.
func (c *conn) onNewGoroutine(f func()) error {
	done := make(chan error)
	go c.runProtected("reader", f, func(err error) { done <- err })
	return <-done
}

// readMessage returns the next message. If it is too large, the connection ends and the returned part is not processed.
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
	// If the connection ends inside a message, ReadAll may return a part without an error. A part is not valid JSON.
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
		// If bytes were left unread, closing would send a TCP reset, which can discard the error on its way to the
		// peer.
		if _, err := io.Copy(io.Discard, counted.Reader); err != nil {
			return nil, err
		}
	}
	c.setInMessage(false)
	// Neither the library nor encoding/json rejects invalid UTF-8. If an id contained it, the response would contain it
	// too, and a browser would cut the connection.
	if !utf8.Valid(frame) {
		const detail = "Message is not UTF-8"
		c.end(ending{cause: causeNotUTF8, err: encodeError(detail, "BAD_REQUEST"), detail: detail})
	}
	return frame, nil
}

// setInMessage records whether the reader is inside a message or between two. During the close handshake it does
// nothing: the library then reads on the writer's goroutine, and the reader must not change deadlines.
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

// throttle blocks the reader while the peer does not read its control frames or responses, or has more queries than may
// run. It returns when the peer reads, a query ends, the last query is refused, or a stalled write cuts the connection.
//
// If the connection ends, throttle waits until the close frame is written: if the reader saw another protocol error
// first, the library would close the connection before it.
func (c *conn) throttle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mustThrottle() {
		return
	}
	if n := c.outboxBytes - maxOutbox; n > 0 { // a long pong, or long errors
		c.mu.Unlock()
		c.account.Add(n) // may cut this connection
		c.mu.Lock()
		defer c.account.Add(-n)
	}
	began, timedOut := time.Now(), false
	if d := c.options.QueryWait; d > 0 && c.hasWaitingQueries() {
		timer := c.afterFunc(d, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			timedOut = true
			c.changed.Broadcast()
		})
		defer timer.Stop()
	}
	for c.mustThrottle() {
		if timedOut && c.hasWaitingQueries() && c.phase < phaseEnding {
			c.refuseLastQuery()
			continue
		}
		c.changed.Wait()
	}
	c.rate.unread += time.Since(began)
}

// mustThrottle reports whether throttle has to wait. Called with mu held.
func (c *conn) mustThrottle() bool {
	wait := c.outboxBytes > maxOutbox || c.exceedsMaxUnsent() || c.hasWaitingQueries() || c.phase >= phaseEnding
	return wait && c.phase < phaseClosed && !(c.closeFrameQueued && !c.inWrite)
}

// refuseLastQuery refuses the last waiting query. Called by the reader with mu held, which it releases temporarily.
func (c *conn) refuseLastQuery() {
	op := c.waitingQueries[len(c.waitingQueries)-1]
	c.retire(op, nil)
	c.mu.Unlock()
	defer c.mu.Lock()
	c.dispose(op)
	_ = c.onNewGoroutine(func() {
		c.callLimit("SocketQueries")
		c.refuse(op.id, "Too many queries at once on one connection", codeRetry)
	})
}

// handleMessage processes one frame.
func (c *conn) handleMessage(frame []byte) {
	c.mu.Lock()
	ignore := c.phase >= phaseEnding
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

// handleInit processes a connection_init. Keep-alives start with the first one. A later one does not change their
// times, because clients measure them.
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
			c.pingTimer = nil // pings go with keep-alives
		}
		c.nextKeepAlive = time.Now().Add(c.options.KeepAliveInterval)
		c.keepAliveTimer = c.afterFunc(c.options.KeepAliveInterval, c.keepAliveTick)
	}
	c.scheduleWriter()
}

// authenticate calls Session.Init and reports whether it accepted the peer.
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
		c.server.log.InfoContext(c.ctx, "gqlws: peer refused", "remote", c.net.RemoteAddr(), "error", err)
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
