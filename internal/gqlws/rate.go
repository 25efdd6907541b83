package gqlws

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	// wholeFrame is what a frame counts against MessageRate: a message, a ping, a
	// pong or an empty fragment. Any other fragment counts 1: a message in many
	// small parts is unusual, but allowed.
	wholeFrame = 16

	// burst and afterEnd are for how many seconds of MessageRate a peer may send
	// at once. Beyond burst its connection is ended. Beyond afterEnd it is cut,
	// although the close frame may be lost: a peer that goes on like that while
	// its connection ends costs as much as before.
	burst    = 3 * time.Second
	afterEnd = 20 * time.Second

	// maxSpare is the most of the time in which the peer was not read that counts as
	// if its frames had come in that time.
	maxSpare = 20 * time.Second
)

// A frameCounter reads the headers of the frames in the bytes that a peer sends.
// The library reports neither fragments nor frames in the close handshake.
type frameCounter struct {
	header [14]byte
	have   int    // bytes of the header that have come
	left   uint64 // bytes of the payload that have not
}

// count returns what the frames count whose headers end in p.
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
			weight += f.begin()
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

// begin goes on to the payload of the frame whose header has come.
func (f *frameCounter) begin() (weight int) {
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
	case op == opClose: // nothing is heard after it
		return 0
	}
	return wholeFrame
}

// charge counts frames against MessageRate, and ends or cuts a connection on which
// too many come. Called by whoever reads the WebSocket: in the close handshake that
// is the writer.
func (c *conn) charge(weight int) {
	rate := c.options.MessageRate
	if rate <= 0 || weight == 0 {
		return
	}
	c.mu.Lock()
	now := time.Now()
	if idle := now.Sub(c.paced); idle > 0 {
		c.spare = min(c.spare+min(idle, c.held), maxSpare)
		c.paced = now
	}
	c.held = 0
	share := time.Duration(weight) * time.Second / time.Duration(rate*wholeFrame)
	saved := min(share, c.spare)
	c.spare -= saved
	c.paced = c.paced.Add(share - saved)
	ahead := c.paced.Sub(now)
	ends := c.ending != nil
	c.mu.Unlock()
	switch {
	case ahead > burst && !ends:
		_ = c.apart(c.tooFast) // which ends the connection, whatever becomes of the Session
		c.waitRoom()
	case ahead > afterEnd:
		c.cut(&severed{ErrRefused, "too many frames while the connection ended", errTooFast})
	}
}

var errTooFast = errors.New("gqlws: too many frames")

// tooFast ends the connection of a peer that says too much.
func (c *conn) tooFast() {
	detail := fmt.Sprintf("More than %d messages a second", c.options.MessageRate)
	if c.end(overLimit(causeTooMany, detail)) {
		c.callLimit("MessageRate")
	}
}
