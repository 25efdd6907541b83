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
)

// Connections of TCP are read and written in ways of their own: without a
// goroutine for each that waits, and without waiting for a peer.

// patience is with what must come, however busy the machine is.
const patience = 2 * time.Minute

// A caller is a peer on a real connection, which reads when the test does.
type caller struct {
	t  *testing.T
	nc net.Conn
	br *bufio.Reader
}

// connect brings a caller of the legacy protocol through its handshake.
func connect(t *testing.T, nc net.Conn, err error) *caller {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &caller{t, nc, bufio.NewReader(nc)}
	r := upgradeRequest("graphql-ws")
	if err := errors.Join(nc.SetDeadline(time.Now().Add(patience)), r.Write(nc)); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(c.br, r); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: %v, %v", res, err)
	}
	return c
}

// call connects a caller that has started stream a.
func call(t *testing.T, nc net.Conn, err error) *caller {
	t.Helper()
	c := connect(t, nc, err)
	c.say(startA)
	return c
}

func (c *caller) say(text string) { c.write(frameOf(true, opText, []byte(text))) }

func (c *caller) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *caller) expect(lines ...string) {
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
			c.t.Fatalf("heard %.100s, %v\nwant  %.100s", got, err, want)
		}
	}
}

func dialLoopback(t *testing.T, url string) *caller {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	return call(t, nc, err)
}

// withoutPings are options of a server whose callers take what comes for what they
// asked for.
func withoutPings() Options {
	o := testOptions
	o.KeepAlive = 0
	return o
}

// theConn is the one connection of a server.
func theConn(s *Server) (c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c = range s.conns {
	}
	return c
}

// narrow has the kernel hold about 200 kB of what is written to a peer that reads
// nothing, rather than some megabytes.
func narrow(s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if err := c.net.Conn.(*net.TCPConn).SetWriteBuffer(32 << 10); err != nil {
			panic(err)
		}
	}
}

// cutAll ends connections without their peers, which answer no close frame.
func cutAll(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	shutdown(t, s)
}

// started waits for the nth stream, without synctest.
func (s *script) started(ctx context.Context, n int) *scriptStream {
	s.t.Helper()
	var st *scriptStream
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

// closing is a script that says when connections are closed, and why.
type closing struct {
	*script
	whys chan error
}

func (s closing) Closed(why error) {
	s.script.Closed(why)
	s.whys <- why
}

func newClosing(t *testing.T) closing {
	ss := closing{newScript(t), make(chan error, 100)}
	ss.shared = true
	return ss
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// numbered is a payload that tells where it belongs.
func numbered(i, size int) string { return fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", size)) }

// What a peer takes in parts comes whole and in order, and once it has caught up
// it is written to as before.
func TestSlowPeerGetsEveryFrameWhole(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	c := dialLoopback(t, url)
	st := ss.started(ctx, 1)
	narrow(s)
	const n = 200 // of 10 kB: more than the kernel holds
	for i := range n {
		st.push(numbered(i, 10_000+i%100))
	}
	c.say("not JSON") // its answer goes ahead of what is left
	answered := false
	for i := 0; i < n; i++ {
		_, payload, err := readServerFrame(c.br)
		if err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if bytes.HasPrefix(payload, []byte(`{"type":"connection_error"`)) {
			answered = true
			i--
		} else if want := `{"type":"data","id":"a","payload":` + numbered(i, 10_000+i%100) + `}`; string(payload) != want {
			t.Fatalf("%d: heard %.60s", i, payload)
		}
	}
	if !answered {
		t.Error("the answer was lost")
	}
	for i := range 3 {
		st.push(numbered(i, 1))
		c.expect(`{"type":"data","id":"a","payload":` + numbered(i, 1) + `}`)
	}
	cutAll(t, s)
}

func TestBurstIsOneWrite(t *testing.T) {
	c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
	c.net, c.writing = &netConn{}, true // by this test
	var want []byte
	for i := range 3 {
		op := &operation{id: identity{key: fmt.Sprint(i)}, cancel: func() {}, started: true}
		op.stream = &answer{payload: []byte(fmt.Sprint(i))}
		c.mu.Lock()
		c.ops[op.id.key] = op
		c.queue(op)
		c.mu.Unlock()
		want = appendText(want, fmt.Appendf(nil, `{"type":"data","payload":%d}`, i))
	}
	for range 3 {
		want = appendText(want, []byte(`{"type":"complete","payload":null}`))
	}
	var b []byte
	if next := c.gather(&b, batch); next != taskSend || !bytes.Equal(b, want) {
		t.Errorf("gathered %q, task %d", b, next)
	}
	if next := c.gather(&b, batch); next != taskNone || len(b) > 0 || c.writing {
		t.Errorf("then gathered %q, task %d", b, next)
	}
}

func TestLengthOfAFrameIsWrittenInTheFewestBytes(t *testing.T) {
	for n, header := range map[int]int{0: 2, 1: 2, 125: 2, 126: 4, 127: 4, 65535: 4, 65536: 10, 200_000: 10} {
		payload := bytes.Repeat([]byte("x"), n)
		for _, before := range []string{"", "before"} {
			b := appendText([]byte(before), payload)
			if len(b) != len(before)+header+n || !bytes.HasPrefix(b, []byte(before)) {
				t.Fatalf("%d bytes of payload make %d", n, len(b)-len(before))
			}
			op, got, err := readServerFrame(bufio.NewReader(bytes.NewReader(b[len(before):])))
			if err != nil || op != opText || !bytes.Equal(got, payload) {
				t.Errorf("%d bytes: read %d, opcode %d, %v", n, len(got), op, err)
			}
		}
	}
}

// Whoever wraps connections sees all that is written.
type watched struct {
	*net.TCPConn
	wrote *atomic.Int64
}

func (w watched) Write(p []byte) (int, error) {
	w.wrote.Add(int64(len(p)))
	return w.TCPConn.Write(p)
}

type watching struct {
	net.Listener
	wrote *atomic.Int64
}

func (w watching) Accept() (net.Conn, error) {
	nc, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return watched{nc.(*net.TCPConn), w.wrote}, nil
}

func TestWrappedConnectionIsNotGoneAround(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = s.Accept(w, r, ss) }))
	var wrote atomic.Int64
	srv.Listener = watching{srv.Listener, &wrote}
	srv.Start()
	defer srv.Close()
	c := dialLoopback(t, srv.URL)
	st := ss.started(bounded(t), 1)
	before := wrote.Load()
	st.push(numbered(1, 1000))
	c.expect(`{"type":"data","id":"a","payload":` + numbered(1, 1000) + `}`)
	if n := wrote.Load() - before; n < 1000 {
		t.Errorf("%d bytes went through the wrapper", n)
	}
	cutAll(t, s)
}

func TestConnectionOverTLS(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = s.Accept(w, r, ss) }))
	defer srv.Close()
	nc, err := tls.Dial("tcp", srv.Listener.Addr().String(), srv.Client().Transport.(*http.Transport).TLSClientConfig)
	c := call(t, nc, err)
	st := ss.started(bounded(t), 1)
	for i := range 20 {
		st.push(numbered(i, 100*i))
	}
	for i := range 20 {
		c.expect(`{"type":"data","id":"a","payload":` + numbered(i, 100*i) + `}`)
	}
	c.say(`{"id":"a","type":"stop"}`)
	c.expect(`{"type":"complete","id":"a","payload":null}`)
	c.nc.Close()
	shutdown(t, s)
}
