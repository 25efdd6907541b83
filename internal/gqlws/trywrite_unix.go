//go:build unix

package gqlws

import (
	"net"
	"os"
	"syscall"
)

// rawOf returns the syscall.RawConn of nc, which supports non-blocking I/O, or nil if there is none. It accepts only
// connections of package net, because other types may wrap a connection and do more in Write than write.
func rawOf(nc net.Conn) syscall.RawConn {
	var sc syscall.Conn
	switch nc := nc.(type) {
	case *net.TCPConn:
		sc = nc
	case *net.UnixConn:
		sc = nc
	default:
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// A tryWriter holds frames for one non-blocking write. It is reused for many connections.
type tryWriter struct {
	bytes []byte

	writeFunc func(fd uintptr) bool // method value of writeOnce, created once to avoid allocations
	written   int
	err       error
}

func newTryWriter() *tryWriter {
	p := new(tryWriter)
	p.writeFunc = p.writeOnce
	return p
}

// tryWrite writes as many bytes as the connection accepts without blocking, possibly none. If raw is nil, it writes
// none.
func (p *tryWriter) tryWrite(raw syscall.RawConn) (written int, err error) {
	if raw == nil {
		return 0, nil
	}
	p.written, p.err = 0, nil
	if err := raw.Write(p.writeFunc); err != nil {
		return 0, err
	}
	return p.written, p.err
}

// writeOnce tries to write once. It always returns true, because RawConn.Write would otherwise wait and call it again.
func (p *tryWriter) writeOnce(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), p.bytes)
		switch err {
		case nil:
			p.written = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
		default:
			p.err = os.NewSyscallError("write", err)
		}
		return true
	}
}
