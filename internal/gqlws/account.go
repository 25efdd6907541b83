package gqlws

import (
	"io"
	"os"
	"slices"
)

// An Account counts the memory in bytes that one connection uses for:
//   - unsent query responses
//   - large frames while a write waits for the peer
//   - queued frames beyond maxOutbox
//   - large messages while they are being read
//
// The methods of an Account must not block.
type Account interface {
	// Add adds n bytes to the account. A negative n subtracts bytes. If n is positive, Add may cut connections that
	// make no progress, including the account's own connection.
	Add(n int)

	// Hold adds n bytes for queries that wait to be started, until release is called. If the bytes are needed for
	// something else, or if there is no room for them, refuse is called, from any goroutine. A client whose queries
	// wait may read well, so Hold must not cut its connection. refuse is not called after release has returned.
	Hold(n int, refuse func()) (release func())

	// Progress reports that n bytes have been written to the peer.
	Progress(n int)

	// Close releases the account. It is called once, after all calls to other methods.
	Close()
}

// noAccount is an Account that counts nothing. It is used if Options.Account is nil.
type noAccount struct{}

func (noAccount) Add(int)                 {}
func (noAccount) Hold(int, func()) func() { return func() {} }
func (noAccount) Progress(int)            {}
func (noAccount) Close()                  {}

// A countingReader reads an incoming message. It adds the bytes of the message to an account if the message is larger
// than smallFrame.
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

// exceedsMaxUnsent reports whether the unsent query responses exceed MaxUnsent. If they do, the connection is not read
// until some have been sent. The caller must hold c.mu.
func (c *conn) exceedsMaxUnsent() bool {
	return c.options.MaxUnsent > 0 && c.unsentBytes > c.options.MaxUnsent
}

// hasWaitingQueries reports whether a query waits to be started. If one does, the connection is not read, so that there
// is only one. The caller must hold c.mu.
func (c *conn) hasWaitingQueries() bool { return len(c.waitingQueries) > 0 }

// startQueries starts waiting queries as long as fewer than MaxQueries queries run and the unsent and expected
// responses together do not exceed MaxUnsent. The caller must hold c.mu.
func (c *conn) startQueries() {
	maxUnsent, maxQueries := c.options.MaxUnsent, c.options.MaxQueries
	for len(c.waitingQueries) > 0 && c.phase < phaseEnding &&
		(maxQueries <= 0 || c.runningQueries < maxQueries) &&
		(maxUnsent <= 0 || c.unsentBytes+c.expectedBytes <= maxUnsent) {
		op := c.waitingQueries[0]
		c.waitingQueries = slices.Delete(c.waitingQueries, 0, 1) // [1:] would keep op and its response in memory
		c.expectedBytes += op.size
		c.runningQueries++
		op.running = true
		op.inCall = true
		c.spawn("query", func() { c.runQuery(op) })
		c.changed.Broadcast()
	}
}

// releaseUnsent subtracts n bytes of query responses that were sent or dropped, and starts waiting queries for which
// there is now room. The caller must hold c.mu.
func (c *conn) releaseUnsent(n int) {
	if n == 0 {
		return
	}
	c.unsentBytes -= n
	c.account.Add(-n)
	c.changed.Broadcast()
	c.startQueries()
}
