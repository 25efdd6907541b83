package gqlws

import (
	"errors"
	"os"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	// lingerTime is how long the reader of a busy connection waits for the next message before it is parked. A reader
	// that waits needs a goroutine, but starting one for each message costs more CPU time (BenchmarkQuery).
	lingerTime = time.Second

	// busyWakes is the number of times in a row that a reader was parked for less than lingerTime, after which its
	// connection is busy. It is more than the messages with which most clients begin.
	busyWakes = 8

	// lingeringPerCPU is the maximum number of lingering readers per CPU. If each connection sends a message every few
	// milliseconds, a CPU cannot process the messages of more connections.
	lingeringPerCPU = 1024
)

// readLoop reads messages until the connection ends or the reader is parked.
func (c *conn) readLoop() {
	for {
		err := c.readMessages()
		if !errors.Is(err, errIdle) {
			c.finish(err)
			return
		}
		if c.park() {
			return
		}
	}
}

// park tries to park the reader and reports whether the calling goroutine must end. If it must, the poller or unpark
// starts a new reader goroutine.
func (c *conn) park() bool {
	c.mu.Lock()
	c.parked, c.parkedAt = true, xsync.Clock(0)
	c.mu.Unlock()
	if c.server.poller.arm(c) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.parked { // another reader has started
		return true
	}
	c.parked, c.net.neverPark = false, true
	return false
}

// unpark starts a reader goroutine if the reader is parked.
func (c *conn) unpark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked {
		c.parked = false
		go c.readLoop()
	}
}

// onReadable is called by the poller when the connection of a parked reader is readable. If the peer has only sent the
// expected pong, onReadable processes it without a reader, because starting a reader goroutine costs five times as
// much. It does not do so during the close handshake, because coder/websocket then reads on the writer's goroutine.
func (c *conn) onReadable() {
	c.mu.Lock()
	parked := c.parked
	c.parked = false
	isPong := parked && c.phase < phaseClosing && c.tryReadPong()
	if parked && !isPong {
		c.countWake()
	}
	c.mu.Unlock()
	if parked && !(isPong && c.park()) {
		go c.readLoop()
	}
}

// emptyPong is the header of a masked pong without a payload. The mask follows it.
const emptyPong = "\x8a\x80"

// tryReadPong reads the available bytes without blocking and reports whether they are exactly one expected pong. It
// leaves all other bytes to the reader, which also counts unexpected pongs toward MessageRate. The caller must hold
// c.mu, so that the close handshake cannot start during the read.
func (c *conn) tryReadPong() bool {
	var p [64]byte
	k, _ := c.net.tryRead(p[:]) // the reader gets the same error again
	if k != len(emptyPong)+4 || string(p[:len(emptyPong)]) != emptyPong || !c.awaitsPong {
		c.net.prefetched = append(c.net.prefetched, p[:k]...)
		return false
	}
	c.net.exhausted = false
	c.awaitsPong, c.missedPongs = false, 0
	return true
}

// countWake counts how often in a row the reader was parked for a short time, and makes the reader of a busy connection
// linger. It is called before a parked reader starts.
func (c *conn) countWake() {
	if xsync.Clock(0)-c.parkedAt >= lingerTime {
		c.wakes = 0
	}
	if c.wakes++; c.wakes < busyWakes {
		return
	}
	c.wakes = 0
	if c.server.lingering.Add(1) > int64(lingeringPerCPU*c.server.writers.maxWorkers) {
		c.server.lingering.Add(-1)
		return
	}
	c.net.lingering = true
}

// stopLingering makes the reader park as soon as there is nothing to read. Only the reader may call it.
func (c *conn) stopLingering() {
	if c.net.lingering {
		c.net.lingering = false
		c.server.lingering.Add(-1)
	}
}

// errIdle means that there is nothing to read and that no frame is incomplete.
var errIdle = errors.New("gqlws: nothing to read")

// beginRead returns the function for the next read and sets the read deadline for it. Only a read between two frames
// may return errIdle, and not during the close handshake, for which closeHandshake has removed the deadline.
func (n *netConn) beginRead() func([]byte) (int, error) {
	c := n.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := !n.inFrame && !n.neverPark && c.phase < phaseClosing
	var deadline time.Time
	read := n.Conn.Read
	switch {
	case idle && n.lingering:
		read, deadline = n.lingerRead, n.lingerDeadline()
	case idle:
		read = n.tryRead
	case n.inFrame && c.phase < phaseClosing:
		deadline = n.frameEnd
	}
	n.exhausted = n.exhausted && idle && !n.lingering
	n.setReadDeadline(deadline)
	return read
}

// lingerDeadline returns the deadline of a lingering read. It returns the previous one if at least half of lingerTime
// is left, because setting a deadline takes longer than reading the clock.
func (n *netConn) lingerDeadline() time.Time {
	now := time.Now()
	if left := n.readDeadline.Sub(now); lingerTime/2 <= left && left <= lingerTime {
		return n.readDeadline
	}
	return now.Add(lingerTime)
}

// lingerRead waits for bytes to read, at most until the deadline. After the deadline, the reader stops lingering, and
// lingerRead returns errIdle if there is still nothing to read.
func (n *netConn) lingerRead(p []byte) (int, error) {
	k, err := n.Conn.Read(p)
	if k > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return k, err
	}
	n.conn.stopLingering()
	return n.beginRead()(p)
}
