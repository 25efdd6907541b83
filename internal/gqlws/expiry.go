package gqlws

import (
	"context"
	"time"
)

// expiryOf returns the deadline of a context that Init returned, zero if there is
// none.
func expiryOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

// earliestExpiry returns when the first credential expires: that of the last
// connection_init, or one under which a running operation was started before.
// Zero is never. Called with mu held.
func (c *conn) earliestExpiry() time.Time {
	earliest := c.expires
	for _, op := range c.ops {
		if !op.expires.IsZero() && (earliest.IsZero() || op.expires.Before(earliest)) {
			earliest = op.expires
		}
	}
	return earliest
}

// awaitExpiry sets the timer. That operations end needs no change of it: expire
// looks at those that are left. Called with mu held.
func (c *conn) awaitExpiry() {
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	if at := c.earliestExpiry(); !at.IsZero() {
		c.expiry = c.after(time.Until(at), c.expire)
	}
}

func (c *conn) expire() {
	c.mu.Lock()
	at := c.earliestExpiry()
	due := !at.IsZero() && !time.Now().Before(at)
	if !due && !c.dead {
		c.awaitExpiry()
	}
	c.mu.Unlock()
	if due {
		c.end(ending{cause: causeExpired})
	}
}
