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

// Sizes of a connection's buffers in bytes. They are small because most connections are idle. writeBuffer holds the
// largest frame that the library writes, a close frame of at most 127 bytes, so that it is sent in one write.
const (
	readBuffer  = 256
	writeBuffer = 128

	// maxWriteChunk is the maximum size in bytes of one blocking write.
	maxWriteChunk = 64 << 10
)

// A netConn is the hijacked TCP or TLS connection. The conn keeps it because closing it is the only reliable way to end
// blocked calls of the WebSocket library. It sets a deadline for each write and for the rest of each incomplete frame.
type netConn struct {
	net.Conn
	frameTimeout time.Duration
	writeTimeout time.Duration

	raw        syscall.RawConn // for non-blocking I/O; nil if not supported
	conn       *conn           // receives errors; nil during the handshake
	br         *bufio.Reader   // source of the WebSocket library
	prefetched []byte          // bytes read by net/http before Hijack or by tryReadPong

	// Used by the goroutine that reads the WebSocket.
	inFrame   bool // a frame is incomplete and its deadline is set
	inMessage bool // a message is incomplete
	exhausted bool // the last tryRead read all available bytes
	frames    frameCounter

	neverPark bool        // the reader is never parked; conn's mu guards it
	closed    atomic.Bool // closed by the server: later errors are not reported
}

func newNetConn(nc net.Conn, prefetched []byte, frameTimeout, writeTimeout time.Duration) *netConn {
	n := &netConn{Conn: nc, frameTimeout: frameTimeout, writeTimeout: writeTimeout, prefetched: prefetched}
	n.raw = rawOf(nc)
	n.neverPark = n.raw == nil || !canPoll
	n.br = bufio.NewReaderSize(n, readBuffer)
	return n
}

func (n *netConn) Read(p []byte) (int, error) {
	if len(n.prefetched) > 0 {
		k := copy(p, n.prefetched)
		n.prefetched = n.prefetched[k:]
		n.received(p[:k])
		return k, nil
	}
	read := n.Conn.Read
	if n.mayPark() {
		read = n.tryRead
	} else {
		n.exhausted = false
	}
	k, err := read(p)
	if k > 0 {
		n.received(p[:k])
	}
	if err != nil && err != errIdle {
		n.reportError("read failed", err)
	}
	return k, err
}

// Write is called by the library for the handshake and for a close frame.
func (n *netConn) Write(p []byte) (int, error) {
	if n.conn != nil {
		n.conn.beginCloseFrame()
		defer n.conn.endWrite()
	}
	return n.writeAll(p)
}

// writeAll writes all of p within the write timeout. It then removes the deadline, so that non-blocking writes do not
// fail.
func (n *netConn) writeAll(p []byte) (int, error) {
	if n.writeTimeout > 0 {
		if err := n.SetWriteDeadline(time.Now().Add(n.writeTimeout)); err != nil {
			n.reportError("write failed", err)
			return 0, fmt.Errorf("write deadline: %w", err)
		}
	}
	written := 0
	for { // in pieces, to report progress
		k, err := n.Conn.Write(p[written:min(len(p), written+maxWriteChunk)])
		written += k
		if err != nil {
			n.reportError("write failed", err)
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

// Close closes the connection and starts a parked reader, so that it notices.
func (n *netConn) Close() error {
	n.closed.Store(true)
	err := n.Conn.Close()
	if n.conn != nil {
		n.conn.unpark()
	}
	return err
}

// reportError reports why the connection ends. It must be called before the library sees the error, because the library
// closes the connection on any error, and the next read then fails without the cause.
func (n *netConn) reportError(reason string, err error) {
	if n.conn == nil || n.closed.Load() {
		return
	}
	kind := ErrGone
	if errors.Is(err, os.ErrDeadlineExceeded) {
		kind = ErrCut
	}
	n.conn.recordCut(&cutError{kind, reason, err})
}

// received is called with received bytes before they are processed.
func (n *netConn) received(p []byte) {
	n.beginFrame()
	if weight := n.frames.count(p); n.conn != nil {
		n.conn.chargeFrames(weight)
	}
}

// beginFrame sets the deadline of a frame when its first bytes have arrived. Further bytes do not extend it.
func (n *netConn) beginFrame() {
	if n.inFrame {
		return
	}
	n.inFrame = true
	if n.frameTimeout > 0 {
		n.setReadDeadline(time.Now().Add(n.frameTimeout))
	}
}

// endFrame removes the deadline after a complete message or control frame. After a control frame between the fragments
// of a message, the message's deadline stays.
func (n *netConn) endFrame() {
	if n.inMessage {
		return
	}
	n.inFrame = false
	if n.br.Buffered() > 0 {
		n.beginFrame() // part of the next frame is buffered
		return
	}
	n.setReadDeadline(time.Time{})
}

func (n *netConn) setReadDeadline(t time.Time) {
	// It fails only if the connection is closed; the next read reports that.
	_ = n.SetReadDeadline(t)
}

// A handshake is the http.ResponseWriter that is passed to the WebSocket library. It hijacks the connection as a
// netConn and discards the library's error responses, so that the caller can write its own.
type handshake struct {
	w            http.ResponseWriter
	header       http.Header
	frameTimeout time.Duration
	writeTimeout time.Duration

	conn      *netConn // set by Hijack
	hijackErr error    // error of Hijack
}

func newHandshake(w http.ResponseWriter, o *Options) *handshake {
	return &handshake{w: w, header: w.Header().Clone(), frameTimeout: o.FrameTimeout, writeTimeout: o.WriteTimeout}
}

func (h *handshake) Header() http.Header { return h.header }

// WriteHeader does nothing: Hijack writes the response.
func (h *handshake) WriteHeader(int) {}

func (h *handshake) Write(p []byte) (int, error) { return len(p), nil }

func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, brw, err := http.NewResponseController(h.w).Hijack()
	if err != nil {
		h.hijackErr = err
		return nil, nil, err
	}
	prefetched, err := brw.Reader.Peek(brw.Reader.Buffered())
	if err != nil {
		panic(err) // Peek of buffered bytes does not fail
	}
	// The bytes are copied: otherwise net/http's buffer of 4 KiB would be kept as long as the connection.
	h.conn = newNetConn(nc, bytes.Clone(prefetched), h.frameTimeout, h.writeTimeout)

	// The response is not written to the ResponseWriter, because some wrappers do not write the header before Hijack.
	var response bytes.Buffer
	response.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if err := h.header.Write(&response); err != nil {
		panic(err) // writes to a bytes.Buffer do not fail
	}
	response.WriteString("\r\n")
	if _, err := h.conn.Write(response.Bytes()); err != nil {
		return nil, nil, fmt.Errorf("write handshake: %w", err)
	}
	return h.conn, bufio.NewReadWriter(h.conn.br, bufio.NewWriterSize(h.conn, writeBuffer)), nil
}
