package gqlws

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// The tests in this file use TCP connections. Unlike connections of net.Pipe, these support non-blocking writes and
// parked readers.

// testTimeout limits the wait for events that must happen. It is long, because the machine may be busy.
const testTimeout = 2 * time.Minute

// notJSON is the response to a message that is not JSON.
const notJSON = `{"type":"connection_error","id":null,"payload":{"message":"Message is not a JSON object"}}`

// A client is a peer on a TCP or TLS connection. It reads nothing except in methods that the test calls.
type client struct {
	t  *testing.T
	nc net.Conn
	br *bufio.Reader
}

// dialClient performs the handshake of a client of the legacy protocol on nc. The parameter err is the error of the
// dial that returned nc.
func dialClient(t *testing.T, nc net.Conn, err error) *client {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &client{t, nc, bufio.NewReader(nc)}
	r := upgradeRequest("graphql-ws")
	if err := errors.Join(nc.SetDeadline(time.Now().Add(testTimeout)), r.Write(nc)); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(c.br, r); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: %v, %v", res, err)
	}
	return c
}

// dialSubscribed is like dialClient, but the client also subscribes with the operation id a.
func dialSubscribed(t *testing.T, nc net.Conn, err error) *client {
	t.Helper()
	c := dialClient(t, nc, err)
	c.send(startA)
	return c
}

func (c *client) send(text string) { c.write(frameOf(true, opText, []byte(text))) }

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) expect(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		op, payload, err := readServerFrame(c.br)
		got := string(payload)
		switch op {
		case opPing:
			got = "PING " + got
		case opPong:
			got = "PONG " + got
		case opClose:
			got = closeLine(payload)
		}
		if err != nil || strings.TrimSpace(got) != want {
			c.t.Fatalf("received %.100s, %v\nwant     %.100s", got, err, want)
		}
	}
}

func dialLoopback(t *testing.T, url string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	return dialSubscribed(t, nc, err)
}

// withoutPings returns options without keep-alives, so that clients receive only responses and data.
func withoutPings() Options {
	o := testOptions
	o.KeepAliveInterval = 0
	return o
}

// onlyConn returns the only connection of a server, or nil if the server has none.
func onlyConn(s *Server) (c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c = range s.conns {
	}
	return c
}

// shrinkSendBuffers limits the kernel's buffers to about 200 kB for a peer that does not read. By default they hold
// several megabytes.
func shrinkSendBuffers(s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if err := c.net.Conn.(*net.TCPConn).SetWriteBuffer(32 << 10); err != nil {
			panic(err)
		}
	}
}

// cutAll shuts s down and cuts its connections at once. It is used if the clients do not respond to a close frame.
func cutAll(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	shutdown(t, s)
}

// waitStream waits until the nth stream exists and returns it. Unlike the method stream, it does not need synctest.
func (s *fakeSession) waitStream(ctx context.Context, n int) *fakeStream {
	s.t.Helper()
	var st *fakeStream
	eventually(ctx, s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.streams) >= n {
			st = s.streams[n-1]
		}
		return st != nil
	})
	return st
}

// A closeSession is a fakeSession that sends the argument of each call to Closed to a channel.
type closeSession struct {
	*fakeSession
	closed chan error
}

func (s closeSession) Closed(why error) {
	s.fakeSession.Closed(why)
	s.closed <- why
}

