package main

import (
	"fmt"
	"net"
	"syscall"
)

// replyTimeout is the maximum time, in seconds, that a client waits for data from a server.
const replyTimeout = 10

// dial opens a TCP connection and returns its file descriptor, which is in blocking mode. Clients use
// system calls and epoll directly to need little CPU time, because they share the machine with the
// measured servers.
func dial(addr string) (fd int, err error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return 0, err
	}
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	wait := syscall.Timeval{Sec: replyTimeout}
	for _, err := range []error{
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1),
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait),
		syscall.Connect(fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}),
	} {
		if err != nil {
			_ = syscall.Close(fd)
			return 0, fmt.Errorf("dial %s: %w", addr, err)
		}
	}
	return fd, nil
}

// send writes all of p. If fd is non-blocking, the socket buffer must have room for p.
func send(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Write(fd, p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("write: %w", err)
		default:
			p = p[n:]
		}
	}
	return nil
}

// A poller waits for data on many sockets.
type poller struct {
	fd     int
	events [256]syscall.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &poller{fd: fd}, nil
}

// add makes fd non-blocking and registers it. When fd is readable, wait returns an event with number.
func (p *poller) add(fd, number int) error {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return err
	}
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN,
		Fd: int32(number)})
}

// wait blocks until a file descriptor is readable or ms milliseconds have passed. The field Fd of an
// event is the number that was registered with add.
func (p *poller) wait(ms int) ([]syscall.EpollEvent, error) {
	for {
		n, err := syscall.EpollWait(p.fd, p.events[:], ms)
		if err != syscall.EINTR {
			return p.events[:max(0, n)], err
		}
	}
}
