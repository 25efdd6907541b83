package gqlws

import "errors"

// hear reads until there is nothing to read, or the connection ends, however that
// comes about.
func (c *conn) hear() {
	for {
		err := c.listen()
		if !errors.Is(err, errIdle) {
			c.finish(err)
			return
		}
		if c.park() {
			return
		}
	}
}

// park reports whether the reader is to end, until unpark has another one begin.
func (c *conn) park() bool {
	c.mu.Lock()
	c.parked = true
	c.mu.Unlock()
	if c.server.watch.await(c) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.parked { // another one has begun
		return true
	}
	c.parked, c.net.stay = false, true
	return false
}

func (c *conn) unpark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked {
		c.parked = false
		go c.hear()
	}
}

// look is the watch's: there is something to read for a parked reader. If that is
// the pong of an idle peer, none has to begin: that costs five times as much. In the
// close handshake the library reads, on the writer's goroutine.
func (c *conn) look() {
	c.mu.Lock()
	parked := c.parked
	c.parked = false
	ponged := parked && !c.closing && c.ponged()
	c.mu.Unlock()
	if parked && !(ponged && c.park()) {
		go c.hear()
	}
}

// aPong is how an empty pong begins; its mask follows.
const aPong = "\x8a\x80"

// ponged reads what has come, without waiting, and reports whether it is a pong that
// was waited for and nothing else: MessageRate counts other pongs. All else is left
// to a reader. Called with mu held, so that the close handshake does not begin
// meanwhile.
func (c *conn) ponged() bool {
	var p [64]byte
	k, _ := c.net.glance(p[:]) // an error comes again
	if k != len(aPong)+4 || string(p[:len(aPong)]) != aPong || !c.pinged {
		c.net.rest = append(c.net.rest, p[:k]...)
		return false
	}
	c.net.emptied = false
	c.pinged, c.missed = false, 0
	return true
}

// errIdle is that there is nothing to read, between two frames.
var errIdle = errors.New("gqlws: nothing to read")

// mayPark is whether the reader is to end with errIdle rather than to wait. The
// close handshake is waited for.
func (n *netConn) mayPark() bool {
	if n.begun || n.conn == nil {
		return false
	}
	n.conn.mu.Lock()
	defer n.conn.mu.Unlock()
	return !n.stay && !n.conn.closing
}
