package gqlws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

func TestAcceptErrorsLeaveResponseToCaller(t *testing.T) {
	full := NewServer(Options{MaxSockets: 1})
	if ok, _ := full.sockets.Enter(); !ok {
		t.Fatal("a new server admits no socket")
	}
	gone := NewServer(Options{})
	shutdown(t, gone)
	change := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, tc := range map[string]struct {
		server *Server
		change func(*http.Request)
		err    error
		want   error
	}{
		"no protocol": {change: func(r *http.Request) {
			r.Header.Del("Sec-WebSocket-Protocol")
		}, want: ErrNoProtocol},
		"another protocol": {change: change("Sec-WebSocket-Protocol", "graphql-subscriptions, graphql-ws2"),
			want: ErrNoProtocol},
		"no upgrade":                {change: change("Upgrade", "h2c"), want: ErrHandshake},
		"another version":           {change: change("Sec-WebSocket-Version", "8"), want: ErrHandshake},
		"no key":                    {change: change("Sec-WebSocket-Key", "x"), want: ErrHandshake},
		"POST":                      {change: func(r *http.Request) { r.Method = "POST" }, want: ErrHandshake},
		"too many":                  {server: full, want: ErrTooMany},
		"shut down":                 {server: gone, want: ErrShutdown},
		"cannot be hijacked":        {err: http.ErrNotSupported, want: ErrNotHijackable},
		"cannot be hijacked, cause": {err: http.ErrNotSupported, want: http.ErrNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.server
			if s == nil {
				s = NewServer(Options{})
			}
			before := s.sockets.Members()
			w := &pipeWriter{header: http.Header{"Vary": {"Origin"}}, err: tc.err}
			r := upgradeRequest("graphql-ws")
			if tc.change != nil {
				tc.change(r)
			}
			if err := s.Accept(w, r, newFakeSession(t)); !errors.Is(err, tc.want) {
				t.Errorf("Accept returned %v, want %v", err, tc.want)
			}
			if name == "another version" { // RFC 6455, 4.4
				if got := w.header.Get("Sec-WebSocket-Version"); got != "13" {
					t.Errorf("Sec-WebSocket-Version is %q, want 13", got)
				}
				w.header.Del("Sec-WebSocket-Version")
			}
			if w.wrote || len(w.header) != 1 {
				t.Errorf("Accept wrote a response with the headers %v, want no response", w.header)
			}
			if n := s.sockets.Members(); n != before {
				t.Errorf("%d sockets are counted after a refused handshake, want %d", n, before)
			}
		})
	}
	t.Run("no Hijacker", func(t *testing.T) {
		w := httptest.NewRecorder()
		err := NewServer(Options{}).Accept(w, upgradeRequest("graphql-ws"), newFakeSession(t))
		if !errors.Is(err, ErrNotHijackable) {
			t.Errorf("Accept returned %v, want ErrNotHijackable", err)
		}
		if len(w.Header()) != 0 || w.Body.Len() != 0 {
			t.Error("Accept wrote a response, want none")
		}
	})
}

func TestEndedConnectionsDoNotCountTowardMaxSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{MaxSockets: 2})
		for range 5 {
			a, b := dial(t, s, newFakeSession(t)), dial(t, s, newFakeSession(t))
			if err := s.Accept(&pipeWriter{header: http.Header{}}, upgradeRequest("graphql-ws"),
				newFakeSession(t)); !errors.Is(err, ErrTooMany) {
				t.Errorf("Accept of a third connection returned %v, want ErrTooMany", err)
			}
			a.conn.Close()
			b.conn.Close()
			if n := remainingSockets(s); n != 0 {
				t.Fatalf("%d connections are left, want none", n)
			}
		}
	})
}

func TestAcceptReturnsErrGoneIfPeerDisconnectsDuringHandshake(t *testing.T) {
	here, there := net.Pipe()
	here.Close()
	s := NewServer(testOptions)
	if err := s.Accept(&pipeWriter{conn: there, header: http.Header{}}, upgradeRequest("graphql-ws"),
		newFakeSession(t)); !errors.Is(err, ErrGone) {
		t.Errorf("Accept returned %v, want ErrGone", err)
	}
	if n := s.sockets.Members(); n != 0 {
		t.Errorf("%d sockets are counted, want none", n)
	}
	if _, err := there.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write to the connection returned %v, want io.ErrClosedPipe", err)
	}
}

func TestShutdownWaitsForHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		here, there := net.Pipe()
		over := make(chan struct{})
		w := &pipeWriter{conn: there, header: http.Header{}, beforeHijack: func() {
			go func() { shutdown(t, s); close(over) }()
			synctest.Wait()
			select {
			case <-over:
				t.Error("Shutdown did not wait for a handshake in progress")
			default:
			}
		}}
		go func() {
			if err := s.Accept(w, upgradeRequest("graphql-ws"), newFakeSession(t)); err != nil {
				t.Errorf("Accept returned %v, want nil", err)
			}
		}()
		begin := time.Now()
		if _, err := io.ReadAll(here); err != nil {
			t.Error(err)
		}
		<-over
		if d := time.Since(begin); d > closeTimeout {
			t.Errorf("Shutdown took %v, want at most %v", d, closeTimeout)
		}
	})
}

type contextKey struct{}

