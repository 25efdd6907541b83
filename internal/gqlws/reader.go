package gqlws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
	"unicode/utf8"
)

// maxMalformed is how many malformed frames in a row end a connection.
const maxMalformed = 10

// smallFrame is the size in bytes of the largest message that is read in microseconds.
const smallFrame = 1 << 10

func (c *conn) listen() (err error) {
	defer c.recovered("reader", &err)
	for {
		frame, err := c.read()
		if err != nil {
			return err
		}
		if err := c.apart(func() { c.receive(frame) }); err != nil {
			return err
		}
		c.waitRoom()
		c.settle(false) // again: the time that this took is not the next frame's
		if len(frame) > smallFrame {
			// Go interrupts a goroutine only after 10 ms. Hundreds of peers that send
			// long messages would keep the others waiting.
			runtime.Gosched()
		}
	}
}

// apart runs f on a goroutine and waits for it. What a message asks for takes a
// deep stack, and the reader would keep its own as long as it waits for the next
// message.
func (c *conn) apart(f func()) error {
	done := make(chan error)
	go c.fenced("reader", f, func(err error) { done <- err })
	return <-done
}

// read returns the next message. One that is too big ends the connection; what
// is returned of it is then not heard any more.
func (c *conn) read() ([]byte, error) {
	_, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	c.settle(true)
	limit := c.options.MaxMessage
	coming := &counting{Reader: r, account: c.account}
	defer coming.release()
	r = coming
	if limit > 0 {
		r = io.LimitReader(r, limit+1)
	}
	// If the connection ends inside a message, a part may come without an error: it is no JSON.
	frame, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if limit > 0 && int64(len(frame)) > limit {
		if c.end(overLimit(causeTooBig, fmt.Sprintf("Message is larger than %d bytes", limit))) {
			if err := c.apart(func() { c.callLimit("MessageBytes") }); err != nil {
				return nil, err
			}
		}
		c.waitRoom()
		// Bytes left unread would turn the close into a reset, which can overtake what
		// the peer is told.
		if _, err := io.Copy(io.Discard, coming.Reader); err != nil {
			return nil, err
		}
	}
	c.settle(false)
	// The library leaves this to its user, and encoding/json lets it pass; an id
	// in which it came back would have a browser cut the connection.
	if !utf8.Valid(frame) {
		const detail = "Message is not UTF-8"
		c.end(ending{cause: causeNotText, err: encodeError(detail, "BAD_REQUEST"), detail: detail})
	}
	return frame, nil
}

// settle says where the reader is in the stream of frames: inside a message or
// behind it. In the close handshake the library reads on the writer's goroutine,
// and deadlines are none of the reader's business.
func (c *conn) settle(inside bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	c.net.message = inside
	if !inside {
		c.net.settle()
	}
}

// waitRoom holds the reader up while a peer does not read what it asked for,
// control frames or answers, or has more queries than may run: it goes on to read,
// or its connection is cut over a stalled write; a query ends, or the last one is
// refused. Where the connection ends, it is until the close frame is out: the
// library closes, with or without one of its own, over what a peer goes on to do
// wrong, and that must not come first.
func (c *conn) waitRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mustWait() {
		return
	}
	began, over := time.Now(), false
	if d := c.options.QueryWait; d > 0 && c.crowded() {
		bound := c.after(d, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			over = true
			c.room.Broadcast()
		})
		defer bound.Stop()
	}
	for c.mustWait() {
		if over && c.crowded() && c.ending == nil {
			c.refuseLast()
			continue
		}
		c.room.Wait()
	}
	c.held += time.Since(began)
}

// mustWait is called with mu held.
func (c *conn) mustWait() bool {
	wait := c.pending > maxOutbox || c.full() || c.crowded() || c.ending != nil
	return wait && !c.broken && !(c.shut && !c.sending)
}

// refuseLast refuses the query that waits for the end of another one. Called with
// mu held, which it lets go of meanwhile, by the reader.
func (c *conn) refuseLast() {
	op := c.waiting[len(c.waiting)-1]
	c.retire(op, nil)
	c.mu.Unlock()
	defer c.mu.Lock()
	c.dispose(op)
	_ = c.apart(func() {
		c.callLimit("SocketQueries")
		c.refuse(op.id, "Too many queries at once on one connection", codeRetry)
	})
}

// receive does what one frame asks for.
func (c *conn) receive(frame []byte) {
	c.mu.Lock()
	over := c.ending != nil
	c.mu.Unlock()
	if over {
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
			c.end(ending{cause: causeMalformed, err: encodeError(tooMany, "BAD_REQUEST"), detail: cmp.Or(m.reason, tooMany)})
			return
		}
		c.say(m.answer)
	case kindWrong:
		c.say(m.answer)
	case kindInit:
		c.beInited()
		c.init(m.payload)
	case kindStart:
		c.startOperation(m.id, m.payload)
	case kindStop:
		c.stopOperation(m.id)
	case kindPing:
		c.say(c.codec.appendPong(nil, m.payload))
	case kindTerminate:
		c.end(ending{cause: causeTerminated})
	}
}

