package chaingql

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// errBusy is the error of a field for which no slot was free in time, or whose query may not wait for one.
var errBusy = &plan.Error{Message: "Too many calls of the backend at once.", Code: codeUnavailable, Limit: "InFlight"}

// errNoRoom is the error of a field whose query may not wait for the Backend, because it and others that wait hold too
// much memory.
var errNoRoom = noRoom().Error

// waitingDivisor is the divisor of PendingResponseBytes for the part that queries may hold while they wait for the
// Backend. It cannot be freed for others before the Backend has responded.
const waitingDivisor = 2

// deadline returns a context for one call of the Backend.
func (r *resolvers) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	t := xsync.WithTimeout(ctx, r.timeout)
	return t, t.Stop
}

// explain returns the error of a timeout if the deadline of ctx has passed and err says nothing more precise, and
// otherwise err.
func (r *resolvers) explain(ctx context.Context, err error) error {
	var known *plan.Error
	expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if expired && !errors.As(err, &known) && !errors.Is(err, ErrUnavailable) {
		r.limit(ctx, "BackendTimeout")
		return late()
	}
	return err
}

// fewCalls is the number of Backend calls after which a query gives way to others: otherwise queries with many calls
// could have those with few refused.
const fewCalls = 4

// patience returns how long a query waits for a slot, given BackendTimeout.
func patience(timeout time.Duration) time.Duration {
	return cmp.Or(timeout, DefaultLimits().BackendTimeout) / 2
}

// wait is called before a query waits for the Backend, for a call of its own or one that it shares. Unless it returns
// an error, waited must be called afterwards. It returns errNoRoom if queries that wait hold too much memory, and
// errBusy if too many wait, because others that need no Backend call must still be served.
func (r *resolvers) wait(ctx context.Context, c *call) error {
	if c.refused != nil {
		return c.refused
	}
	if !r.hold(c) {
		return r.refuse(ctx, c, errNoRoom)
	}
	c.leaveMany() // otherwise queries that only wait would have those refused that need no call
	c.calls++
	if !r.waiting.enter(&c.waits, c.remoteAddr(), c.calls > fewCalls) {
		r.letGo(c)
		return r.refuse(ctx, c, errBusy)
	}
	return nil
}

// remoteAddr returns the network address of the client, or "" if graphql-go executes the query.
func (c *call) remoteAddr() string {
	if c.request != nil {
		return c.request.RemoteAddr
	}
	return c.remote
}

// leaveMany ends the count of a query for many blocks. It counts while it uses a processor, until it waits for the
// Backend.
func (c *call) leaveMany() { c.many.leave(&c.inMany, c.remoteAddr()) }

// refuse reports the limit of err, and returns err. The query does not wait for the Backend again.
func (r *resolvers) refuse(ctx context.Context, c *call, err *plan.Error) error {
	r.limit(ctx, err.Limit)
	c.refused = err
	return err
}

// hold counts the memory of the response so far until letGo is called, or reports that there is no room. Most queries
// that wait have small responses, possibly in reused buffers. They are not counted.
func (r *resolvers) hold(c *call) bool {
	if c.op == nil { // graphql-go executes the query
		return true
	}
	out, ok := c.op.Reservation.(*responseShare)
	return !ok || out.Bytes()-out.base <= maxPooled || r.held.Add(&c.held, out.Bytes(), 0)
}

func (r *resolvers) letGo(c *call) {
	if c.held.Bytes() > 0 {
		r.held.Free(&c.held)
	}
}

// retryable reports whether the query was refused because of too many others, or because the Backend is unavailable.
// Then a retry can succeed.
func (c *call) retryable() bool {
	if c.refused == nil { // the usual case, which allocates nothing
		return false
	}
	var known *plan.Error
	return errors.Is(c.refused, ErrUnavailable) || errors.As(c.refused, &known) && known.Code == codeUnavailable
}

// waited is called after the Backend's response, with its error. If the Backend is unavailable or too slow for the
// query, the query does not wait for it again: 50 calls would take 50 times BackendTimeout.
func (r *resolvers) waited(c *call, err *error) {
	r.letGo(c)
	r.waiting.leave(&c.waits, c.remoteAddr())
	if *err == nil {
		return
	}
	var known *plan.Error
	late := errors.As(*err, &known) && known.Code == codeTimeout
	if late || errors.Is(*err, ErrUnavailable) || errors.Is(*err, errBusy) {
		c.refused = *err
	}
}
