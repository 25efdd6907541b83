package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"syscall"
)

// A dialect is a WebSocket subprotocol, with the types of the messages that start and stop an operation.
type dialect struct{ protocol, start, stop string }

// dialectOf returns the newest subprotocol that a peer supports.
func dialectOf(peer string) dialect {
	if peer == gophersGo {
		return dialect{"graphql-ws", "start", "stop"}
	}
	return dialect{"graphql-transport-ws", "subscribe", "complete"}
}

// These substrings identify messages from the server.
var (
	ack      = []byte(`"connection_ack"`)
	nextWord = []byte(`"next"`)
	dataWord = []byte(`"type":"data"`)
)

// A frame is a frame from the server. It contains a whole message, because no peer fragments messages.
type frame struct {
	opcode  byte
	payload []byte
}

const (
	textFrame  = 1
	closeFrame = 8
	pingFrame  = 9
	pongFrame  = 10
)

// cutFrame parses the first frame of p. If it is incomplete, rest is p.
func cutFrame(p []byte) (f frame, rest []byte, whole bool) {
	if len(p) < 2 {
		return f, p, false
	}
	head, length := 2, uint64(p[1])
	switch {
	case length == 126 && len(p) >= 4:
		head, length = 4, uint64(binary.BigEndian.Uint16(p[2:]))
	case length == 127 && len(p) >= 10:
		head, length = 10, binary.BigEndian.Uint64(p[2:])
	case length >= 126:
		return f, p, false
	}
	if uint64(len(p)-head) < length {
		return f, p, false
	}
	end := head + int(length)
	return frame{p[0] & 0xf, p[head:end]}, p[end:], true
}

// appendFrame appends a client frame to dst. The mask is zero, so the payload is unchanged.
func appendFrame(dst []byte, opcode byte, payload []byte) []byte {
	dst = append(dst, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	default:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}

// message returns a frame with a client message of the given type.
func message(kind string, s stream) []byte {
	text := map[string]any{"type": kind}
	if s.id != "" {
		text["id"] = s.id
	}
	if s.payload != "" {
		text["payload"] = json.RawMessage(s.payload)
	}
	body, err := json.Marshal(text)
	if err != nil {
		panic(err) // the payload of a stream is valid JSON
	}
	return appendFrame(nil, textFrame, body)
}

// openSocket opens a WebSocket and starts a stream. It also returns the bytes that it has read after
// the acknowledgment.
func openSocket(addr string, d dialect, s stream) (fd int, rest []byte, err error) {
	if fd, rest, err = acknowledged(addr, d); err != nil {
		return 0, nil, err
	}
	return fd, rest, send(fd, message(d.start, s))
}

// acknowledged opens a WebSocket and waits for the acknowledgment of connection_init. It also returns the
// bytes that it has read after that.
func acknowledged(addr string, d dialect) (fd int, rest []byte, err error) {
	fd, err = dial(addr)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(fd)
		}
	}()
	upgrade := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"+
		"Sec-WebSocket-Protocol: %s\r\n\r\n", path, addr, d.protocol)
	if err := send(fd, []byte(upgrade)); err != nil {
		return 0, nil, err
	}
	got, head := []byte{}, -1
	for head < 0 {
		if got, err = more(fd, got); err != nil {
			return 0, nil, err
		}
		head = bytes.Index(got, []byte("\r\n\r\n"))
	}
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 101 ")) {
		return 0, nil, fmt.Errorf("server refused the upgrade: %.300q", got)
	}
	got = got[head+4:]
	if err := send(fd, message("connection_init", stream{payload: "{}"})); err != nil {
		return 0, nil, err
	}
	for {
		f, rest, whole := cutFrame(got)
		switch {
		case !whole:
			if got, err = more(fd, got); err != nil {
				return 0, nil, err
			}
			continue
		case bytes.Contains(f.payload, ack):
			return fd, rest, nil
		case f.opcode == closeFrame:
			return 0, nil, fmt.Errorf("server closed the socket: %.300q", f.payload)
		}
		got = rest
	}
}

// more reads from fd, blocking until data is available, and appends the data to got.
func more(fd int, got []byte) ([]byte, error) {
	var buf [4096]byte
	for {
		n, err := syscall.Read(fd, buf[:])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return got, fmt.Errorf("read: %w", err)
		case n == 0:
			return got, io.ErrUnexpectedEOF
		default:
			return append(got, buf[:n]...), nil
		}
	}
}
