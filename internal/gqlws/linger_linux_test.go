package gqlws

import (
	"context"
	"errors"
	"testing"
	"time"
)

// lingering returns a client of s, and its connection. The connection's reader lingers: it waits for the next message
// before it is parked.
func lingering(ctx context.Context, t *testing.T, s *Server, ss closeSession) (*client, *conn) {
	t.Helper()
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	ss.waitStream(ctx, 1)
	for s.lingering.Load() == 0 {
		c.write(frameOf(true, opPing, nil))
		c.expect("PONG")
	}
	return c, onlyConn(s)
}

// endLinger lets the time pass for which the reader lingers.
func (c *conn) endLinger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.setReadDeadline(time.Now().Add(-time.Second))
}

func TestReaderOfBusyConnectionIsNotParkedBetweenMessages(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	ctx := testContext(t)
	c, cn := lingering(ctx, t, s, ss)
	for range 20 {
		c.write(frameOf(true, opPing, nil))
		c.expect("PONG")
		if isParked(cn) {
			t.Fatal("the reader was parked")
		}
	}
	cn.endLinger()
	eventually(ctx, t, func() bool { return isParked(cn) })
	if n := s.lingering.Load(); n != 0 {
		t.Errorf("%d readers linger, want 0", n)
	}
	c.write(append(frameOf(true, opPing, []byte("1")), frameOf(true, opPing, []byte("2"))...))
	c.expect("PONG 1", "PONG 2")
	c.nc.Close()
	<-ss.closed
	shutdown(t, s)
}

func TestReaderOfConnectionWithFewMessagesDoesNotLinger(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	ss.waitStream(ctx, 1)
	cn := onlyConn(s)
	for range 3 * busyWakes {
		eventually(ctx, t, func() bool { return isParked(cn) })
		cn.mu.Lock()
		cn.parkedAt -= lingerTime // as if the reader had been parked that long
		cn.mu.Unlock()
		c.write(frameOf(true, opPing, nil))
		c.expect("PONG")
		if s.lingering.Load() != 0 {
			t.Fatal("the reader lingers")
		}
	}
	c.nc.Close()
	<-ss.closed
	shutdown(t, s)
}

func TestNumberOfLingeringReadersIsLimited(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	limit := int64(lingeringPerCPU * s.writers.maxWorkers)
	s.lingering.Store(limit) // as if so many others lingered
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	ss.waitStream(ctx, 1)
	cn := onlyConn(s)
	for range 3 * busyWakes {
		eventually(ctx, t, func() bool { return isParked(cn) })
		c.write(frameOf(true, opPing, nil))
		c.expect("PONG")
		if n := s.lingering.Load(); n != limit {
			t.Fatalf("%d readers linger, want %d", n, limit)
		}
	}
	c.nc.Close()
	<-ss.closed
	shutdown(t, s)
}

func TestLingeringReaderNoticesTheEndOfItsConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		act  func(*Server, *client, *conn)
		want error
	}{
		"the peer disconnects":     {func(_ *Server, c *client, _ *conn) { c.nc.Close() }, ErrGone},
		"the peer closes":          {func(_ *Server, c *client, _ *conn) { c.write(closeFrame(1000, "")) }, nil},
		"a frame stays incomplete": {func(_ *Server, c *client, _ *conn) { c.write([]byte{0x81}) }, ErrCut},
		"the server cuts": {func(_ *Server, _ *client, cn *conn) {
			cn.cut(&cutError{ErrCut, "test", nil})
		}, ErrCut},
		"the server drains":         {drainAndAnswer(func(*conn) {}), ErrShutdown},
		"the time ends while drain": {drainAndAnswer((*conn).endLinger), ErrShutdown},
	} {
		t.Run(name, func(t *testing.T) {
			o := withoutPings()
			o.FrameTimeout = time.Second // enough for a frame on a busy machine
			s, ss := NewServer(o), newCloseSession(t)
			c, cn := lingering(testContext(t), t, s, ss)
			tt.act(s, c, cn)
			if why := <-ss.closed; !errors.Is(why, tt.want) {
				t.Errorf("Session.Closed received %v, want %v", why, tt.want)
			}
			shutdown(t, s)
			if n := s.lingering.Load(); n != 0 {
				t.Errorf("%d readers linger, want 0", n)
			}
		})
	}
}

// drainAndAnswer returns a function that drains a connection, calls f during the close handshake, and answers the close
// frame.
func drainAndAnswer(f func(*conn)) func(*Server, *client, *conn) {
	return func(_ *Server, c *client, cn *conn) {
		cn.drain()
		c.expect(legacyError("Service is shutting down", "SERVICE_UNAVAILABLE"), "CLOSE 1001 shutting down")
		f(cn)
		c.write(closeFrame(1001, ""))
	}
}
