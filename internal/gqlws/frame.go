package gqlws

import "encoding/binary"

// Frames are built here because coder/websocket writes each one with a system call and a lock of its own. Built here,
// several blocks go to a peer in one write without blocking (BenchmarkFrame, BenchmarkBurst). The library writes only
// the close frame. Frames are not fragmented and, as RFC 6455 (5.2) requires of servers, not masked.

const (
	finText = 0x81
	finPing = 0x89
	finPong = 0x8a

	// headerRoom is the space in bytes that openFrame reserves for a header before the payload's length is known. It
	// fits payloads of 126 to 65535 bytes; sealFrame moves others.
	headerRoom = 4
)

// openFrame starts a text frame. Append the payload next, then call sealFrame.
func openFrame(b []byte) []byte { return append(b, finText, 126, 0, 0) }

// sealFrame completes the text frame that openFrame started at offset from.
func sealFrame(b []byte, from int) []byte {
	payload := b[from+headerRoom:]
	n := len(payload)
	switch {
	case n < 126:
		b[from+1] = byte(n)
		copy(b[from+2:], payload)
		return b[:from+2+n]
	case n <= 0xffff:
		binary.BigEndian.PutUint16(b[from+2:], uint16(n))
		return b
	}
	b = append(b, 0, 0, 0, 0, 0, 0)
	copy(b[from+10:], b[from+headerRoom:from+headerRoom+n])
	b[from+1] = 127
	binary.BigEndian.PutUint64(b[from+2:], uint64(n))
	return b
}

func appendText(b, payload []byte) []byte {
	from := len(b)
	return sealFrame(append(openFrame(b), payload...), from)
}

// appendControl appends a ping or a pong. The payload must have at most 125 bytes.
func appendControl(b []byte, first byte, payload []byte) []byte {
	return append(append(b, first, byte(len(payload))), payload...)
}
