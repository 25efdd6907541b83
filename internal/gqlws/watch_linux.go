package gqlws

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// A watch waits for many connections to have something to read, with one
// goroutine for all of them and an epoll instance of its own: a goroutine for each
// that only waits would be a third of what an idle connection costs.
type watch struct {
	waiting sync.WaitGroup

	mu    sync.Mutex // held while the instance is told of a connection, which takes no time
	file  *os.File   // the epoll instance, there as long as a connection is watched
	epoll int        // its descriptor
	conns map[int32]*conn
}

// await has c.look called when there is something to read, or the peer is gone.
// False is that it cannot, perhaps because the connection is closed.
func (w *watch) await(c *conn) bool {
	ok := false
	err := c.net.raw.Control(func(fd uintptr) { ok = w.arm(c, int32(fd)) })
	return err == nil && ok
}

func (w *watch) arm(c *conn, fd int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil && !w.open() {
		return false
	}
	op := syscall.EPOLL_CTL_MOD
	if w.conns[fd] != c {
		op = syscall.EPOLL_CTL_ADD
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLONESHOT, Fd: fd}
	if err := syscall.EpollCtl(w.epoll, op, int(fd), &event); err != nil {
		w.closeIfNone()
		return false
	}
	w.conns[fd], c.fd = c, fd
	return true
}

// open makes the instance, and has the runtime's own poller wait for it.
func (w *watch) open() bool {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	_ = syscall.SetNonblock(fd, true) // else the file cannot be waited for, which shows here:
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil || file.SetReadDeadline(time.Time{}) != nil {
		_ = file.Close()
		return false
	}
	w.file, w.epoll, w.conns = file, fd, make(map[int32]*conn)
	w.waiting.Go(func() { w.run(raw) })
	return true
}

// run wakes readers until the instance is closed.
func (w *watch) run(raw syscall.RawConn) {
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
			w.mu.Lock()
			c := w.conns[e.Fd] // or who has got its number since, which is woken in vain
			w.mu.Unlock()
			if c != nil {
				c.look()
			}
		}
	}
}

// forget is called at the end of each connection. Its descriptor was closed, so
// the kernel has forgotten it, and another may have the number.
func (w *watch) forget(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns[c.fd] == c {
		delete(w.conns, c.fd)
	}
	w.closeIfNone()
}

func (w *watch) closeIfNone() {
	if w.file != nil && len(w.conns) == 0 {
		_ = w.file.Close()
		w.file, w.conns = nil, nil
	}
}

// canWatch is whether a netConn's glance works.
const canWatch = true

// glance is a Read that does not wait: where there is nothing to read it fails
// with errIdle. After a read that took all there was it fails without a system
// call; the watch reports what has come since.
func (n *netConn) glance(p []byte) (k int, err error) {
	if n.emptied {
		n.emptied = false
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
	n.emptied = k < len(p)
	return k, nil
}