// wrapped is a ResponseWriter as middleware wraps it. Only http.ResponseController finds the optional methods of the
// wrapped ResponseWriter.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveLoopback starts an HTTP server that calls s.Accept for each request. The results of the first 100 calls are sent
// to the channel returned.
func serveLoopback(t *testing.T, s *Server, ss Session) (url string, returned chan error) {
	returned = make(chan error, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), contextKey{}, "value"), time.Millisecond)
		defer cancel()
		w.Header().Set("X-Host", "yes")
		err := s.Accept(wrapped{w}, r.WithContext(ctx), ss)
		select {
		case returned <- err:
		default: // the channel is full: the test does not read the results
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, returned
}

// A contextSession responds to each query with a value from the context of the handshake request.
type contextSession struct{ *fakeSession }

func (s contextSession) Start(ctx context.Context, payload []byte) (Operation, error) {
	return Operation{Run: func(ctx context.Context) []byte {
		return fmt.Appendf(nil, `{"data":%q,"done":%v}`, ctx.Value(contextKey{}), ctx.Err() != nil)
	}}, nil
}

func TestConnectionOutlivesRequest(t *testing.T) {
	s := NewServer(testOptions)
	url, returned := serveLoopback(t, s, contextSession{newFakeSession(t)})
	ctx := testContext(t)
	c, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"other", "graphql-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := <-returned; err != nil { // the handler returns although the connection is open
		t.Fatal(err)
	}
	if c.Subprotocol() != "graphql-ws" || res.Header.Get("X-Host") != "yes" {
		t.Errorf("protocol %q, header %v, want graphql-ws and the header X-Host", c.Subprotocol(), res.Header)
	}
	roundTrip(ctx, t, c)

	done := make(chan error, 1)
	go func() { _, _, err := c.Read(ctx); _, _, err2 := c.Read(ctx); done <- errors.Join(err, err2) }()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-done; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the connection ended with %v, want code %d", err, websocket.StatusGoingAway)
	}
}

func roundTrip(ctx context.Context, t *testing.T, c *websocket.Conn) {
	t.Helper()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":"1","type":"start","payload":{}}`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"type":"data","id":"1","payload":{"data":"value","done":false}}`,
		`{"type":"complete","id":"1","payload":null}`,
	} {
		if _, got, err := c.Read(ctx); err != nil || string(got) != want {
			t.Fatalf("received %s, %v, want %s", got, err, want)
		}
	}
}

// If a client sends its first frames together with the handshake, net/http reads them before Hijack. They must not be
// lost.
func TestFramesSentWithHandshakeAreProcessed(t *testing.T) {
	const n = 30 // more frames than fit in the connection's read buffer
	o := testOptions
	o.MaxQueries = n
	s := NewServer(o)
	url, _ := serveLoopback(t, s, newFakeSession(t))
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var b bytes.Buffer
	r := upgradeRequest("graphql-ws")
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b.Write(frameOf(true, opText, fmt.Appendf(nil, `{"id":%d,"type":"start","payload":{"query":"{info{version}}"}}`,
			i)))
	}
	if _, err := nc.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := nc.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(nc)
	if res, err := http.ReadResponse(br, r); err != nil || res.StatusCode != 101 {
		t.Fatalf("handshake: %v, %v", res, err)
	}
	completed := 0
	for completed < n {
		_, payload, err := readServerFrame(br)
		if err != nil {
			t.Fatalf("reading failed after %d responses: %v", completed, err)
		}
		if bytes.Contains(payload, []byte("error")) {
			t.Fatalf("received %s, want no error", payload)
		}
		if bytes.Contains(payload, []byte("complete")) {
			completed++
		}
	}
	nc.Close()
	shutdown(t, s)
}

func TestConnectionDoesNotKeepHTTPServerBuffer(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, here) }()
	for _, prefetched := range []string{"", "x", "a few bytes"} {
		w := &pipeWriter{conn: there, header: http.Header{}, prefetched: []byte(prefetched)}
		h := newHandshake(w, &testOptions)
		if _, _, err := h.Hijack(); err != nil {
			t.Fatal(err)
		}
		if n := cap(h.conn.prefetched); n > 64 {
			t.Errorf("the connection keeps %d bytes of memory for the prefetched bytes %q, want at most 64",
				n, prefetched)
		}
	}
}

func TestIdleAndEndedConnectionsReleaseGoroutines(t *testing.T) {
	const n = 50
	before := runtime.NumGoroutine()
	o := testOptions
	o.MaxSockets = n
	s := NewServer(o)
	ss := newFakeSession(t)
	ss.shared = true
	url, returned := serveLoopback(t, s, contextSession{ss})
	ctx := testContext(t)
	idle := runtime.NumGoroutine()
	conns := make([]net.Conn, n)
	for i := range conns {
		nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := upgradeRequest("graphql-ws").Write(nc); err != nil {
			t.Fatal(err)
		}
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
		conns[i] = nc
	}
	// An idle connection has at most one goroutine, because net/http keeps none.
	eventually(ctx, t, func() bool { return runtime.NumGoroutine() <= idle+n+2 })
	for _, nc := range conns {
		nc.Close()
	}
	eventually(ctx, t, func() bool { return s.sockets.Members() == 0 })
	eventually(ctx, t, func() bool { return runtime.NumGoroutine() <= before+4 }) // 4 for the HTTP server
}

// eventually waits until ok returns true. It fails the test if ctx is done first.
func eventually(ctx context.Context, t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatalf("the condition was not met in time; %d goroutines exist", runtime.NumGoroutine())
		}
		runtime.Gosched()
	}
}
