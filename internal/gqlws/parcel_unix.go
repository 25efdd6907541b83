//go:build unix

package gqlws

import (
	"net"
	"os"
	"syscall"
)

// rawOf returns how to write to a connection without waiting, nil where there is
// no such thing. It looks for the types alone that net makes: what wraps one may
// do more on a Write than the one inside.
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

// A parcel is frames on their way to a connection. One serves many connections,
// one after the other.
type parcel struct {
	bytes []byte

	put  func(fd uintptr) bool // writeOnce, which is bound but once
	took int
	err  error
}

func newParcel() *parcel {
	p := new(parcel)
	p.put = p.writeOnce
	return p
}

// offer writes as much as the connection takes at once, which may be nothing.
func (p *parcel) offer(n *netConn) (took int, err error) {
	p.took, p.err = 0, nil
	if err := n.raw.Write(p.put); err != nil {
		return 0, err
	}
	return p.took, p.err
}

// writeOnce reports that it is done, in any case: else it would be called again
// when there is room.
func (p *parcel) writeOnce(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), p.bytes)
		switch err {
		case nil:
			p.took = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
		default:
			p.err = os.NewSyscallError("write", err)
		}
		return true
	}
}
