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

func TestRefusalsLeaveTheAnswerToTheCaller(t *testing.T) {
	full := NewServer(Options{MaxSockets: 1})
	if err := full.reserve(); err != nil {
		t.Fatal(err)
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
		"no protocol":         {change: func(r *http.Request) { r.Header.Del("Sec-WebSocket-Protocol") }, want: ErrNoProtocol},
		"another protocol":    {change: change("Sec-WebSocket-Protocol", "graphql-subscriptions, graphql-ws2"), want: ErrNoProtocol},
		"no upgrade":          {change: change("Upgrade", "h2c"), want: ErrHandshake},
		"another version":     {change: change("Sec-WebSocket-Version", "8"), want: ErrHandshake},
		"no key":              {change: change("Sec-WebSocket-Key", "x"), want: ErrHandshake},
		"POST":                {change: func(r *http.Request) { r.Method = "POST" }, want: ErrHandshake},
		"too many":            {server: full, want: ErrTooMany},
		"shut down":           {server: gone, want: ErrShutdown},
		"cannot be hijacked":  {err: http.ErrNotSupported, want: ErrNotHijackable},
		"cannot, and says so": {err: http.ErrNotSupported, want: http.ErrNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.server
			if s == nil {
				s = NewServer(Options{})
			}
			before := s.sockets
			w := &pipeWriter{header: http.Header{"Vary": {"Origin"}}, err: tc.err}
			r := upgradeRequest("graphql-ws")
			if tc.change != nil {
				tc.change(r)
			}
			if err := s.Accept(w, r, newScript(t)); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if name == "another version" { // RFC 6455, 4.4
				if got := w.header.Get("Sec-WebSocket-Version"); got != "13" {
					t.Errorf("the version spoken is told as %q", got)
				}
				w.header.Del("Sec-WebSocket-Version")
			}
			if w.wrote || len(w.header) != 1 {
				t.Errorf("something was written: %v", w.header)
			}
			if s.sockets != before {
				t.Error("a refused handshake keeps its place")
			}
		})
	}
	t.Run("no Hijacker", func(t *testing.T) {
		w := httptest.NewRecorder()
		if err := NewServer(Options{}).Accept(w, upgradeRequest("graphql-ws"), newScript(t)); !errors.Is(err, ErrNotHijackable) {
			t.Errorf("error %v", err)
		}
		if len(w.Header()) != 0 || w.Body.Len() != 0 {
			t.Error("something was written")
		}
	})
}

func TestPlacesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{MaxSockets: 2})
		for range 5 {
			a, b := dial(t, s, newScript(t)), dial(t, s, newScript(t))
			if err := s.Accept(&pipeWriter{header: http.Header{}}, upgradeRequest("graphql-ws"), newScript(t)); !errors.Is(err, ErrTooMany) {
				t.Errorf("a third one: %v", err)
			}
			a.conn.Close()
			b.conn.Close()
			if n := left(s); n != 0 {
				t.Fatalf("%d are left", n)
			}
		}
	})
}

func TestPeerThatLeavesDuringTheHandshake(t *testing.T) {
	here, there := net.Pipe()
	here.Close()
	s := NewServer(testOptions)
	if err := s.Accept(&pipeWriter{conn: there, header: http.Header{}}, upgradeRequest("graphql-ws"), newScript(t)); err != nil {
		t.Errorf("there is nobody to answer, but: %v", err)
	}
	if s.sockets != 0 {
		t.Error("it keeps its place")
	}
	if _, err := there.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection is open: %v", err)
	}
}

func TestShutdownEndsConnectionsStillInTheirHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		here, there := net.Pipe()
		over := make(chan struct{})
		w := &pipeWriter{conn: there, header: http.Header{}, before: func() {
			go func() { shutdown(t, s); close(over) }()
			synctest.Wait()
			select {
			case <-over:
				t.Error("Shutdown did not wait for a handshake under way")
			default:
			}
		}}
		go func() {
			if err := s.Accept(w, upgradeRequest("graphql-ws"), newScript(t)); err != nil {
				t.Errorf("Accept: %v", err)
			}
		}()
		begin := time.Now()
		if _, err := io.ReadAll(here); err != nil {
			t.Error(err)
		}
		<-over
		if d := time.Since(begin); d > closeWait {
			t.Errorf("it took %v", d)
		}
	})
}

type contextKey struct{}

