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
	if !canPoll {
		t.Log("idle connections keep their goroutines on this system")
		return
	}
	const n = 50
	o := withoutPings()
	o.MaxSockets = n
	s, ss := NewServer(o), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	before := runtime.NumGoroutine()
	var clients []*client
	for i := range n {
		clients = append(clients, dialLoopback(t, url))
		ss.waitStream(ctx, i+1)
	}
	eventually(ctx, t, func() bool { return runtime.NumGoroutine() <= before+5 })
	for i, c := range clients { // all connections are still read and written
		ss.waitStream(ctx, i+1).push("1")
		c.expect(`{"type":"data","id":"a","payload":1}`)
		c.write(frameOf(true, opPing, []byte("hello")))
		c.expect("PONG hello")
		c.write(append(frameOf(false, opText, []byte(`{"id":"a",`)), frameOf(true, opPing, nil)...))
		c.expect("PONG")
		c.write(frameOf(true, 0, []byte(`"type":"stop"}`)))
		c.expect(`{"type":"complete","id":"a","payload":null}`)
	}
	for _, c := range clients[:n/2] {
		c.nc.Close()
		if why := <-ss.closed; !errors.Is(why, ErrGone) {
			t.Errorf("Session.Closed received %v, want %v", why, ErrGone)
		}
	}
	for _, c := range clients[n/2 : n-1] {
		c.write(closeFrame(1000, "bye"))
		c.expect("CLOSE 1000 bye")
		if why := <-ss.closed; why != nil {
			t.Errorf("Session.Closed received %v, want nil", why)
		}
	}
	go shutdown(t, s)
	c := clients[n-1]
	c.expect(legacyError("Service is shutting down", "SERVICE_UNAVAILABLE"), "CLOSE 1001 shutting down")
	select {
	case <-ss.closed:
		t.Error("Session.Closed was called before the close handshake ended")
	case <-time.After(20 * time.Millisecond): // the wait is short, because nothing must happen
	}
	c.write(closeFrame(1001, ""))
	if why := <-ss.closed; why != ErrShutdown {
		t.Errorf("Session.Closed received %v, want %v", why, ErrShutdown)
	}
	shutdown(t, s)
}

func TestFrameTimeoutDoesNotApplyToIdleConnections(t *testing.T) {
	o := withoutPings()
	o.FrameTimeout = time.Second // enough for a frame on a busy machine
	s := NewServer(o)
	url, _ := serveLoopback(t, s, newCloseSession(t))
	c := dialLoopback(t, url)
	c.send("x")
	c.expect(notJSON)
	time.Sleep(o.FrameTimeout + o.FrameTimeout/5) // nothing must happen in that time
	c.send("x")
	c.expect(notJSON)
	c.nc.Close()
	shutdown(t, s)
}

func TestSessionReceivesCloseReasonOfIdleConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		pings time.Duration // KeepAliveInterval
		frame time.Duration // FrameTimeout
		act   func(c *client)
		kind  error
		text  string
	}{
		"no pongs":            {100 * time.Millisecond, testTimeout, func(*client) {}, ErrCut, "no answer to pings"},
		"an incomplete frame": {0, time.Second, func(c *client) { c.write([]byte{0x81}) }, ErrCut, "read failed"},
		"a broken frame": {
			0, testTimeout, func(c *client) { c.write([]byte{0x81, 1, 'x'}) }, ErrRefused, "unmasked",
		},
		"a TCP reset": {
			0, testTimeout, func(c *client) { _ = c.nc.(*net.TCPConn).SetLinger(0); c.nc.Close() }, ErrGone, "failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions
			o.KeepAliveInterval, o.FrameTimeout = tc.pings, tc.frame
			s, ss := NewServer(o), newCloseSession(t)
			url, _ := serveLoopback(t, s, ss)
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			c := dialClient(t, nc, err)
			if tc.pings == 0 { // otherwise the connection may be cut before the message is read
				c.send(startA)
				ss.waitStream(testContext(t), 1)
			}
			tc.act(c)
			if why := <-ss.closed; !errors.Is(why, tc.kind) || !strings.Contains(why.Error(), tc.text) {
				t.Errorf("Session.Closed received %v, want %v with the text %q", why, tc.kind, tc.text)
			}
			shutdown(t, s)
		})
	}
}
