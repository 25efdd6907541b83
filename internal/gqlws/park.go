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
