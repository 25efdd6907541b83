package gqlws

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

func isParked(c *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parked
}

// A rawConn is a syscall.RawConn. Its Control method calls the function control instead.
type rawConn struct {
	syscall.RawConn
	control func(f func(fd uintptr)) error
}

func (r rawConn) Control(f func(fd uintptr)) error { return r.control(f) }

// A rawConnSession is a Session that replaces the Control method of its connection before the connection is used.
type rawConnSession struct {
	closeSession
	s       *Server
	control func(*conn, syscall.RawConn, func(uintptr)) error
}

func (i rawConnSession) Opened(ctx context.Context, protocol string, left func() bool) {
	i.closeSession.Opened(ctx, protocol, left)
	c := onlyConn(i.s)
	raw := c.net.raw
	c.net.raw = rawConn{raw, func(f func(uintptr)) error { return i.control(c, raw, f) }}
}

func TestReaderUsesBlockingReadsIfPollerFails(t *testing.T) {
	tries := make(chan struct{}, 1000)
	s := NewServer(testOptions)
	ss := rawConnSession{newCloseSession(t), s, func(*conn, syscall.RawConn, func(uintptr)) error {
		select {
		case tries <- struct{}{}:
		default:
		}
		return os.ErrInvalid
	}}
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	for range 3 {
		c.send("x")
		c.expect(notJSON)
	}
	if n := len(tries); n != 1 {
		t.Errorf("the poller was tried %d times, want once", n)
	}
	c.nc.Close()
	<-ss.closed
	shutdown(t, s)
}

// If the connection is closed while its reader is being parked, a new reader may already have started. The old one must
// then end.
func TestOnlyOneReaderRemainsIfParkingIsInterrupted(t *testing.T) {
	for name, unparked := range map[string]bool{"unparked": true, "not unparked": false} {
		t.Run(name, func(t *testing.T) {
			c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
			defer c.cancel()
			c.net = &netConn{raw: rawConn{control: func(func(uintptr)) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.parked = !unparked
				return os.ErrClosed
			}}}
			if ends := c.park(); ends != unparked {
				t.Errorf("park returned %v, want %v", ends, unparked)
			}
			if c.net.neverPark == unparked {
				t.Errorf("neverPark is %v, want %v", c.net.neverPark, !unparked)
			}
		})
	}
}

// The poller may report a readable connection before the goroutine of its parked reader has ended.
func TestMessageThatArrivesWhileReaderParksIsRead(t *testing.T) {
	s := NewServer(testOptions)
	var once sync.Once
	ss := rawConnSession{newCloseSession(t), s, func(c *conn, raw syscall.RawConn, f func(uintptr)) error {
		err := raw.Control(f)
		once.Do(func() {
			err = errors.Join(err, raw.Control(func(fd uintptr) { // as if the one-shot event had been reported
				spent := syscall.EpollEvent{Events: syscall.EPOLLONESHOT, Fd: int32(fd)}
				if err := syscall.EpollCtl(s.poller.epoll, syscall.EPOLL_CTL_MOD, int(fd), &spent); err != nil {
					t.Error(err)
				}
			}))
			c.unpark()
		})
		return err
	}}
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	c.send("x")
	c.expect(notJSON)
	c.nc.Close()
	shutdown(t, s)
}

func TestPollerStopsIfFirstDescriptorIsRejected(t *testing.T) {
	var p poller
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p.armFD(new(conn), int32(f.Fd())) { // epoll does not support files
		t.Error("armFD of a file succeeded")
	}
	if p.file != nil {
		t.Error("the epoll instance is still open")
		p.file.Close()
	}
	p.wg.Wait()
}

func TestPollerUsesNoCPUWithoutEvents(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	ss.waitStream(ctx, 1)
	expectIdle := func(state string) { // the wait is short, because nothing must happen
		t.Helper()
		runtime.GC() // so that the garbage collector does not run during the wait
		before := cpuTime()
		time.Sleep(100 * time.Millisecond)
		if spent := cpuTime() - before; spent > 50*time.Millisecond {
			t.Errorf("%s: used %v of CPU time in 100 ms, want at most 50 ms", state, spent)
		}
	}
	cn := onlyConn(s)
	eventually(ctx, t, func() bool { return isParked(cn) })
	expectIdle("parked")
	cn.mu.Lock()
	cn.outboxBytes += 2 * maxOutbox // throttles the reader
	cn.mu.Unlock()
	c.send("x")
	c.expect(notJSON)
	c.send("x") // the throttled reader does not read it
	expectIdle("throttled")
	cn.mu.Lock()
	cn.outboxBytes -= 2 * maxOutbox
	cn.changed.Broadcast()
	cn.mu.Unlock()
	c.expect(notJSON)
	c.nc.Close()
	shutdown(t, s)
}

