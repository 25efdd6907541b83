package gqlws

import "errors"

// readLoop reads messages until the connection ends or the reader is parked.
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

// park tries to park the reader and reports whether the calling goroutine must end. If it must, the poller or unpark
// starts a new reader goroutine.
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

// unpark starts a reader goroutine if the reader is parked.
func (c *conn) unpark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked {
		c.parked = false
		go c.readLoop()
	}
}

// onReadable is called by the poller when the connection of a parked reader is readable. If the peer has only sent the
// expected pong, onReadable processes it without a reader, because starting a reader goroutine costs five times as
// much. It does not do so during the close handshake, because coder/websocket then reads on the writer's goroutine.
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

// emptyPong is the header of a masked pong without a payload. The mask follows it.
const emptyPong = "\x8a\x80"

// tryReadPong reads the available bytes without blocking and reports whether they are exactly one expected pong. It
// leaves all other bytes to the reader, which also counts unexpected pongs toward MessageRate. The caller must hold
// c.mu, so that the close handshake cannot start during the read.
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

// errIdle means that there is nothing to read and that no frame is incomplete.
var errIdle = errors.New("gqlws: nothing to read")

// mayPark reports whether a read returns errIdle instead of blocking. Reads inside a frame and reads during the close
// handshake block.
func (n *netConn) mayPark() bool {
	if n.inFrame || n.conn == nil {
		return false
	}
	n.conn.mu.Lock()
	defer n.conn.mu.Unlock()
	return !n.neverPark && n.conn.phase < phaseClosing
}