// wrapped hides all but what http.ResponseController finds.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveLoopback serves connections as a host does, and says when the first
// handlers have returned.
func serveLoopback(t *testing.T, s *Server, ss Session) (url string, returned chan error) {
	returned = make(chan error, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), contextKey{}, "value"), time.Millisecond)
		defer cancel()
		w.Header().Set("X-Host", "yes")
		err := s.Accept(wrapped{w}, r.WithContext(ctx), ss)
		select {
		case returned <- err:
		default: // a test of so many does not ask
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, returned
}

// valueSession answers with a value of the handshake's context.
type valueSession struct{ *script }

func (s valueSession) Start(ctx context.Context, payload []byte) (Operation, error) {
	return Operation{Run: func(ctx context.Context) []byte {
		return fmt.Appendf(nil, `{"data":%q,"done":%v}`, ctx.Value(contextKey{}), ctx.Err() != nil)
	}}, nil
}

func TestConnectionOutlivesItsRequest(t *testing.T) {
	s := NewServer(testOptions)
	url, returned := serveLoopback(t, s, valueSession{newScript(t)})
	ctx := bounded(t)
	c, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"other", "graphql-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := <-returned; err != nil { // while the connection is open
		t.Fatal(err)
	}
	if c.Subprotocol() != "graphql-ws" || res.Header.Get("X-Host") != "yes" {
		t.Errorf("protocol %q, header %v", c.Subprotocol(), res.Header)
	}
	roundTrip(ctx, t, c)

	done := make(chan error, 1)
	go func() { _, _, err := c.Read(ctx); _, _, err2 := c.Read(ctx); done <- errors.Join(err, err2) }()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-done; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the end: %v", err)
	}
}

func roundTrip(ctx context.Context, t *testing.T, c *websocket.Conn) {
	t.Helper()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":"1","type":"start","payload":{}}`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"type":"data","id":"1","payload":{"data":"value","done":false}}`, `{"type":"complete","id":"1","payload":null}`} {
		if _, got, err := c.Read(ctx); err != nil || string(got) != want {
			t.Fatalf("heard %s, %v, want %s", got, err, want)
		}
	}
}

// A client may send its first frames along with the handshake; net/http has then
// read them.
func TestFramesSentWithTheHandshakeAreHeard(t *testing.T) {
	const n = 30 // more than fills one of the connection's buffers
	o := testOptions
	o.MaxQueries = n
	s := NewServer(o)
	url, _ := serveLoopback(t, s, newScript(t))
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
		b.Write(frameOf(true, opText, fmt.Appendf(nil, `{"id":%d,"type":"start","payload":{"query":"{info{version}}"}}`, i)))
	}
	if _, err := nc.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(nc)
	if res, err := http.ReadResponse(br, r); err != nil || res.StatusCode != 101 {
		t.Fatalf("%v %v", res, err)
	}
	completed := 0
	for completed < n {
		_, payload, err := readServerFrame(br)
		if err != nil {
			t.Fatalf("after %d: %v", completed, err)
		}
		if bytes.Contains(payload, []byte("error")) {
			t.Fatalf("heard %s", payload)
		}
		if bytes.Contains(payload, []byte("complete")) {
			completed++
		}
	}
	nc.Close()
	shutdown(t, s)
}

func TestConnectionDoesNotKeepTheBufferOfTheHTTPServer(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, here) }()
	for _, ahead := range []string{"", "x", "a few bytes"} {
		w := &pipeWriter{conn: there, header: http.Header{}, ahead: []byte(ahead)}
		h := newHandshake(w, &testOptions)
		if _, _, err := h.Hijack(); err != nil {
			t.Fatal(err)
		}
		if n := cap(h.conn.rest); n > 64 {
			t.Errorf("%d bytes are kept for %q", n, ahead)
		}
	}
}

func TestManyConnectionsLeaveNothingBehind(t *testing.T) {
	const n = 50
	before := runtime.NumGoroutine()
	o := testOptions
	o.MaxSockets = n
	s := NewServer(o)
	ss := newScript(t)
	ss.shared = true
	url, returned := serveLoopback(t, s, valueSession{ss})
	ctx := bounded(t)
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
	// One goroutine per idle connection: net/http kept none.
	eventually(ctx, t, func() bool { return runtime.NumGoroutine() <= idle+n+2 })
	for _, nc := range conns {
		nc.Close()
	}
	eventually(ctx, t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sockets == 0
	})
	eventually(ctx, t, func() bool { return runtime.NumGoroutine() <= before+4 }) // the HTTP server's own
}

func eventually(ctx context.Context, t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatalf("it did not come about; goroutines: %d", runtime.NumGoroutine())
		}
		runtime.Gosched()
	}
}