func TestPollerRestartsAfterLastConnectionEnds(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	for i := range 3 {
		c := dialLoopback(t, url)
		ss.waitStream(ctx, i+1)
		cn := onlyConn(s)
		eventually(ctx, t, func() bool { return isParked(cn) })
		c.nc.Close()
		<-ss.closed
		eventually(ctx, t, func() bool { return onlyConn(s) == nil })
	}
	shutdown(t, s)
}

// A heldCloseSession is a Session. Its first call to Closed waits until gate is closed.
type heldCloseSession struct {
	closeSession
	once *sync.Once
	gate chan struct{}
}

func (s heldCloseSession) Closed(why error) {
	s.closed <- why
	s.once.Do(func() { <-s.gate })
	s.fakeSession.Closed(why)
}

// A file descriptor may be reused before the poller has removed the connection that had it before.
func TestReusedDescriptorBelongsToNewConnection(t *testing.T) {
	s := NewServer(testOptions)
	ss := heldCloseSession{newCloseSession(t), new(sync.Once), make(chan struct{})}
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	former := dialLoopback(t, url)
	ss.waitStream(ctx, 1)
	old := onlyConn(s)
	eventually(ctx, t, func() bool { return isParked(old) })
	former.nc.Close()
	<-ss.closed // the connection is closed, but not removed from the poller

	var c *client
	var cn *conn
	for i := 0; cn == nil; i++ {
		if i == 8 {
			close(ss.gate)
			t.Log("nothing to test: the descriptor was not reused")
			return
		}
		c = dialLoopback(t, url)
		ss.waitStream(ctx, i+2)
		cn = connWithDescriptorOf(s, old)
	}
	eventually(ctx, t, func() bool { return isParked(cn) })
	close(ss.gate)
	eventually(ctx, t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, there := s.conns[old]
		return !there
	})
	c.send("x")
	c.expect(notJSON)
	eventually(ctx, t, func() bool { return isParked(cn) })
	cutAll(t, s)
}

// connWithDescriptorOf returns the connection that now has the file descriptor of old, or nil if there is none.
func connWithDescriptorOf(s *Server, old *conn) (c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.conns {
		_ = other.net.raw.Control(func(fd uintptr) { // fails if the connection is closed
			if int32(fd) == old.fd {
				c = other
			}
		})
	}
	return c
}

// A single expected pong does not start the reader. Other frames do: they count toward MessageRate, and a message after
// a pong is processed.
func TestOnlyExpectedPongIsProcessedWithoutReader(t *testing.T) {
	var pong = string(frameOf(true, opPong, nil))
	for name, tt := range map[string]struct {
		frames   string
		pinged   bool
		closing  bool // coder/websocket may be reading
		charged  bool
		received []string
	}{
		"expected":               {pong, true, false, false, nil},
		"in the close handshake": {pong, true, true, true, nil},
		"unexpected":             {pong, false, false, true, nil},
		"with a payload":         {string(frameOf(true, opPong, []byte("x"))), true, false, true, nil},
		"two":                    {pong + pong, true, false, true, nil},
		"followed by a text": {pong + string(frameOf(true, opText, []byte("x"))), true, false, true,
			[]string{notJSON}},
		"a ping instead": {string(frameOf(true, opPing, nil)), true, false, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := withoutPings()
			o.MessageRate = 1
			s, ss := NewServer(o), newCloseSession(t)
			url, _ := serveLoopback(t, s, ss)
			ctx := testContext(t)
			c := dialLoopback(t, url)
			ss.waitStream(ctx, 1)
			cn := onlyConn(s)
			eventually(ctx, t, func() bool { return isParked(cn) })
			cn.mu.Lock()
			cn.awaitsPong, cn.missedPongs = tt.pinged, 1
			if tt.closing {
				cn.phase, cn.ending = phaseClosing, &ending{cause: causeTerminated}
			}
			arrival := cn.rate.arrival
			cn.mu.Unlock()
			if _, err := c.nc.Write([]byte(tt.frames)); err != nil {
				t.Fatal(err)
			}
			eventually(ctx, t, func() bool {
				cn.mu.Lock()
				defer cn.mu.Unlock()
				return cn.parked != tt.closing && (cn.missedPongs == 0 || cn.rate.arrival != arrival)
			})
			for _, text := range tt.received {
				c.expect(text)
			}
			cn.mu.Lock()
			if charged := cn.rate.arrival != arrival; charged != tt.charged {
				t.Errorf("the frames were charged: %v, want %v", charged, tt.charged)
			}
			cn.mu.Unlock()
			c.nc.Close()
			shutdown(t, s)
		})
	}
}
