package gqlws

import (
	"context"
	"time"
)

// expiryOf returns the deadline of a context that Init returned, or zero if there is none.
func expiryOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

// earliestExpiry returns the earliest expiry of the last accepted credential and of those under which running
// operations were started. It returns zero if none expires. Called with mu held.
func (c *conn) earliestExpiry() time.Time {
	earliest := c.credentialExpiry
	for _, op := range c.ops {
		if !op.expires.IsZero() && (earliest.IsZero() || op.expires.Before(earliest)) {
			earliest = op.expires
		}
	}
	return earliest
}

// resetExpiryTimer sets the timer for the earliest expiry. It need not be called when an operation ends, because expire
// checks the remaining ones. Called with mu held.
func (c *conn) resetExpiryTimer() {
	if c.expiryTimer != nil {
		c.expiryTimer.Stop()
		c.expiryTimer = nil
	}
	if at := c.earliestExpiry(); !at.IsZero() {
		c.expiryTimer = c.afterFunc(time.Until(at), c.expire)
	}
}

func (c *conn) expire() {
	c.mu.Lock()
	at := c.earliestExpiry()
	due := !at.IsZero() && !time.Now().Before(at)
	if !due && c.phase < phaseClosed {
		c.resetExpiryTimer()
	}
	c.mu.Unlock()
	if due {
		c.end(ending{cause: causeExpired})
	}
}
