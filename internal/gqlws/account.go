package gqlws

import (
	"io"
	"os"
)

// An Account counts the memory in bytes that a connection uses for its peer: unsent query responses, frames that are
// being written, queued control frames beyond maxOutbox, and long messages that have not arrived completely. Its
// methods must not block.
type Account interface {
	// Add adds n bytes, which may be negative. If n is positive, it may cut connections that do not progress, including
	// this one.
	Add(n int)

	// Progress reports that n bytes have been written to the peer.
	Progress(n int)

	// Close releases the account. It is called once, after all other methods.
	Close()
}

// noAccount is the Account that is used if Options.Account is nil.
type noAccount struct{}

func (noAccount) Add(int)      {}
func (noAccount) Progress(int) {}
func (noAccount) Close()       {}

// A countingReader adds the bytes of an incoming message to an account, unless the message is small.
type countingReader struct {
	io.Reader
	account Account
	bytes   int
	counted int
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.bytes += n; r.bytes > smallFrame {
		r.account.Add(r.bytes - r.counted)
		r.counted = r.bytes
	}
	return n, err
}

func (r *countingReader) release() {
	if r.counted > 0 {
		r.account.Add(-r.counted)
	}
}

func (c *conn) openAccount() Account {
	if c.options.Account == nil {
		return noAccount{}
	}
	return c.options.Account(c.peer, func() {
		c.cut(&cutError{ErrCut, "too many unsent responses", os.ErrDeadlineExceeded})
	})
}

// exceedsMaxUnsent reports whether unsent query responses exceed MaxUnsent. The connection is then not read. Called
// with mu held.
func (c *conn) exceedsMaxUnsent() bool {
	return c.options.MaxUnsent > 0 && c.unsentBytes > c.options.MaxUnsent
}

// hasWaitingQueries reports whether a query waits for others to end. The connection is then not read, because the
// plan of a waiting query is not counted anywhere. Called with mu held.
func (c *conn) hasWaitingQueries() bool { return len(c.waitingQueries) > 0 }

// startQueries starts waiting queries while fewer than MaxQueries run and unsent plus expected responses fit in
// MaxUnsent. Called with mu held.
func (c *conn) startQueries() {
	maxUnsent, maxQueries := c.options.MaxUnsent, c.options.MaxQueries
	for len(c.waitingQueries) > 0 && c.phase < phaseEnding &&
		(maxQueries <= 0 || c.runningQueries < maxQueries) &&
		(maxUnsent <= 0 || c.unsentBytes+c.expectedBytes <= maxUnsent) {
		op := c.waitingQueries[0]
		c.waitingQueries = c.waitingQueries[1:]
		c.expectedBytes += op.size
		c.runningQueries++
		op.running = true
		op.inCall = true
		c.spawn("query", op.execute)
		c.changed.Broadcast()
	}
}

// releaseUnsent subtracts n bytes of query responses that were sent or dropped. Called with mu held.
func (c *conn) releaseUnsent(n int) {
	if n == 0 {
		return
	}
	c.unsentBytes -= n
	c.account.Add(-n)
	c.changed.Broadcast()
	c.startQueries()
}
