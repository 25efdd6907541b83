package lite

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

var errShort = errors.New("truncated message")

// constructor returns the id that identifies a message on the wire: the CRC-32 of its line in the
// TL schema.
func constructor(line string) uint32 { return crc32.ChecksumIEEE([]byte(line)) }

func appendUint32(dst []byte, n uint32) []byte { return binary.LittleEndian.AppendUint32(dst, n) }

func appendUint64(dst []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(dst, n) }

// appendBytes appends the length of data and data, padded to a multiple of four bytes.
func appendBytes(dst, data []byte) []byte {
	n := len(data)
	if n < 254 {
		dst = append(dst, byte(n))
		n++
	} else {
		dst = append(dst, 254, byte(n), byte(n>>8), byte(n>>16))
	}
	dst = append(dst, data...)
	for ; n%4 != 0; n++ {
		dst = append(dst, 0)
	}
	return dst
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return appendUint32(dst, idTrue)
	}
	return appendUint32(dst, idFalse)
}

// A reader parses a message. After the first error, all further values are zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.rest) {
		if r.err == nil {
			r.err = errShort
		}
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) readUint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) readUint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) readHash() (h [32]byte) {
	copy(h[:], r.take(32))
	return h
}

func (r *reader) truth() bool {
	switch r.readUint32() {
	case idTrue:
		return true
	case idFalse:
		return false
	}
	r.fail(errUnexpected)
	return false
}

// readBytes reads a byte string. The result shares memory with the message.
func (r *reader) readBytes() []byte {
	head := r.take(1)
	if head == nil {
		return nil
	}
	n, used := int(head[0]), 1
	if n >= 254 {
		size := r.take(3)
		if size == nil {
			return nil
		}
		n, used = int(size[0])|int(size[1])<<8|int(size[2])<<16, 4
	}
	data := r.take(n)
	r.take((4 - (used+n)%4) % 4)
	return data
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
