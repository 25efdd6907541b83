package attack

import (
	"encoding/binary"
	"net"
	"strconv"
)

// Frames of HTTP/2 (RFC 9113, 6), and flags of them.
const (
	h2Data, h2Headers, h2Settings, h2WindowUpdate = 0, 1, 4, 8
	h2EndStream, h2EndHeaders                     = 1, 4
)

func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, stream)
	return append(b, payload...)
}

// h2Preface begins a connection whose streams may each be sent so many bytes, and
// all of them together without an update the 65,535 that HTTP/2 starts with, or
// without bound if wide.
func h2Preface(window uint32, wide bool) []byte {
	b := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	b = append(b, h2Frame(h2Settings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window))...)
	if wide {
		b = append(b, h2Frame(h2WindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<30))...)
	}
	return b
}

// h2Post begins the i-th stream of a connection with a POST that declares a body
// of length bytes and sends so much of it.
func h2Post(i int, body string, length int, headers ...string) []byte {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) } // shorter than 127
	block := []byte{0x83, 0x86}                                                              // :method POST, :scheme http
	block = text(append(block, 0x04), path)
	block = text(append(block, 0x01), "attacked.example")
	block = text(append(block, 0x0f, 31-15), "application/json")
	block = text(append(block, 0x0f, 28-15), strconv.Itoa(length))
	for j := 0; j+1 < len(headers); j += 2 {
		block = text(text(append(block, 0), headers[j]), headers[j+1])
	}
	stream := uint32(2*i + 1)
	flags := byte(0)
	if len(body) == length {
		flags = h2EndStream
	}
	b := h2Frame(h2Headers, h2EndHeaders, stream, block)
	return append(b, h2Frame(h2Data, flags, stream, []byte(body))...)
}

// dial2 opens a connection of HTTP/2 without TLS and says all of texts on it.
func (s *site) dial2(preface []byte, texts ...[]byte) (net.Conn, error) {
	c, err := s.dialTo(s.server.http2)
	if err != nil {
		return nil, err
	}
	for _, text := range append([][]byte{preface}, texts...) {
		if _, err := c.Write(text); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}
