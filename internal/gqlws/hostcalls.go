package gqlws

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql/internal/guard"
)

// The functions below call the host's code: methods of a Session or a Stream, and functions of an Operation. Each of
// them recovers and logs a panic. A function with an error result also returns an error after a panic or an invalid
// result.

// limitID is the name that Session.Limit receives if an operation id is too long.
const limitID = "IDBytes"

func (c *conn) callOpened() {
	defer c.recoverPanic("Session.Opened", nil)
	c.peer.Opened(c.ctx, c.codec.name(), c.net.peerLeft)
}

func (c *conn) callLimit(name string) {
	defer c.recoverPanic("Session.Limit", nil)
	c.peer.Limit(name)
}

func (c *conn) callBlocked(blocked bool) {
	defer c.recoverPanic("Session.Blocked", nil)
	c.peer.Blocked(blocked)
}

func (c *conn) callClosed(why error) {
	defer c.recoverPanic("Session.Closed", nil)
	c.peer.Closed(why)
}

func (c *conn) callInit(payload []byte) (ctx context.Context, err error) {
	defer c.recoverPanic("Session.Init", &err)
	ctx, err = c.peer.Init(c.ctx, payload)
	if ctx == nil {
		ctx = c.ctx
	}
	return ctx, err
}

func (c *conn) callStart(ctx context.Context, payload []byte) (o Operation, err error) {
	defer c.recoverPanic("Session.Start", &err)
	o, err = c.peer.Start(ctx, payload)
	if err == nil && (o.Run == nil) == (o.Open == nil) {
		err = errors.New("gqlws: Session.Start must set either Operation.Run or Operation.Open")
	}
	return o, err
}

func (c *conn) callOpen(o Operation, op *operation) (err error) {
	defer c.recoverPanic("Operation.Open", &err)
	op.stream, err = o.Open(op)
	switch {
	case err != nil:
		return err
	case op.stream == nil:
		return errors.New("gqlws: Operation.Open returned neither a Stream nor an error")
	}
	if op.stream.Behind() {
		op.pace = paceFirst
	}
	return nil
}

func (c *conn) callNext(s Stream) (payload []byte, more, behind bool, err error) {
	defer c.recoverPanic("Stream.Next", &err)
	payload, more, err = s.Next()
	return payload, more, s.Behind(), err
}

func (c *conn) callClose(op *operation) {
	defer c.recoverPanic("Stream.Close", nil)
	op.stream.Close(op.why)
}

func (c *conn) callPosition(s Stream) (cursor string, own *RequestError) {
	defer c.recoverPanic("Stream.Position", nil)
	return s.Position()
}

func (c *conn) callRun(ctx context.Context, run func(context.Context) []byte) (payload []byte, err error) {
	defer c.recoverPanic("Operation.Run", &err)
	if payload = run(ctx); len(payload) == 0 {
		err = errors.New("gqlws: Operation.Run returned an empty response")
	}
	return payload, err
}

// runProtected runs f and then calls ended. The argument of ended is nil, or errInternal if f panicked or called
// runtime.Goexit. The parameter what is the name of f in the log.
func (c *conn) runProtected(what string, f func(), ended func(error)) {
	err := error(errInternal)
	defer func() { ended(err) }()
	defer c.recoverPanic(what, &err)
	f()
	err = nil
}

// recoverPanic must be deferred around a call into the host's code. If that code panics, recoverPanic logs the panic
// and, unless err is nil, sets *err to errInternal. The parameter what is the name of the call in the log.
func (c *conn) recoverPanic(what string, err *error) {
	if v := recover(); v != nil {
		c.reportPanic(what, v)
		if err != nil {
			*err = errInternal
		}
	}
}

// reportPanic logs the value v of a recovered panic, if it is not nil. The parameter what is the name of the call.
func (c *conn) reportPanic(what string, v any) {
	if v != nil {
		p := guard.New(v)
		c.server.log.ErrorContext(c.ctx, "gqlws: internal error because of a panic in "+what,
			guard.Error(p), guard.Stack(p))
	}
}
