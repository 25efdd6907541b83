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

// A rawConn stands between a netConn and the kernel.
type rawConn struct {
	syscall.RawConn
	control func(f func(fd uintptr)) error
}

func (r rawConn) Control(f func(fd uintptr)) error { return r.control(f) }

// An intercepted session has a rawConn of its connection's, which control is
// called of, before it is used.
type intercepted struct {
	closing
	s       *Server
	control func(*conn, syscall.RawConn, func(uintptr)) error
}

func (i intercepted) Opened(ctx context.Context, protocol string) {
	i.closing.Opened(ctx, protocol)
	c := theConn(i.s)
	raw := c.net.raw
	c.net.raw = rawConn{raw, func(f func(uintptr)) error { return i.control(c, raw, f) }}
}

const notJSON = `{"type":"connection_error","id":null,"payload":{"message":"Message is not a JSON object"}}`

func TestReaderThatCannotBeParkedWaits(t *testing.T) {
	tries := make(chan struct{}, 1000)
	s := NewServer(testOptions)
	ss := intercepted{newClosing(t), s, func(*conn, syscall.RawConn, func(uintptr)) error {
		select {
		case tries <- struct{}{}:
		default:
		}
		return os.ErrInvalid
	}}
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	for range 3 {
		c.say("x")
		c.expect(notJSON)
	}
	if n := len(tries); n != 1 {
		t.Errorf("tried %d times", n)
	}
	c.nc.Close()
	<-ss.whys
	shutdown(t, s)
}

// The connection may be closed while its reader is being parked, and another
// reader sees to its end.
func TestReaderThatWasWokenMeanwhileEnds(t *testing.T) {
	for name, woken := range map[string]bool{"woken": true, "not woken": false} {
		t.Run(name, func(t *testing.T) {
			c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
			defer c.cancel()
			c.net = &netConn{raw: rawConn{control: func(func(uintptr)) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.parked = !woken
				return os.ErrClosed
			}}}
			if ends := c.park(); ends != woken {
				t.Errorf("the reader ends: %v", ends)
			}
			if c.net.stay == woken {
				t.Errorf("it stays: %v", c.net.stay)
			}
		})
	}
}

// The watch may tell of a connection before its reader has left.
func TestWordsThatComeWhileTheReaderParksAreHeard(t *testing.T) {
	s := NewServer(testOptions)
	var once sync.Once
	ss := intercepted{newClosing(t), s, func(c *conn, raw syscall.RawConn, f func(uintptr)) error {
		err := raw.Control(f)
		once.Do(func() {
			err = errors.Join(err, raw.Control(func(fd uintptr) { // it has had its one shot
				spent := syscall.EpollEvent{Events: syscall.EPOLLONESHOT, Fd: int32(fd)}
				if err := syscall.EpollCtl(s.watch.epoll, syscall.EPOLL_CTL_MOD, int(fd), &spent); err != nil {
					t.Error(err)
				}
			}))
			c.unpark()
		})
		return err
	}}
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	c.say("x")
	c.expect(notJSON)
	c.nc.Close()
	shutdown(t, s)
}

func TestWatchThatCannotBeginEnds(t *testing.T) {
	var w watch
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if w.arm(new(conn), int32(f.Fd())) { // a file is always ready, and so refused
		t.Error("a file is watched")
	}
	if w.file != nil {
		t.Error("the instance is open")
		w.file.Close()
	}
	w.waiting.Wait()
}

func TestWatchSleepsWhileNobodyIsToBeWoken(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	c := dialLoopback(t, url)
	ss.started(ctx, 1)
	quiet := func(when string) { // a short wait for nothing to happen
		t.Helper()
		runtime.GC() // not in that time
		before := processor()
		time.Sleep(100 * time.Millisecond)
		if spent := processor() - before; spent > 50*time.Millisecond {
			t.Errorf("%s: %v of processor time in 100 ms", when, spent)
		}
	}
	cn := theConn(s)
	eventually(ctx, t, func() bool { return isParked(cn) })
	quiet("parked")
	cn.mu.Lock()
	cn.pending += 2 * maxOutbox // the reader waits for room
	cn.mu.Unlock()
	c.say("x")
	c.expect(notJSON)
	c.say("x") // stays unread
	quiet("held up")
	cn.mu.Lock()
	cn.pending -= 2 * maxOutbox
	cn.room.Broadcast()
	cn.mu.Unlock()
	c.expect(notJSON)
	c.nc.Close()
	shutdown(t, s)
}

