package gqlws

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestIdleConnectionNeedsNoGoroutine(t *testing.T) {
	if !canWatch {
		t.Skip("only where there is epoll")
	}
	const n = 50
	o := withoutPings()
	o.MaxSockets = n
	s, ss := NewServer(o), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	before := runtime.NumGoroutine()
	var callers []*caller
	for i := range n {
		callers = append(callers, dialLoopback(t, url))
		ss.started(ctx, i+1)
	}
	eventually(ctx, t, func() bool { return runtime.NumGoroutine() <= before+5 })
	for i, c := range callers { // all are heard and written to
		ss.started(ctx, i+1).push("1")
		c.expect(`{"type":"data","id":"a","payload":1}`)
		c.write(frameOf(true, opPing, []byte("hello")))
		c.expect("PONG hello")
		c.write(append(frameOf(false, opText, []byte(`{"id":"a",`)), frameOf(true, opPing, nil)...))
		c.expect("PONG")
		c.write(frameOf(true, 0, []byte(`"type":"stop"}`)))
		c.expect(`{"type":"complete","id":"a","payload":null}`)
	}
	for _, c := range callers[:n/2] {
		c.nc.Close()
		if why := <-ss.whys; !errors.Is(why, ErrGone) {
			t.Errorf("closed with %v", why)
		}
	}
	for _, c := range callers[n/2 : n-1] {
		c.write(closeFrame(1000, "bye"))
		c.expect("CLOSE 1000 bye")
		if why := <-ss.whys; why != nil {
			t.Errorf("closed with %v", why)
		}
	}
	go shutdown(t, s)
	c := callers[n-1]
	c.expect(`{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`, "CLOSE 1001 shutting down")
	select {
	case <-ss.whys:
		t.Error("the close handshake was not waited for")
	case <-time.After(20 * time.Millisecond): // a short wait for nothing to happen
	}
	c.write(closeFrame(1001, ""))
	if why := <-ss.whys; why != ErrShutdown {
		t.Errorf("closed with %v", why)
	}
	shutdown(t, s)
}

// FrameTimeout is for frames that have begun, and not for silence before them.
func TestIdleConnectionIsHeardAfterFrameTimeout(t *testing.T) {
	o := withoutPings()
	o.FrameTimeout = 200 * time.Millisecond
	s := NewServer(o)
	url, _ := serveLoopback(t, s, newClosing(t))
	c := dialLoopback(t, url)
	for range 3 {
		c.say("x")
		c.expect(`{"type":"connection_error","id":null,"payload":{"message":"Message is not a JSON object"}}`)
		time.Sleep(2 * o.FrameTimeout) // for nothing to happen
	}
	c.nc.Close()
	shutdown(t, s)
}

func TestParkedReaderIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		pings time.Duration // between them
		act   func(c *caller)
		kind  error
		text  string
	}{
		"without pongs":          {100 * time.Millisecond, func(*caller) {}, ErrCut, "no answer to pings"},
		"inside a frame":         {0, func(c *caller) { c.write([]byte{0x81}) }, ErrCut, "read failed"},
		"over a broken frame":    {0, func(c *caller) { c.write([]byte{0x81, 1, 'x'}) }, ErrRefused, "unmasked"},
		"when the peer is reset": {0, func(c *caller) { _ = c.nc.(*net.TCPConn).SetLinger(0); c.nc.Close() }, ErrGone, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions
			o.KeepAlive, o.FrameTimeout = tc.pings, 50*time.Millisecond
			s, ss := NewServer(o), newClosing(t)
			url, _ := serveLoopback(t, s, ss)
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			c := connect(t, nc, err)
			if tc.pings == 0 { // else it may be cut before it says anything
				c.say(startA)
				ss.started(bounded(t), 1)
			}
			tc.act(c)
			if why := <-ss.whys; !errors.Is(why, tc.kind) || !strings.Contains(why.Error(), tc.text) {
				t.Errorf("closed with %v", why)
			}
			shutdown(t, s)
		})
	}
}