func newCloseSession(t *testing.T) closeSession {
	ss := closeSession{newFakeSession(t), make(chan error, 100)}
	ss.shared = true
	return ss
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// numberedPayload returns a payload of about size bytes that contains i.
func numberedPayload(i, size int) string { return fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", size)) }

// A peer that starts to read late receives complete frames in order, and also receives the frames that follow.
func TestSlowPeerReceivesCompleteFramesInOrder(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	st := ss.waitStream(ctx, 1)
	shrinkSendBuffers(s)
	const n = 200 // payloads of 10 kB: more than fit in the kernel's buffers
	for i := range n {
		st.push(numberedPayload(i, 10_000+i%100))
	}
	c.send("not JSON") // the response precedes the remaining data
	answered := false
	for i := 0; i < n; i++ {
		_, payload, err := readServerFrame(c.br)
		if err != nil {
			t.Fatalf("reading frame %d failed: %v", i, err)
		}
		if bytes.HasPrefix(payload, []byte(`{"type":"connection_error"`)) {
			answered = true
			i--
		} else if want := `{"type":"data","id":"a","payload":` + numberedPayload(i, 10_000+i%100) +
			`}`; string(payload) != want {
			t.Fatalf("frame %d: received %.60s, want %.60s", i, payload, want)
		}
	}
	if !answered {
		t.Error("received no response to the malformed message")
	}
	for i := range 3 {
		st.push(numberedPayload(i, 1))
		c.expect(`{"type":"data","id":"a","payload":` + numberedPayload(i, 1) + `}`)
	}
	cutAll(t, s)
}

func TestReadyPayloadsAreSentInOneWrite(t *testing.T) {
	c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
	c.net, c.hasWriter = &netConn{}, true // the test is the writer
	var want []byte
	for i := range 3 {
		op := &operation{id: operationID{key: fmt.Sprint(i)}, ctx: xsync.WithTimeout(c.ctx, 0), phase: opActive}
		op.stream = &queryResult{payload: []byte(fmt.Sprint(i))}
		c.mu.Lock()
		c.ops[op.id.key] = op
		c.queueNext(op)
		c.mu.Unlock()
		want = appendText(want, fmt.Appendf(nil, `{"type":"data","payload":%d}`, i))
	}
	for range 3 {
		want = appendText(want, []byte(`{"type":"complete","payload":null}`))
	}
	var b []byte
	if next := c.gather(&b, batchSize); next != taskSend || !bytes.Equal(b, want) {
		t.Errorf("gather returned %q and task %d, want %q and task %d", b, next, want, taskSend)
	}
	if next := c.gather(&b, batchSize); next != taskNone || len(b) > 0 || c.hasWriter {
		t.Errorf("the second gather returned %q and task %d, want nothing", b, next)
	}
}

func TestFrameLengthIsEncodedInFewestBytes(t *testing.T) {
	for n, header := range map[int]int{0: 2, 1: 2, 125: 2, 126: 4, 127: 4, 65535: 4, 65536: 10, 200_000: 10} {
		payload := bytes.Repeat([]byte("x"), n)
		for _, before := range []string{"", "before"} {
			b := appendText([]byte(before), payload)
			if len(b) != len(before)+header+n || !bytes.HasPrefix(b, []byte(before)) {
				t.Fatalf("a payload of %d bytes makes a frame of %d bytes, want %d", n, len(b)-len(before), header+n)
			}
			op, got, err := readServerFrame(bufio.NewReader(bytes.NewReader(b[len(before):])))
			if err != nil || op != opText || !bytes.Equal(got, payload) {
				t.Errorf("payload of %d bytes: read %d bytes, opcode %d, error %v", n, len(got), op, err)
			}
		}
	}
}

// A countedConn wraps a TCP connection, as the listener of a host may do, and counts the written bytes.
type countedConn struct {
	*net.TCPConn
	written *atomic.Int64
}

func (w countedConn) Write(p []byte) (int, error) {
	w.written.Add(int64(len(p)))
	return w.TCPConn.Write(p)
}

type countingListener struct {
	net.Listener
	written *atomic.Int64
}

func (w countingListener) Accept() (net.Conn, error) {
	nc, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{nc.(*net.TCPConn), w.written}, nil
}

func TestWritesGoThroughWrappedConnection(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = s.Accept(w, r, ss)
	}))
	var wrote atomic.Int64
	srv.Listener = countingListener{srv.Listener, &wrote}
	srv.Start()
	defer srv.Close()
	c := dialLoopback(t, srv.URL)
	st := ss.waitStream(testContext(t), 1)
	before := wrote.Load()
	st.push(numberedPayload(1, 1000))
	c.expect(`{"type":"data","id":"a","payload":` + numberedPayload(1, 1000) + `}`)
	if n := wrote.Load() - before; n < 1000 {
		t.Errorf("%d bytes were written through the wrapper, want at least 1000", n)
	}
	cutAll(t, s)
}

func TestSubscriptionWorksOverTLS(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = s.Accept(w, r, ss)
	}))
	defer srv.Close()
	nc, err := tls.Dial("tcp", srv.Listener.Addr().String(), srv.Client().Transport.(*http.Transport).TLSClientConfig)
	c := dialSubscribed(t, nc, err)
	st := ss.waitStream(testContext(t), 1)
	for i := range 20 {
		st.push(numberedPayload(i, 100*i))
	}
	for i := range 20 {
		c.expect(`{"type":"data","id":"a","payload":` + numberedPayload(i, 100*i) + `}`)
	}
	c.send(`{"id":"a","type":"stop"}`)
	c.expect(`{"type":"complete","id":"a","payload":null}`)
	c.nc.Close()
	shutdown(t, s)
}
