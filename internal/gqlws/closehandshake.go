package gqlws

import (
	"os"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/guard"
)

// closeHandshake sends the reason why the connection ends and the positions of its streams, and then performs the close
// handshake. It cuts the connection after closeTimeout, because coder/websocket does not limit the time if a peer
// stalls. It closes the streams when it is known whether the peer has received the reason.
func (c *conn) closeHandshake() {
	c.mu.Lock()
	c.advance(phaseClosing)
	c.net.setReadDeadline(time.Time{}) // closeTimeout replaces the deadline of an incomplete frame
	ops := c.retireAll(nil)
	c.mu.Unlock()
	timer := c.afterFunc(closeTimeout, func() {
		c.cut(&cutError{ErrCut, "close handshake took too long", os.ErrDeadlineExceeded})
	})
	defer timer.Stop()
	points := c.resumePointsOf(ops)
	c.mu.Lock()
	c.ending.resumePoints = append(c.ending.resumePoints, points...)
	e := *c.ending
	c.mu.Unlock()

	ok, code, reason := c.writeLastMessages(e)
	c.mu.Lock()
	c.setWhy(e.why())
	for _, op := range ops {
		op.why = c.why
	}
	c.mu.Unlock()
	c.dispose(ops...)
	if !ok {
		return
	}
	if err := c.ws.Close(code, reason); err != nil {
		c.server.log.DebugContext(c.ctx, "gqlws: client did not answer the close frame", guard.Error(err))
	}
}

// writeLastMessages writes the messages that precede the close frame and reports whether it succeeded. It also returns
// the code and the reason for the close frame.
func (c *conn) writeLastMessages(e ending) (ok bool, code websocket.StatusCode, reason string) {
	var b []byte
	add := func(message []byte) {
		if len(message) > 0 {
			b = appendText(b, message)
		}
	}
	for _, s := range e.resumePoints {
		add(c.codec.appendResumePoint(nil, e, s))
	}
	message, code, reason := c.codec.closing(nil, e)
	add(message)
	return len(b) == 0 || c.writeBeforeClose(b), code, reason
}

// writeBeforeClose writes frames directly, without gather. It fails if coder/websocket has already responded to the
// peer's close frame. Otherwise coder/websocket writes its close frame only after writeBeforeClose has returned.
func (c *conn) writeBeforeClose(frames []byte) bool {
	c.mu.Lock()
	if c.closeFrameQueued {
		c.mu.Unlock()
		return false
	}
	c.inWrite = true
	c.mu.Unlock()
	return c.writeFrames(frames)
}
