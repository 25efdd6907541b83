package gqlws

import (
	"context"
	"errors"
	"time"
)

// expiryOf returns the deadline of ctx, which Session.Init has returned. If ctx has no deadline, it returns the zero
// time.
func expiryOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

// hasExpired reports whether ctx, the context of an operation, is done because the peer's credential has expired.
func hasExpired(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// earliestExpiry returns the earliest expiry among the last accepted credential and the credentials under which the
// running operations were started. It returns the zero time if none of them expires. The caller must hold c.mu.
func (c *conn) earliestExpiry() time.Time {
	earliest := c.credentialExpiry
	for _, op := range c.ops {
		if !op.expires.IsZero() && (earliest.IsZero() || op.expires.Before(earliest)) {
			earliest = op.expires
		}
	}
	return earliest
}

// resetExpiryTimer sets the expiry timer to the earliest expiry. It need not be called when an operation ends, because
// expire checks the remaining operations. The caller must hold c.mu.
func (c *conn) resetExpiryTimer() {
	if c.expiryTimer != nil {
		c.expiryTimer.Stop()
		c.expiryTimer = nil
	}
	if at := c.earliestExpiry(); !at.IsZero() {
		c.expiryTimer = c.afterFunc(time.Until(at), c.expire)
	}
}

// expire is called by the expiry timer. It ends the connection if a credential has expired; otherwise it resets the
// timer.
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
