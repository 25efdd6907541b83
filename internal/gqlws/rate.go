package gqlws

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	// frameWeight is the weight of a message, ping, pong or empty fragment, as it is counted toward MessageRate. Any
	// other fragment has the weight 1, because a message in many small fragments is unusual but allowed.
	frameWeight = 16

	// burst and burstAfterEnd limit how far a peer may run ahead of MessageRate, expressed as the time that its frames
	// would take at that rate. A peer that exceeds burst has its connection closed with a close frame. A peer that
	// exceeds burstAfterEnd while the connection is closing is cut off, even if that loses the close frame, because
	// reading frames is no cheaper while a connection closes.
	burst         = 3 * time.Second
	burstAfterEnd = 20 * time.Second

	// maxCredit is the maximum time that a rateLimiter credits to the frames of a peer.
	maxCredit = 20 * time.Second
)

// A frameCounter counts frames by parsing their headers in the bytes that a peer sends. It is needed because
// coder/websocket does not report fragments, and does not report any frames during the close handshake.
type frameCounter struct {
	header [14]byte
	have   int    // number of header bytes received
	left   uint64 // number of payload bytes not yet received
}

// count returns the total weight of the frames with headers that end in p.
func (f *frameCounter) count(p []byte) (weight int) {
	for len(p) > 0 {
		if n := min(f.left, uint64(len(p))); n > 0 {
			f.left -= n
			p = p[n:]
			continue
		}
		f.header[f.have] = p[0]
		f.have++
		p = p[1:]
		if f.have == f.headerSize() {
			weight += f.beginPayload()
		}
	}
	return weight
}

func (f *frameCounter) headerSize() int {
	size := 2
	if f.have < size {
		return size
	}
	switch f.header[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if f.header[1]&0x80 != 0 {
		size += 4 // the mask
	}
	return size
}

// beginPayload is called at the end of a frame's header. It returns the frame's weight.
func (f *frameCounter) beginPayload() (weight int) {
	f.have = 0
	f.left = uint64(f.header[1] & 0x7f)
	switch f.left {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(f.header[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(f.header[2:])
	}
	const opContinuation, opClose = 0x0, 0x8
	switch op := f.header[0] & 0x0f; {
	case op == opContinuation && f.left > 0:
		return 1
	case op == opClose: // nothing that follows a close frame is processed
		return 0
	}
	return frameWeight
}

// A rateLimiter measures frames against a rate, with the generic cell rate algorithm (GCRA). While the server does not
// read from the peer, frames may accumulate. The rateLimiter credits that time to the frames that are read afterwards.
type rateLimiter struct {
	arrival time.Time     // time at which the last frame would have arrived at exactly the rate
	unread  time.Duration // time since the last frame during which the server did not read
	credit  time.Duration // unused part of the unread time
}

// add counts frames that arrive now and have the given total weight. rate is in messages per second. add returns the
// time by which the peer is ahead of the rate.
func (r *rateLimiter) add(now time.Time, weight, rate int) (ahead time.Duration) {
	if idle := now.Sub(r.arrival); idle > 0 {
		r.credit = min(r.credit+min(idle, r.unread), maxCredit)
		r.arrival = now
	}
	r.unread = 0
	share := time.Duration(weight) * time.Second / time.Duration(rate*frameWeight)
	credited := min(share, r.credit)
	r.credit -= credited
	r.arrival = r.arrival.Add(share - credited)
	return r.arrival.Sub(now)
}

// chargeFrames counts frames with the given total weight toward MessageRate. If there are too many, it ends or cuts the
// connection. It is called by the goroutine that reads from the WebSocket, which is the writer's goroutine during the
// close handshake.
func (c *conn) chargeFrames(weight int) {
	if c.options.MessageRate <= 0 || weight == 0 {
		return
	}
	c.mu.Lock()
	ahead := c.rate.add(time.Now(), weight, c.options.MessageRate)
	ends := c.phase >= phaseEnding
	c.mu.Unlock()
	switch {
	case ahead > burst && !ends:
		_ = c.onNewGoroutine(c.endTooFast) // ends the connection even if Session.Limit panics
		c.throttle()
	case ahead > burstAfterEnd:
		c.cut(&cutError{ErrRefused, "too many frames while the connection was ending", errTooManyFrames})
	}
}

var errTooManyFrames = errors.New("gqlws: too many frames")

// endTooFast ends a connection because its peer exceeded MessageRate.
func (c *conn) endTooFast() {
	detail := fmt.Sprintf("More than %d messages a second", c.options.MessageRate)
	if c.end(overLimit(causeTooFast, detail)) {
		c.callLimit("MessageRate")
	}
}
