package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestFramesAreCutOffWhereTheyEnd(t *testing.T) {
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
				t.Errorf("%d bytes of a frame of %d are taken for all of it", len(part), size)
			}
		}
		f, rest, whole := cutFrame(p)
		if !whole || f.opcode != textFrame || string(f.payload) != text || string(rest) != "next" {
			t.Errorf("a frame of %d: whole %v, opcode %d, %d bytes and %q behind them", size, whole, f.opcode, len(f.payload), rest)
		}
	}
}

func TestAnswersAreWholeAtTheirEnd(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		for n := range len(answer) {
			if whole, err := isWhole([]byte(answer[:n])); whole || err != nil {
				t.Errorf("%q is whole: %v, %v", answer[:n], whole, err)
			}
		}
		if whole, err := isWhole([]byte(answer)); !whole || err != nil {
			t.Errorf("%q is whole: %v, %v", answer, whole, err)
		}
	}
	if _, err := isWhole([]byte("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")); err == nil {
		t.Error("a refusal is taken for an answer")
	}
}
