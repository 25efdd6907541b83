package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCutFrameReturnsOnlyCompleteFrames(t *testing.T) {
	for _, size := range []int{0, 125, 126, 70_000} {
		text := strings.Repeat("x", size)
		p := []byte{0x81}
		switch {
		case size < 126:
			p = append(p, byte(size))
		case size < 1<<16:
			p = append(p, 126, byte(size>>8), byte(size))
		default:
			p = append(p, 127, 0, 0, 0, 0, 0, byte(size>>16), byte(size>>8), byte(size))
		}
		p = append(append(p, text...), "next"...)
		for _, part := range [][]byte{p[:1], p[:len(p)-5]} {
			if _, rest, whole := cutFrame(part); whole || !bytes.Equal(rest, part) {
				t.Errorf("cutFrame treats the first %d bytes of a frame as complete; its payload has %d bytes",
					len(part), size)
			}
		}
		f, rest, whole := cutFrame(p)
		if !whole || f.opcode != textFrame || string(f.payload) != text || string(rest) != "next" {
			t.Errorf("payload of %d bytes: cutFrame returns whole %v, opcode %d, a payload of %d bytes and rest %q",
				size, whole, f.opcode, len(f.payload), rest)
		}
	}
}

func TestIsWholeReportsOnlyCompleteResponses(t *testing.T) {
	for _, response := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		for n := range len(response) {
			if whole, err := isWhole([]byte(response[:n])); whole || err != nil {
				t.Errorf("isWhole(%q) = %v, %v, want false", response[:n], whole, err)
			}
		}
		if whole, err := isWhole([]byte(response)); !whole || err != nil {
			t.Errorf("isWhole(%q) = %v, %v, want true", response, whole, err)
		}
	}
	if _, err := isWhole([]byte("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")); err == nil {
		t.Error("isWhole accepts a response with status 503")
	}
}
