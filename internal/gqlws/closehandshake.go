package gqlws

import (
	"os"
	"time"

	"github.com/coder/websocket"
)

// closeHandshake sends the reason why the connection ends and the positions of its streams, and performs the close
// handshake. The library does not limit the time of the handshake if a peer stalls, so closeHandshake limits it to
// closeTimeout. The streams are closed when it is known whether the peer has received the reason.
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
	for i, s := range points {
		points[i].err = c.callPending(s.stream)
	}
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
		c.server.log.DebugContext(c.ctx, "gqlws: close handshake not finished", "error", err)
	}
}

// writeLastMessages writes all messages before the close frame and reports whether that succeeded. It returns the
// code and the reason of the close frame.
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

// writeBeforeClose writes frames without gather. It fails if the library has already responded to the peer's close
// frame; otherwise the library's close frame waits until writeBeforeClose has returned.
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
