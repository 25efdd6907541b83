package gqlws

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPongResetsMissedPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.noAnswers = true
		p.startReading()
		p.sendText(startA)
		time.Sleep(35 * time.Second) // pings after 15 s and 30 s
		if err := p.send(opPong, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(35 * time.Second) // the ping after 45 s counts as missed after 60 s
		if remainingSockets(s) != 1 {
			t.Error("the connection was cut after one missed ping, want it open")
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// A busy server may read a pong late, because it comes after other messages.
func TestMessageResetsMissedPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.noAnswers = true
		p.startReading()
		for range 6 {
			p.sendText(startA)
			time.Sleep(14 * time.Second) // a ping every 15 s
		}
		if remainingSockets(s) != 1 {
			t.Error("the connection of a peer that sends messages was cut, want it open")
		}
		time.Sleep(time.Minute)
		if remainingSockets(s) != 0 {
			t.Error("the connection of a silent peer is open, want it cut")
		}
		shutdown(t, s)
	})
}

func TestPingTimeoutDoesNotInterruptCloseHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.KeepAliveInterval = time.Second
		s, ss := NewServer(o), newFakeSession(t)
		p := dial(t, s, ss)
		p.noAnswers = true
		p.startReading()
		time.Sleep(2500 * time.Millisecond)
		begin := time.Now()
		shutdown(t, s)
		if took := time.Since(begin); took != closeTimeout {
			t.Errorf("the peer had %v to respond to the close frame, want %v", took, closeTimeout)
		}
	})
}

func TestNoPongsAreQueuedWhileConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss) // does not read
		p.noAnswers = true
		p.sendText("x")
		synctest.Wait()
		cn := onlyConn(s)
		cn.end(ending{cause: causeExpired})
		sent := make(chan int, 1)
		go func() {
			n := 0
			for p.send(opPing, make([]byte, 125)) == nil && n < 2000 {
				n++
			}
			sent <- n
		}()
		queued := func(when string) {
			synctest.Wait()
			cn.mu.Lock()
			defer cn.mu.Unlock()
			if cn.outboxBytes > 1000 {
				t.Errorf("%s: %d bytes are queued, want at most 1000", when, cn.outboxBytes)
			}
		}
		queued("stalled write")
		if len(sent) > 0 {
			t.Error("the server read all pings during the stalled write, want it to wait")
		}
		p.startReading()
		queued("close handshake")
		if n := <-sent; n < 2000 {
			t.Errorf("the server read %d pings, want 2000", n)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// If the peer does not read, the reader waits before it queues more pongs. This wait must not count toward the
// FrameTimeout of the peer's next frame.
func TestWaitToQueuePongDoesNotCountTowardFrameTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		ping := frameOf(true, opPing, make([]byte, 125))
		begun := append(ping[1:], ping[0]) // the rest of a ping and the first byte of the next one
		go func() {
			_ = p.write(ping[:1])
			for range 400 {
				if p.write(begun) != nil {
					return
				}
			}
		}()
		time.Sleep(7 * time.Second) // longer than FrameTimeout, shorter than WriteTimeout
		p.startReading()
		time.Sleep(time.Second)
		if remainingSockets(s) != 1 {
			t.Errorf("the connection was cut with %v, want it open", ss.why)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}