// init answers a connection_init. Keep-alives begin with the first one, and their
// times do not change with a later one: clients measure them.
func (c *conn) init(payload []byte) {
	again := c.inited
	if again && c.codec.strict() {
		c.end(ending{cause: causeSecondInit, detail: "Too many initialisation requests"})
		return
	}
	if !c.enter(payload) {
		return
	}
	c.inited = true

	c.mu.Lock()
	defer c.mu.Unlock()
	c.push(c.codec.appendAck(nil))
	if !again && c.options.KeepAlive > 0 {
		if c.codec.quickens() {
			c.push(c.codec.appendKeepAlive(nil))
			c.ping.Stop()
			c.ping = nil // pings go with keep-alives
		}
		c.kaNext = time.Now().Add(c.options.KeepAlive)
		c.ka = c.after(c.options.KeepAlive, c.keepAlive)
	}
	c.kick()
}

// enter has the Session let the peer in, and reports whether it did.
func (c *conn) enter(payload []byte) bool {
	ctx, err := c.callInit(payload)
	var trouble *RequestError
	switch {
	case errors.As(err, &trouble) && len(trouble.Errors) > 0:
		e := ending{cause: causeInternal, err: trouble.Errors[0], session: trouble}
		if trouble.Lost {
			e.cause = causeLater
		}
		c.end(e)
		return false
	case err != nil:
		c.server.log.InfoContext(c.ctx, "gqlws: peer refused", "remote", c.net.RemoteAddr(), "error", err)
		c.end(ending{cause: causeRefused, err: encodeError("Unauthorized access", "UNAUTHENTICATED"), session: err})
		return false
	}
	c.session = ctx

	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires = expiryOf(ctx)
	c.awaitExpiry()
	return true
}

func (c *conn) startOperation(id identity, payload []byte) {
	if !c.inited && c.codec.strict() {
		c.end(ending{cause: causeNoInit, detail: "Operation before connection_init"})
		return
	}
	if c.session == nil && !c.enter(nil) {
		return
	}

	c.mu.Lock()
	if c.draining || c.turn != nil {
		c.draining = true // its turn has come
		c.kick()
		c.mu.Unlock()
		return // the farewell that is to come says why
	}
	old := c.ops[id.key]
	if old != nil && c.codec.strict() {
		c.mu.Unlock()
		c.end(ending{cause: causeSameID, detail: "Subscriber for " + id.text() + " already exists"})
		return
	}
	if old != nil {
		c.retire(old, nil)
		c.push(c.codec.appendComplete(nil, old.id))
		c.kick()
	}
	c.mu.Unlock()
	if old != nil {
		c.dispose(old)
	}

	op := &operation{id: id, expires: expiryOf(c.session)}
	ctx, cancel := context.WithCancel(c.session)
	op.cancel = cancel
	how, err := c.callStart(ctx, payload)
	op.run, op.query, op.size = how.Run, how.Run != nil, how.Size
	if err == nil && how.Open != nil {
		if c.fullOfStreams() {
			cancel()
			c.callLimit("SocketSubscriptions")
			detail := fmt.Sprintf("More than %d subscriptions on one connection", c.options.MaxSubscriptions)
			c.refuse(id, detail, "LIMIT_EXCEEDED")
			return
		}
		op.stream, err = c.callOpen(how.Open, func() { c.wake(op) })
	}
	if err != nil {
		cancel()
		c.fail(id, err)
		return
	}

	c.mu.Lock()
	op.started = true
	if c.ending != nil {
		op.ended, op.why = true, c.ending.why()
		c.mu.Unlock()
		c.dispose(op)
		return
	}
	c.ops[id.key] = op
	if op.query {
		op.begin = func() { c.answer(ctx, op) }
		c.waiting = append(c.waiting, op)
		c.begin()
	} else {
		c.streams++
		c.queue(op)
	}
	c.mu.Unlock()
}

func (c *conn) fullOfStreams() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options.MaxSubscriptions > 0 && c.streams >= c.options.MaxSubscriptions
}

// refuse tells the peer that an operation does not run because of a limit.
func (c *conn) refuse(id identity, message, code string) {
	c.fail(id, &RequestError{Errors: []json.RawMessage{encodeError(message, code)}})
}

func (c *conn) stopOperation(id identity) {
	c.mu.Lock()
	op := c.ops[id.key]
	if op == nil {
		c.mu.Unlock()
		return
	}
	c.retire(op, nil)
	c.push(c.codec.appendStopped(nil, op.id))
	c.kick()
	c.mu.Unlock()
	c.dispose(op)
}
