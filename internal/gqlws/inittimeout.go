package gqlws

import "fmt"

// A connection is in use after connection_init or while an operation is running. An unused connection is closed after
// the time that the codec's initTimeout method returns. Other messages do not extend that time, because otherwise a
// peer could hold a connection forever without authentication.

// stopInitTimer stops the init timer. It is called before Session.Init, because a refused connection_init ends the
// connection anyway.
func (c *conn) stopInitTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.initTimer != nil {
		c.initTimer.Stop()
		c.initTimer = nil
	}
}

// resetInitTimer restarts the init timer if no operation is left. The caller must hold c.mu.
func (c *conn) resetInitTimer() {
	if c.initTimer != nil && len(c.ops) == 0 {
		c.initTimer.Reset(c.codec.initTimeout(c.options))
	}
}

// checkInitTimeout is called by the init timer. It closes the connection if it is unused.
func (c *conn) checkInitTimeout() {
	c.mu.Lock()
	used := c.initTimer == nil || len(c.ops) > 0
	c.mu.Unlock()
	if used {
		return
	}
	detail := fmt.Sprintf("No connection_init and no operation for %v", c.codec.initTimeout(c.options))
	c.end(ending{cause: causeInitTimeout, err: encodeError(detail, "TIMEOUT"), detail: detail})
}
