package gqlws

import "encoding/binary"

// This package encodes WebSocket frames itself, because coder/websocket takes a lock and makes a system call for each
// frame. With its own frames, the package sends several payloads to a peer in one non-blocking write (see
// BenchmarkFrame and BenchmarkBurst). Only close frames are written by coder/websocket. Frames are never fragmented,
// and they are not masked, because RFC 6455 (section 5.1) forbids servers to mask frames.

const (
	finText = 0x81
	finPing = 0x89
	finPong = 0x8a

	// headerRoom is the number of bytes that openFrame reserves for the header, because the payload length is not known
	// yet. The header of a payload of 126 to 65535 bytes fits exactly. For other lengths, sealFrame moves the payload.
	headerRoom = 4
)

// openFrame appends the beginning of a text frame to b. The caller must then append the payload and call sealFrame.
func openFrame(b []byte) []byte { return append(b, finText, 126, 0, 0) }

// sealFrame completes the text frame that openFrame started at b[from]: it writes the payload length into the header.
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

// appendControl appends a ping or a pong to b. first is the first byte of the frame: finPing or finPong. The payload
// must not exceed 125 bytes.
func appendControl(b []byte, first byte, payload []byte) []byte {
	return append(append(b, first, byte(len(payload))), payload...)
}
