package gqlws

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// The sizes of a connection's buffers: most connections are idle, and there are
// many. What the library writes, a close frame of at most 127 bytes, fits, and so
// goes out in one write.
const (
	readBuffer  = 256
	writeBuffer = 128

	// putBytes is the most that is written at once where the peer is waited for.
	putBytes = 64 << 10
)

// netConn is the captured TCP (or TLS) connection: closing it is the one thing
// that always frees a WebSocket, so the connection keeps it in its own hands. It
// puts a deadline on each write and on the rest of each begun frame.
type netConn struct {
	net.Conn
	frameTimeout time.Duration
	writeTimeout time.Duration

	raw  syscall.RawConn // to write without waiting; nil where that cannot be
	conn *conn           // told of what fails; nil during the handshake
	br   *bufio.Reader   // what the WebSocket reads through
	rest []byte          // read by net/http before it was taken over

	// These belong to whoever reads the WebSocket.
	begun   bool // some of a frame has come, and its deadline is set
	message bool // some of a message has come
	emptied bool // the last glance took all there was
	frames  frameCounter

	stay   bool        // the reader is never parked; conn's mu guards it
	closed atomic.Bool // by this side: what fails from then on is no news
}

func newNetConn(nc net.Conn, rest []byte, frameTimeout, writeTimeout time.Duration) *netConn {
	n := &netConn{Conn: nc, raw: rawOf(nc), rest: rest, frameTimeout: frameTimeout, writeTimeout: writeTimeout}
	n.stay = n.raw == nil || !canWatch
	n.br = bufio.NewReaderSize(n, readBuffer)
	return n
}

func (n *netConn) Read(p []byte) (int, error) {
	if len(n.rest) > 0 {
		k := copy(p, n.rest)
		n.rest = n.rest[k:]
		n.came(p[:k])
		return k, nil
	}
	read := n.Conn.Read
	if n.mayPark() {
		read = n.glance
	} else {
		n.emptied = false
	}
	k, err := read(p)
	if k > 0 {
		n.came(p[:k])
	}
	if err != nil && err != errIdle {
		n.failed("read failed", err)
	}
	return k, err
}

// Write is the library's, which writes the handshake and a close frame.
func (n *netConn) Write(p []byte) (int, error) {
	if n.conn != nil {
		n.conn.waitShut()
		defer n.conn.told()
	}
	return n.put(p)
}

// put writes all of it. The deadline is taken back, so that it does not stand in
// the way of a write that would not wait.
func (n *netConn) put(p []byte) (int, error) {
	if n.writeTimeout > 0 {
		if err := n.SetWriteDeadline(time.Now().Add(n.writeTimeout)); err != nil {
			n.failed("write failed", err)
			return 0, fmt.Errorf("write deadline: %w", err)
		}
	}
	written := 0
	for { // by pieces, so that progress shows
		k, err := n.Conn.Write(p[written:min(len(p), written+putBytes)])
		written += k
		if err != nil {
			n.failed("write failed", err)
			return written, err
		}
		if n.conn != nil {
			n.conn.account.Progress(k)
		}
		if written == len(p) {
			break
		}
	}
	var err error
	if n.writeTimeout > 0 {
		err = n.SetWriteDeadline(time.Time{})
	}
	return written, err
}

// Close has a reader that is parked find out.
func (n *netConn) Close() error {
	n.closed.Store(true)
	err := n.Conn.Close()
	if n.conn != nil {
		n.conn.unpark()
	}
	return err
}

// failed tells why the connection ends before the library knows: it closes the
// connection on any error, and a read then fails for no reason of its own.
func (n *netConn) failed(reason string, err error) {
	if n.conn == nil || n.closed.Load() {
		return
	}
	kind := ErrGone
	if errors.Is(err, os.ErrDeadlineExceeded) {
		kind = ErrCut
	}
	n.conn.blame(&severed{kind, reason, err})
}

// came is called with what was read, before anything of it is acted upon.
func (n *netConn) came(p []byte) {
	n.begin()
	if weight := n.frames.count(p); n.conn != nil {
		n.conn.charge(weight)
	}
}

// begin sets the deadline of a frame when its first bytes have come. The bytes
// that follow do not move it, so that one who dribbles gains nothing.
func (n *netConn) begin() {
	if n.begun {
		return
	}
	n.begun = true
	if n.frameTimeout > 0 {
		n.readBy(time.Now().Add(n.frameTimeout))
	}
}

// settle goes back to waiting after a whole message or control frame. A control
// frame between the parts of a message leaves the message's deadline as it is.
func (n *netConn) settle() {
	if n.message {
		return
	}
	n.begun = false
	if n.br.Buffered() > 0 {
		n.begin() // the next frame has come along
		return
	}
	n.readBy(time.Time{})
}

func (n *netConn) readBy(t time.Time) {
	// It fails on a closed connection alone, and the read that follows says so.
	_ = n.SetReadDeadline(t)
}

// handshake is the http.ResponseWriter that the WebSocket library sees: it takes
// the connection over as a netConn, and holds refusals back, so that the caller
// can answer in its own form.
type handshake struct {
	w            http.ResponseWriter
	header       http.Header
	frameTimeout time.Duration
	writeTimeout time.Duration

	conn      *netConn // set when the connection was taken over
	hijackErr error    // why it was not
}

func newHandshake(w http.ResponseWriter, o *Options) *handshake {
	return &handshake{w: w, header: w.Header().Clone(), frameTimeout: o.FrameTimeout, writeTimeout: o.WriteTimeout}
}

func (h *handshake) Header() http.Header { return h.header }

// WriteHeader sends nothing: Hijack writes the one answer there is.
func (h *handshake) WriteHeader(int) {}

func (h *handshake) Write(p []byte) (int, error) { return len(p), nil }

func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, brw, err := http.NewResponseController(h.w).Hijack()
	if err != nil {
		h.hijackErr = err
		return nil, nil, err
	}
	ahead, err := brw.Reader.Peek(brw.Reader.Buffered())
	if err != nil {
		panic(err) // what is buffered can be peeked at
	}
	// A copy, since the buffer it is in, of 4 KiB with net/http, would live as long
	// as the connection.
	h.conn = newNetConn(nc, bytes.Clone(ahead), h.frameTimeout, h.writeTimeout)

	// Written here rather than through the ResponseWriter, since of the many that
	// wrap one, not all write a header before they give up the connection.
	var answer bytes.Buffer
	answer.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if err := h.header.Write(&answer); err != nil {
		panic(err) // a bytes.Buffer takes everything
	}
	answer.WriteString("\r\n")
	if _, err := h.conn.Write(answer.Bytes()); err != nil {
		return nil, nil, fmt.Errorf("write handshake: %w", err)
	}
	return h.conn, bufio.NewReadWriter(h.conn.br, bufio.NewWriterSize(h.conn, writeBuffer)), nil
}
