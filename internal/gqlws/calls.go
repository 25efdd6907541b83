package gqlws

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// What is called of a Session, its Streams and its queries: each keeps panics,
// and what must not be returned, from the connection.

// limitID is Limit's name for an operation's id that is too long.
const limitID = "IDBytes"

func (c *conn) callOpened() {
	var err error
	defer c.recovered("Session.Opened", &err)
	c.peer.Opened(c.ctx, c.codec.name())
}

func (c *conn) callLimit(name string) {
	var err error
	defer c.recovered("Session.Limit", &err)
	c.peer.Limit(name)
}

func (c *conn) callClosed(why error) {
	var err error
	defer c.recovered("Session.Closed", &err)
	c.peer.Closed(why)
}

func (c *conn) callInit(payload []byte) (ctx context.Context, err error) {
	defer c.recovered("Session.Init", &err)
	ctx, err = c.peer.Init(c.ctx, payload)
	if ctx == nil {
		ctx = c.ctx
	}
	return ctx, err
}

func (c *conn) callStart(ctx context.Context, payload []byte) (how Operation, err error) {
	defer c.recovered("Session.Start", &err)
	how, err = c.peer.Start(ctx, payload)
	if err == nil && (how.Run == nil) == (how.Open == nil) {
		err = errors.New("gqlws: operation has neither Run nor Open, or both")
	}
	return how, err
}

func (c *conn) callOpen(open func(wake func()) (Stream, error), wake func()) (s Stream, err error) {
	defer c.recovered("Operation.Open", &err)
	if s, err = open(wake); err == nil && s == nil {
		err = errors.New("gqlws: subscription has no Stream")
	}
	return s, err
}

func (c *conn) callNext(s Stream) (payload []byte, err error) {
	defer c.recovered("Stream.Next", &err)
	return s.Next()
}

func (c *conn) callClose(op *operation) {
	var err error
	defer c.recovered("Stream.Close", &err)
	op.stream.Close(op.why)
}

func (c *conn) callCursor(s Stream) (cursor string) {
	var err error
	defer c.recovered("Stream.Cursor", &err)
	return s.Cursor()
}

func (c *conn) callPending(s Stream) (own *RequestError) {
	var err error
	defer c.recovered("Stream.Pending", &err)
	return s.Pending()
}

func (c *conn) callRun(ctx context.Context, run func(context.Context) []byte) (payload []byte, err error) {
	defer c.recovered("Operation.Run", &err)
	if payload = run(ctx); len(payload) == 0 {
		err = errors.New("gqlws: query has no answer")
	}
	return payload, err
}

// fenced runs f, and then ended, with an error where foreign code in f panicked or
// ended its goroutine.
func (c *conn) fenced(what string, f func(), ended func(error)) {
	err := error(errInternal)
	defer func() { ended(err) }()
	defer c.recovered(what, &err)
	f()
	err = nil
}

// recovered is deferred around foreign code: a panic becomes a logged error.
func (c *conn) recovered(what string, err *error) {
	if v := recover(); v != nil {
		c.server.log.ErrorContext(c.ctx, "gqlws: panic in "+what,
			"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		*err = errInternal
	}
}
