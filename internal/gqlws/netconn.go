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

	"github.com/chaingql/chaingql/internal/xsync"
)

// These are the sizes of a connection's buffers in bytes. They are small, because most connections are idle.
// writeBuffer can hold a close frame (at most 127 bytes), which is the largest frame that coder/websocket writes, so
// that the frame is sent in one write.
const (
	readBuffer  = 256
	writeBuffer = 128

	// maxWriteChunk is the maximum number of bytes that writeAll passes to one call to Write.
	maxWriteChunk = 64 << 10
)

// A netConn wraps the hijacked TCP or TLS connection. It sets a deadline for each write and for the rest of each
// incomplete frame. The conn has a reference to it, because closing the netConn is the only reliable way to end blocked
// calls to coder/websocket.
type netConn struct {
	net.Conn
	frameTimeout time.Duration
	writeTimeout time.Duration

	raw        syscall.RawConn // for non-blocking I/O; nil if the connection does not support it
	conn       *conn           // receives errors; nil during the handshake
	br         *bufio.Reader   // buffer from which coder/websocket reads
	prefetched []byte          // bytes read by net/http before Hijack or by tryReadPong

	// These fields are used only by the goroutine that reads from the WebSocket.
	inFrame   bool      // a frame is incomplete
	frameEnd  time.Time // deadline of the incomplete frame; zero if it has none
	inMessage bool      // a message is incomplete
	exhausted bool      // the last tryRead read all available bytes
	lingering bool      // the reader waits for lingerTime before it is parked
	frames    frameCounter

	// These fields are guarded by conn.mu.
	neverPark    bool      // the reader must not be parked
	readDeadline time.Time // the deadline that setReadDeadline has set

	closed atomic.Bool // the server has closed the connection; later errors are not reported
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
		if n.prefetched = n.prefetched[k:]; len(n.prefetched) == 0 {
			n.prefetched = nil // otherwise up to 4 KiB would be kept as long as the connection is open
		}
		n.received(p[:k])
		return k, nil
	}
	k, err := n.beginRead()(p)
	if k > 0 {
		n.received(p[:k])
	}
	if err != nil && err != errIdle {
		n.reportError("read failed", err)
	}
	return k, err
}

// Write is called by Hijack for the handshake response and by coder/websocket for a close frame.
func (n *netConn) Write(p []byte) (int, error) {
	if n.conn != nil {
		n.conn.beginCloseFrame()
		defer n.conn.endWrite()
	}
	return n.writeAll(p)
}

// writeAll writes all of p in chunks, within the write timeout. Each chunk that the peer has accepted extends the
// timeout. Afterwards writeAll removes the deadline, because otherwise later non-blocking writes would fail.
func (n *netConn) writeAll(p []byte) (written int, err error) {
	deadline := xsync.NewWriteDeadline(n.writeTimeout, len(p))
	for {
		if at, limited := deadline.Time(); limited {
			if err := n.SetWriteDeadline(at); err != nil {
				n.reportError("write failed", err)
				return written, fmt.Errorf("set write deadline: %w", err)
			}
		}
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
		if n.conn != nil && n.conn.mayTakeLonger() {
			deadline.Extend()
		}
	}
	if n.writeTimeout > 0 {
		err = n.SetWriteDeadline(time.Time{})
	}
	return written, err
}

// Close closes the connection. If the reader is parked, Close starts it, so that the reader notices the end.
func (n *netConn) Close() error {
	n.closed.Store(true)
	err := n.Conn.Close()
	if n.conn != nil {
		n.conn.unpark()
	}
	return err
}

// peerLeft reports whether the peer has closed the connection, as far as the platform and the type of the connection
// show it before the unread messages have been read.
func (n *netConn) peerLeft() bool {
	raw := n.raw
	if tls, ok := n.Conn.(interface{ NetConn() net.Conn }); ok {
		raw = rawOf(tls.NetConn())
	}
	return raw != nil && hungUp(raw)
}

// reportError records why the connection ends. It must be called before coder/websocket receives err, because
// coder/websocket closes the connection after any error, and the next read then fails with a different error.
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

// received is called with the bytes that a read has returned, before they are processed. It starts the deadline of a
// frame and counts the frames.
func (n *netConn) received(p []byte) {
	n.beginFrame()
	if weight := n.frames.count(p); n.conn != nil {
		n.conn.chargeFrames(weight)
	}
}

// beginFrame starts the time of a frame. It is called when bytes arrive, but later bytes of the same frame do not
// extend the time. Most frames arrive whole, so that the deadline is set only before a read that waits for the rest.
func (n *netConn) beginFrame() {
	if n.inFrame {
		return
	}
	n.inFrame = true
	if n.frameTimeout > 0 {
		n.frameEnd = time.Now().Add(n.frameTimeout)
	}
}

// endFrame is called after a complete message or control frame. If a control frame arrives between the fragments of a
// message, the deadline of the message remains.
func (n *netConn) endFrame() {
	if n.inMessage {
		return
	}
	n.inFrame = false
	if n.br.Buffered() > 0 {
		n.beginFrame() // part of the next frame is buffered
	}
}

// setReadDeadline sets the deadline of reads. The zero time removes it. The caller must hold conn.mu.
func (n *netConn) setReadDeadline(t time.Time) {
	if t != n.readDeadline {
		n.readDeadline = t
		_ = n.SetReadDeadline(t) // fails only if the connection is closed, which the next read reports
	}
}

// A handshake is the http.ResponseWriter that Accept passes to coder/websocket. Its Hijack method returns the
// connection as a netConn. Its other methods discard the error responses of coder/websocket, so that the caller of
// Accept can write its own.
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

// WriteHeader does nothing, because Hijack writes the response.
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
	// Copy the bytes, because otherwise the connection would keep net/http's buffer of 4 KiB alive.
	h.conn = newNetConn(nc, bytes.Clone(prefetched), h.frameTimeout, h.writeTimeout)

	// Write the response to the connection, because some wrappers of ResponseWriter do not write it before Hijack.
	var response bytes.Buffer
	response.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if err := h.header.Write(&response); err != nil {
		panic(err) // writes to a bytes.Buffer do not fail
	}
	response.WriteString("\r\n")
	if _, err := h.conn.Write(response.Bytes()); err != nil {
		return nil, nil, fmt.Errorf("write handshake response: %w", err)
	}
	return h.conn, bufio.NewReadWriter(h.conn.br, bufio.NewWriterSize(h.conn, writeBuffer)), nil
}