func TestReadersAreParkedAgainAfterNoneWas(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	for i := range 3 {
		c := dialLoopback(t, url)
		ss.started(ctx, i+1)
		cn := theConn(s)
		eventually(ctx, t, func() bool { return isParked(cn) })
		c.nc.Close()
		<-ss.whys
		eventually(ctx, t, func() bool { return theConn(s) == nil })
	}
	shutdown(t, s)
}

// A lingering session takes its time to be closed, the first time.
type lingering struct {
	closing
	once *sync.Once
	gate chan struct{}
}

func (s lingering) Closed(why error) {
	s.whys <- why
	s.once.Do(func() { <-s.gate })
	s.script.Closed(why)
}

// The number of a descriptor is used again before its former owner is forgotten.
func TestConnectionWithTheNumberOfAnotherIsHeard(t *testing.T) {
	s := NewServer(testOptions)
	ss := lingering{newClosing(t), new(sync.Once), make(chan struct{})}
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	former := dialLoopback(t, url)
	ss.started(ctx, 1)
	old := theConn(s)
	eventually(ctx, t, func() bool { return isParked(old) })
	former.nc.Close()
	<-ss.whys // it is closed, and not yet forgotten

	var c *caller
	var cn *conn
	for i := 0; cn == nil; i++ {
		if i == 8 {
			close(ss.gate)
			t.Skip("the number was not used again")
		}
		c = dialLoopback(t, url)
		ss.started(ctx, i+2)
		cn = numbering(s, old)
	}
	eventually(ctx, t, func() bool { return isParked(cn) })
	close(ss.gate)
	eventually(ctx, t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, there := s.conns[old]
		return !there
	})
	c.say("x")
	c.expect(notJSON)
	eventually(ctx, t, func() bool { return isParked(cn) })
	cutAll(t, s)
}

// numbering returns the connection that has another's number now.
func numbering(s *Server, old *conn) (c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.conns {
		_ = other.net.raw.Control(func(fd uintptr) { // fails on a closed one
			if int32(fd) == old.fd {
				c = other
			}
		})
	}
	return c
}

// A pong that was waited for wakes no reader. Others count, and what comes with one is heard.
func TestOnlyAwaitedPongsLeaveTheReaderParked(t *testing.T) {
	var pong = string(frameOf(true, opPong, nil))
	for name, tt := range map[string]struct {
		frames  string
		pinged  bool
		closing bool // the library may be reading
		charged bool
		heard   []string
	}{
		"awaited":                {pong, true, false, false, nil},
		"in the close handshake": {pong, true, true, true, nil},
		"not awaited":            {pong, false, false, true, nil},
		"with a payload":         {string(frameOf(true, opPong, []byte("x"))), true, false, true, nil},
		"two":                    {pong + pong, true, false, true, nil},
		"followed by a text":     {pong + string(frameOf(true, opText, []byte("x"))), true, false, true, []string{notJSON}},
		"a ping in its place":    {string(frameOf(true, opPing, nil)), true, false, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := withoutPings()
			o.MessageRate = 1
			s, ss := NewServer(o), newClosing(t)
			url, _ := serveLoopback(t, s, ss)
			ctx := bounded(t)
			c := dialLoopback(t, url)
			ss.started(ctx, 1)
			cn := theConn(s)
			eventually(ctx, t, func() bool { return isParked(cn) })
			cn.mu.Lock()
			cn.pinged, cn.missed, cn.closing = tt.pinged, 1, tt.closing
			paced := cn.paced
			cn.mu.Unlock()
			if _, err := c.nc.Write([]byte(tt.frames)); err != nil {
				t.Fatal(err)
			}
			eventually(ctx, t, func() bool {
				cn.mu.Lock()
				defer cn.mu.Unlock()
				return cn.parked != tt.closing && (cn.missed == 0 || cn.paced != paced)
			})
			for _, text := range tt.heard {
				c.expect(text)
			}
			cn.mu.Lock()
			if charged := cn.paced != paced; charged != tt.charged {
				t.Errorf("counted: %v", charged)
			}
			cn.mu.Unlock()
			c.nc.Close()
			shutdown(t, s)
		})
	}
}
