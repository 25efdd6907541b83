package gqlws

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// A poller waits until any of many connections is readable. It uses one goroutine and one epoll instance. A waiting
// goroutine per connection would use a third of the memory of an idle connection (BenchmarkIdle). Existing code does
// not fit: Go's netpoller cannot wait without a goroutine per connection, and event-loop libraries replace the
// connections of net/http.
type poller struct {
	wg sync.WaitGroup

	mu    sync.Mutex // held during epoll_ctl, which does not block
	file  *os.File   // epoll instance; nil if no connection is watched
	epoll int        // file descriptor of the epoll instance
	conns map[int32]*conn
}

// arm makes the poller call c.onReadable once, when the connection is readable or the peer has closed it. It returns
// false if this is not possible, for example because the connection is closed.
func (p *poller) arm(c *conn) bool {
	ok := false
	err := c.net.raw.Control(func(fd uintptr) { ok = p.armFD(c, int32(fd)) })
	return err == nil && ok
}

func (p *poller) armFD(c *conn, fd int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil && !p.open() {
		return false
	}
	op := syscall.EPOLL_CTL_MOD
	if p.conns[fd] != c {
		op = syscall.EPOLL_CTL_ADD
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLONESHOT, Fd: fd}
	if err := syscall.EpollCtl(p.epoll, op, int(fd), &event); err != nil {
		p.closeIfEmpty()
		return false
	}
	p.conns[fd], c.fd = c, fd
	return true
}

// open creates the epoll instance, registers it with the poller of the Go runtime, and starts run. It reports whether
// it succeeded.
func (p *poller) open() bool {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	_ = syscall.SetNonblock(fd, true) // otherwise SetReadDeadline below fails
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil || file.SetReadDeadline(time.Time{}) != nil {
		_ = file.Close()
		return false
	}
	p.file, p.epoll, p.conns = file, fd, make(map[int32]*conn)
	p.wg.Go(func() { p.run(raw) })
	return true
}

// run calls onReadable for readable connections until the epoll instance is closed.
func (p *poller) run(raw syscall.RawConn) {
	var events [128]syscall.EpollEvent
	for {
		n := 0
		if err := raw.Read(func(fd uintptr) bool {
			for {
				var err error
				if n, err = syscall.EpollWait(int(fd), events[:], 0); err != syscall.EINTR {
					return n != 0
				}
			}
		}); err != nil {
			return
		}
		for _, e := range events[:max(n, 0)] {
			p.mu.Lock()
			c := p.conns[e.Fd] // or a later connection with the same descriptor, whose reader then finds nothing
			p.mu.Unlock()
			if c != nil {
				c.onReadable()
			}
		}
	}
}

// remove forgets a connection that has ended. The kernel has already removed its closed descriptor from the epoll
// instance, and another connection may use the same descriptor number.
func (p *poller) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c.fd] == c {
		delete(p.conns, c.fd)
	}
	p.closeIfEmpty()
}

func (p *poller) closeIfEmpty() {
	if p.file != nil && len(p.conns) == 0 {
		_ = p.file.Close()
		p.file, p.conns = nil, nil
	}
}

// hungUp reports whether the connection is closed, by either side, or the peer has closed its half of it, even if there
// are unread bytes, which a read would return first.
func hungUp(raw syscall.RawConn) (yes bool) {
	err := raw.Control(func(fd uintptr) {
		epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
		if err != nil {
			return
		}
		defer syscall.Close(epoll)
		events := []syscall.EpollEvent{{Events: syscall.EPOLLRDHUP, Fd: int32(fd)}}
		if syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, int(fd), &events[0]) == nil {
			n, _ := syscall.EpollWait(epoll, events, 0)
			yes = n > 0
		}
	})
	return yes || err != nil
}

// canPoll reports whether netConn.tryRead is supported.
const canPoll = true

// tryRead reads without blocking. If there is nothing to read, it returns errIdle. After a read that returned all
// available bytes, the next call returns errIdle without a system call, because the poller reports bytes that arrive
// later.
func (n *netConn) tryRead(p []byte) (k int, err error) {
	if n.exhausted {
		n.exhausted = false
		return 0, errIdle
	}
	failed := n.raw.Read(func(fd uintptr) bool {
		for {
			if k, err = syscall.Read(int(fd), p); err != syscall.EINTR {
				return true
			}
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == syscall.EAGAIN:
		return 0, errIdle
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case k == 0:
		return 0, io.EOF
	}
	n.exhausted = k < len(p)
	return k, nil
}
