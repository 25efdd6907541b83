package xsync

import "time"

// minRate is the rate in bytes per second at which a peer must at least receive.
const minRate = 16 << 10

// A WriteDeadline limits the time in which a peer receives n bytes that are written in
// pieces. Each time that it has accepted a piece, it has timeout for the next one, but for
// all of them it has at most timeout plus n/minRate seconds. The zero value does not
// limit the time.
type WriteDeadline struct {
	timeout time.Duration // 0 means no limit
	at, end time.Duration // Clock times; at is the deadline in force, and end the last possible one
}

// NewWriteDeadline returns the WriteDeadline for n bytes, the first of which are written
// now.
func NewWriteDeadline(timeout time.Duration, n int) WriteDeadline {
	return WriteDeadlineFrom(Clock(0), timeout, n)
}

// WriteDeadlineFrom is like NewWriteDeadline, but does not read the Clock: now is the current Clock time.
func WriteDeadlineFrom(now, timeout time.Duration, n int) WriteDeadline {
	if timeout <= 0 {
		return WriteDeadline{}
	}
	at := After(now, timeout)
	return WriteDeadline{timeout, at, at + time.Duration(n)*time.Second/minRate}
}

// Extend records that the peer has accepted a piece.
func (d *WriteDeadline) Extend() { d.at = min(Clock(d.timeout), d.end) }

// Time returns the deadline of the next piece. It returns false if the time is not limited.
func (d *WriteDeadline) Time() (at time.Time, limited bool) { return start.Add(d.at), d.timeout > 0 }

// Passed reports whether the deadline has passed.
func (d *WriteDeadline) Passed() bool { return d.timeout > 0 && Clock(0) >= d.at }
