package gqlws

import "errors"

// readLoop reads until the connection ends or the reader is parked.
func (c *conn) readLoop() {
	for {
		err := c.readMessages()
		if !errors.Is(err, errIdle) {
			c.finish(err)
			return
		}
		if c.park() {
			return
		}
	}
}

// park reports whether the reader goroutine must end. The poller or unpark then starts another one.
func (c *conn) park() bool {
	c.mu.Lock()
	c.parked = true
	c.mu.Unlock()
	if c.server.poller.arm(c) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.parked { // another reader has started
		return true
	}
	c.parked, c.net.neverPark = false, true
	return false
}

// unpark starts a reader if it is parked.
func (c *conn) unpark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked {
		c.parked = false
		go c.readLoop()
	}
}

// onReadable is called by the poller when a parked reader has something to read. If that is only the pong of an idle
// peer, no reader is started, because starting one costs five times as much. During the close handshake the library
// reads on the writer's goroutine.
func (c *conn) onReadable() {
	c.mu.Lock()
	parked := c.parked
	c.parked = false
	isPong := parked && c.phase < phaseClosing && c.tryReadPong()
	c.mu.Unlock()
	if parked && !(isPong && c.park()) {
		go c.readLoop()
	}
}

// emptyPong is the header of an empty masked pong; the mask follows.
const emptyPong = "\x8a\x80"

// tryReadPong reads the available bytes without blocking and reports whether they are exactly one expected pong. It
// leaves anything else to a reader; unexpected pongs count against MessageRate. Called with mu held, so that the
// close handshake cannot start at the same time.
func (c *conn) tryReadPong() bool {
	var p [64]byte
	k, _ := c.net.tryRead(p[:]) // the reader gets the same error again
	if k != len(emptyPong)+4 || string(p[:len(emptyPong)]) != emptyPong || !c.awaitsPong {
		c.net.prefetched = append(c.net.prefetched, p[:k]...)
		return false
	}
	c.net.exhausted = false
	c.awaitsPong, c.missedPongs = false, 0
	return true
}

// errIdle reports that there is nothing to read between two frames.
var errIdle = errors.New("gqlws: nothing to read")

// mayPark reports whether a read returns errIdle instead of blocking. Reads inside a frame and during the close
// handshake block.
func (n *netConn) mayPark() bool {
	if n.inFrame || n.conn == nil {
		return false
	}
	n.conn.mu.Lock()
	defer n.conn.mu.Unlock()
	return !n.neverPark && n.conn.phase < phaseClosing
}
