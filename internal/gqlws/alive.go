package gqlws

import (
	"os"
	"time"
)

// checkAlive asks the peer for a sign of life. One that has not come when the
// next but one is due will not.
func (c *conn) checkAlive() {
	c.mu.Lock()
	if c.dead || c.ending != nil {
		c.mu.Unlock()
		return
	}
	if c.pinged {
		c.missed++
	}
	if c.missed < maxMissed {
		c.ping.Reset(c.options.KeepAlive)
		c.pingDue = true
		c.kick()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.cut(&severed{ErrCut, "no answer to pings", os.ErrDeadlineExceeded})
}

// alive is told of a pong.
func (c *conn) alive() {
	c.net.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pinged, c.missed = false, 0
}

// pong answers a ping. Called by the reader, which waits for room: the time that
// this takes is not the next frame's.
func (c *conn) pong(payload []byte) {
	if c.tooMany() {
		_ = c.apart(c.tooFast) // which ends the connection, whatever becomes of the Session
	}
	c.mu.Lock()
	if c.ending == nil {
		c.pushFrame(appendControl(nil, finPong, payload))
		c.kick()
	}
	c.mu.Unlock()
	c.waitRoom()
	c.net.settle()
}

// keepAlive lets the writer send a keep-alive. Each is due at a whole multiple of
// the rhythm, however late the one before it was.
func (c *conn) keepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil || c.dead {
		return
	}
	c.kaDue = true
	c.kaNext = c.kaNext.Add(c.options.KeepAlive)
	c.ka.Reset(time.Until(c.kaNext))
	c.kick()
}
