package gqlws

import "fmt"

// A connection is in use from connection_init on and, without one, while an
// operation runs. Until then, and from the end of its last operation on, the peer
// has the time that the codec's opening returns: messages that start nothing would
// let anybody keep a place for as long as they like.

// beInited is called when a connection_init has come. One that is refused ends the
// connection.
func (c *conn) beInited() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening != nil {
		c.opening.Stop()
		c.opening = nil
	}
}

// awaitUse is called with mu held when an operation has ended.
func (c *conn) awaitUse() {
	if c.opening != nil && len(c.ops) == 0 {
		c.opening.Reset(c.codec.opening(c.options))
	}
}

// checkInUse is called when the time is over.
func (c *conn) checkInUse() {
	c.mu.Lock()
	used := c.opening == nil || len(c.ops) > 0
	c.mu.Unlock()
	if used {
		return
	}
	detail := fmt.Sprintf("No connection_init and no operation for %v", c.codec.opening(c.options))
	c.end(ending{cause: causeSilent, err: encodeError(detail, "TIMEOUT"), detail: detail})
}
