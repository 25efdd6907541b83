package gqlws

import (
	"io"
	"os"
)

// An Account counts the bytes that a connection keeps for its peer: answers to
// queries that are not sent, frames that the peer is waited for to take, and long
// messages of which the rest has still to come. Its methods must not block.
type Account interface {
	// Add counts n more bytes, which may be negative. If n is positive it may cut
	// connections that take nothing, this one among them.
	Add(n int)

	// Progress reports that the peer has taken n bytes.
	Progress(n int)

	// Close ends the count. It is called once, after everything else.
	Close()
}

// uncounted is the Account of a Server that has none.
type uncounted struct{}

func (uncounted) Add(int)      {}
func (uncounted) Progress(int) {}
func (uncounted) Close()       {}

// A counting Reader counts what has come of a message, unless it is small.
type counting struct {
	io.Reader
	account Account
	bytes   int
	counted int
}

func (r *counting) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.bytes += n; r.bytes > smallFrame {
		r.account.Add(r.bytes - r.counted)
		r.counted = r.bytes
	}
	return n, err
}

func (r *counting) release() {
	if r.counted > 0 {
		r.account.Add(-r.counted)
	}
}

func (c *conn) openAccount() Account {
	if c.options.Account == nil {
		return uncounted{}
	}
	return c.options.Account(c.peer, func() {
		c.cut(&severed{ErrCut, "too many answers waiting to be sent", os.ErrDeadlineExceeded})
	})
}

// full reports whether so much waits to be sent that nothing more may be asked
// for. Called with mu held.
func (c *conn) full() bool { return c.options.MaxUnsent > 0 && c.unsent > c.options.MaxUnsent }

// crowded reports whether a query waits for others to end. It keeps its plan, which
// is counted nowhere, so no second one is read. Called with mu held.
func (c *conn) crowded() bool { return len(c.waiting) > 0 }

// begin starts queries that were read, as long as there are places, and what is
// unsent and what the running ones are expected to add leave room. Called with mu
// held.
func (c *conn) begin() {
	most, places := c.options.MaxUnsent, c.options.MaxQueries
	for len(c.waiting) > 0 && (places <= 0 || c.running < places) && (most <= 0 || c.unsent+c.expected <= most) &&
		c.ending == nil && !c.dead {
		op := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.expected += op.size
		c.running++
		op.running = true
		op.busy = true
		c.spawn("query", op.begin)
		c.room.Broadcast()
	}
}

// release counts n bytes of answers as sent, or dropped. Called with mu held.
func (c *conn) release(n int) {
	if n == 0 {
		return
	}
	c.unsent -= n
	c.account.Add(-n)
	c.room.Broadcast()
	c.begin()
}
