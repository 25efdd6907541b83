package gqlws

import "encoding/binary"

// Frames are built here rather than by the library, which is asked to write the
// close frame alone: so several go out in one write. They are whole and, as a
// server's are, not masked. (RFC 6455, 5.2)

const (
	finText = 0x81
	finPing = 0x89
	finPong = 0x8a

	// headerRoom is left for a header before it is known how long the payload
	// is: what most take.
	headerRoom = 4
)

// openFrame begins a text frame. Its payload is appended next, then comes seal.
func openFrame(b []byte) []byte { return append(b, finText, 126, 0, 0) }

// sealFrame ends the text frame that openFrame began at from.
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

// appendControl adds a ping or a pong, of at most 125 bytes.
func appendControl(b []byte, first byte, payload []byte) []byte {
	return append(append(b, first, byte(len(payload))), payload...)
}
