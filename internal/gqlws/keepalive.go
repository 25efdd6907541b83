package gqlws

import (
	"os"
	"time"
)

// maxMissedPongs is the number of consecutive unanswered pings after which the connection is cut, unless a message
// arrives.
const maxMissedPongs = 2

// pingTick is called by the ping timer. It schedules a ping, or cuts the connection if the peer does not respond to
// pings.
func (c *conn) pingTick() {
	c.mu.Lock()
	silent := false
	if c.phase < phaseEnding && c.pingTimer != nil {
		if silent = !c.schedulePing(); !silent {
			c.pingTimer.Reset(c.options.KeepAliveInterval)
			c.scheduleWriter()
		}
	}
	c.mu.Unlock()
	if silent {
		c.cutUnresponsive()
	}
}

// schedulePing schedules a ping. If maxMissedPongs consecutive pings had no pong, it returns false instead, and the
// caller must cut the connection. The caller must hold c.mu.
func (c *conn) schedulePing() bool {
	// While the connection is not read, pongs are not read either, so that a missing pong does not count. WriteTimeout
	// and QueryWait limit the duration of that state.
	unread := c.hasWaitingQueries() || c.exceedsMaxUnsent() && c.options.WriteTimeout > 0
	if c.awaitsPong && !unread {
		c.missedPongs++
	}
	if c.missedPongs >= maxMissedPongs {
		return false
	}
	c.pingDue = true
	return true
}

func (c *conn) cutUnresponsive() {
	c.cut(&cutError{ErrCut, "no answer to pings", os.ErrDeadlineExceeded})
}

// handlePong is called when a pong has arrived. It resets the number of missed pongs.
func (c *conn) handlePong() {
	c.net.endFrame()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitsPong, c.missedPongs = false, 0
}

// handlePing queues a pong as the response to a ping. It is called by the reader and blocks while too much is queued.
// The time of this wait does not count toward the deadline of the next frame.
func (c *conn) handlePing(payload []byte) {
	c.mu.Lock()
	if c.phase < phaseEnding {
		c.queueFrame(appendControl(nil, finPong, payload))
		c.scheduleWriter()
	}
	c.mu.Unlock()
	c.throttle()
	c.net.endFrame()
}

// keepAliveTick is called by the keep-alive timer and schedules a keep-alive. If the codec has frequent keep-alives,
// this is the second one: it is sent together with a ping, and the wheel sends all later keep-alives. Otherwise each
// keep-alive is due at a multiple of the interval after the ack, even if the previous one was late.
func (c *conn) keepAliveTick() {
	c.mu.Lock()
	if c.phase >= phaseEnding {
		c.mu.Unlock()
		return
	}
	c.keepAliveDue = true
	alive := true
	if c.codec.frequentKeepAlives() {
		alive = c.schedulePing()
		c.keepAliveTimer = nil
		c.server.wheel.add(c)
	} else {
		c.nextKeepAlive = c.nextKeepAlive.Add(c.options.KeepAliveInterval)
		c.keepAliveTimer.Reset(time.Until(c.nextKeepAlive))
	}
	c.scheduleWriter()
	c.mu.Unlock()
	if !alive {
		c.cutUnresponsive()
	}
}

// wheelTick is called by the timing wheel at regular intervals. It schedules a keep-alive and, with every fifth
// keep-alive, a ping. It reports whether the caller must queue the connection in the writer pool.
func (c *conn) wheelTick() bool {
	c.mu.Lock()
	if c.phase >= phaseEnding {
		c.mu.Unlock()
		return false
	}
	if c.beats++; c.beats == 0 {
		c.mu.Unlock()
		return false
	}
	c.keepAliveDue = true
	alive := true
	if c.beats == beatsPerInterval {
		c.beats = 0
		alive = c.schedulePing()
	}
	call := c.claimWriter()
	c.mu.Unlock()
	if !alive {
		c.cutUnresponsive()
	}
	return call
}
