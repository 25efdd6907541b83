package gqlws

import (
	"os"
	"time"
)

// checkAlive is the timer's: it asks the peer for a sign of life.
func (c *conn) checkAlive() {
	c.mu.Lock()
	silent := false
	if !c.dead && c.ending == nil && c.ping != nil {
		if silent = !c.askAlive(); !silent {
			c.ping.Reset(c.options.KeepAlive)
			c.kick()
		}
	}
	c.mu.Unlock()
	if silent {
		c.cutSilent()
	}
}

// askAlive makes a ping due, or reports that the peer is to be cut: a pong that
// has not come when the next ping but one is due will not. Called with mu held.
func (c *conn) askAlive() bool {
	// The pongs of a peer that is not read wait too. It has to take what is written in
	// time, and queries do not wait forever.
	unread := c.crowded() || c.full() && c.options.WriteTimeout > 0
	if c.pinged && !unread {
		c.missed++
	}
	if c.missed >= maxMissed {
		return false
	}
	c.pingDue = true
	return true
}

func (c *conn) cutSilent() {
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
	c.mu.Lock()
	if c.ending == nil {
		c.pushFrame(appendControl(nil, finPong, payload))
		c.kick()
	}
	c.mu.Unlock()
	c.waitRoom()
	c.net.settle()
}

// keepAlive is the timer's: it lets the writer send a keep-alive, and with the
// second one of a codec that quickens a ping. The wheel sends the others of such a
// codec. If not, each is due at a whole multiple of the interval, however late the
// one before it was.
func (c *conn) keepAlive() {
	c.mu.Lock()
	if c.ending != nil || c.dead {
		c.mu.Unlock()
		return
	}
	c.kaDue = true
	alive := true
	if c.codec.quickens() {
		alive = c.askAlive()
		c.ka = nil
		c.server.wheel.add(c)
	} else {
		c.kaNext = c.kaNext.Add(c.options.KeepAlive)
		c.ka.Reset(time.Until(c.kaNext))
	}
	c.kick()
	c.mu.Unlock()
	if !alive {
		c.cutSilent()
	}
}

// beat is the wheel's: it makes a keep-alive due, and a ping with every fifth. It
// reports whether the crew has to be called.
func (c *conn) beat() bool {
	c.mu.Lock()
	if c.ending != nil || c.dead {
		c.mu.Unlock()
		return false
	}
	if c.beats++; c.beats == 0 {
		c.mu.Unlock()
		return false
	}
	c.kaDue = true
	alive := true
	if c.beats == beats {
		c.beats = 0
		alive = c.askAlive()
	}
	call := c.toAttend()
	c.mu.Unlock()
	if !alive {
		c.cutSilent()
	}
	return call
}
