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
// the pong of an idle peer, none has to begin: that costs five times as much.
func (c *conn) look() {
	c.mu.Lock()
	parked := c.parked
	c.parked = false
	c.mu.Unlock()
	if parked && !(c.net.ponged() && c.park()) {
		go c.hear()
	}
}

// aPong is how an empty pong begins; its mask follows.
const aPong = "\x8a\x80"

// ponged reads what has come, and reports whether it is a pong that was waited for
// and nothing else. All else is left to a reader.
func (n *netConn) ponged() bool {
	var p [64]byte
	k, _ := n.glance(p[:]) // an error comes again
	if k == len(aPong)+4 && string(p[:len(aPong)]) == aPong && n.conn.awaited() {
		n.emptied = false
		return true
	}
	n.rest = append(n.rest, p[:k]...)
	return false
}

// awaited is alive where a pong is waited for. MessageRate counts the others.
func (c *conn) awaited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pinged := c.pinged
	c.pinged, c.missed = false, 0
	return pinged
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
