package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"
)

// A load is a set of connections that send the same request repeatedly. Each connection sends its next
// request when it has received the response to the previous one.
type load struct {
	poller  *poller
	request []byte
	isWhole func([]byte) (bool, error) // reports whether the bytes are a complete response
	fds     []int
	got     [][]byte // incomplete response of each connection

	// awake reports that the client polls without sleeping. Otherwise a server that writes to a client which sleeps on
	// another CPU pays for waking it, and the faster a server is, the fewer of its writes do so.
	awake bool
	buf   []byte
}

// newLoad returns a load of HTTP connections that post a body.
func newLoad(addr string, posted []byte, connections int) (*load, error) {
	request := fmt.Appendf(nil,
		"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, addr,
		len(posted), posted)
	return openLoad(connections, request, isWhole, func() (int, error) { return dial(addr) })
}

// newAwakeLoad is like newLoad, but the client does not sleep. It needs a CPU of its own.
func newAwakeLoad(addr string, posted []byte, connections int) (*load, error) {
	l, err := newLoad(addr, posted, connections)
	if err == nil {
		l.awake = true
	}
	return l, err
}

// newSocketLoad returns a load of WebSockets that send a query.
func newSocketLoad(addr string, payload []byte, connections int) (*load, error) {
	d := dialectOf(own)
	request := message(d.start, stream{id: "1", payload: string(payload)})
	return openLoad(connections, request, isComplete, func() (int, error) {
		fd, _, err := acknowledged(addr, d)
		return fd, err
	})
}

func openLoad(connections int, request []byte, isWhole func([]byte) (bool, error),
	open func() (fd int, err error)) (*load, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	l := &load{poller: p, buf: make([]byte, 64<<10), request: request, isWhole: isWhole}
	for i := range connections {
		fd, err := open()
		if err != nil {
			l.close()
			return nil, err
		}
		l.fds, l.got = append(l.fds, fd), append(l.got, nil)
		if err := p.add(fd, i); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (l *load) close() {
	for _, fd := range l.fds {
		_ = syscall.Close(fd)
	}
	_ = syscall.Close(l.poller.fd)
}

// run posts requests for the duration d and waits for the last responses. It returns the number of
// responses and the elapsed time.
func (l *load) run(d time.Duration) (answered int, took time.Duration, err error) {
	start := time.Now()
	for _, fd := range l.fds {
		if err := send(fd, l.request); err != nil {
			return 0, 0, err
		}
	}
	for waiting := len(l.fds); waiting > 0; {
		events, err := l.wait()
		if err != nil {
			return 0, 0, err
		}
		over := time.Since(start) >= d
		for _, e := range events {
			done, err := l.read(int(e.Fd))
			switch {
			case err != nil:
				return 0, 0, err
			case !done:
			case over:
				answered++
				waiting--
			default:
				answered++
				if err := send(l.fds[e.Fd], l.request); err != nil {
					return 0, 0, err
				}
			}
		}
	}
	return answered, time.Since(start), nil
}

// wait returns the connections that are readable, at least one.
func (l *load) wait() ([]syscall.EpollEvent, error) {
	const timeout = replyTimeout * time.Second
	ms := int(timeout.Milliseconds())
	if l.awake {
		ms = 0
	}
	for start := time.Now(); time.Since(start) < timeout; {
		if events, err := l.poller.wait(ms); err != nil || len(events) > 0 {
			return events, err
		}
	}
	return nil, fmt.Errorf("the server sent no response within %s", timeout)
}

// read reads the available data of connection i. It reports whether the response is complete.
func (l *load) read(i int) (done bool, err error) {
	n, err := syscall.Read(l.fds[i], l.buf)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read: %w", err)
	case n == 0:
		return false, io.ErrUnexpectedEOF
	}
	got := l.buf[:n]
	if len(l.got[i]) > 0 {
		l.got[i] = append(l.got[i], got...)
		got = l.got[i]
	}
	whole, err := l.isWhole(got)
	switch {
	case err != nil:
		return false, err
	case whole:
		l.got[i] = l.got[i][:0]
	case len(l.got[i]) == 0:
		l.got[i] = append(l.got[i], got...)
	}
	return whole, nil
}

// isWhole reports whether got is a complete HTTP response. It returns an error if the status is not 200.
func isWhole(got []byte) (bool, error) {
	head := bytes.Index(got, []byte("\r\n\r\n"))
	if head < 0 {
		return false, nil
	}
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 200 ")) {
		return false, fmt.Errorf("response does not have status 200: %.300q", got)
	}
	for _, name := range []string{"Content-Length: ", "content-length: "} {
		if i := bytes.Index(got[:head], []byte(name)); i >= 0 {
			number := got[i+len(name):]
			length, err := strconv.Atoi(string(number[:bytes.IndexByte(number, '\r')]))
			return len(got) >= head+4+length, err
		}
	}
	return bytes.HasSuffix(got, []byte("\r\n0\r\n\r\n")), nil // chunked
}

// isComplete reports whether the last frame in got completes a query. It returns an error if a frame does not belong to
// the response of a query.
func isComplete(got []byte) (bool, error) {
	f := frame{}
	for len(got) > 0 {
		var whole bool
		if f, got, whole = cutFrame(got); !whole {
			return false, nil
		}
		if f.opcode != textFrame || bytes.Contains(f.payload, []byte(`"errors"`)) {
			return false, fmt.Errorf("unexpected frame with opcode %d: %.300q", f.opcode, f.payload)
		}
	}
	return bytes.Contains(f.payload, []byte(`"complete"`)), nil
}
