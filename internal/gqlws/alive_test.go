package gqlws

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPongMakesUpForOneThatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		p.mute = true
		p.listen()
		p.say(startA)
		time.Sleep(35 * time.Second) // pings at 15 and 30
		if err := p.send(opPong, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(35 * time.Second) // and at 45, which is missed at 60
		if left(s) != 1 {
			t.Error("the peer was cut")
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestFarewellIsNotCutShortByPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.KeepAlive = time.Second
		s, ss := NewServer(o), newScript(t)
		p := dial(t, s, ss)
		p.mute = true
		p.listen()
		time.Sleep(2500 * time.Millisecond)
		begin := time.Now()
		shutdown(t, s)
		if took := time.Since(begin); took != closeWait {
			t.Errorf("the peer had %v to answer", took)
		}
	})
}

func TestPingsDuringTheFarewellQueueNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss) // reads nothing
		p.mute = true
		p.say("x")
		synctest.Wait()
		cn := theConn(s)
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
			if cn.pending > 1000 {
				t.Errorf("%d bytes wait %s", cn.pending, when)
			}
		}
		queued("while it is stalled")
		if len(sent) > 0 {
			t.Error("a peer that reads nothing was heard")
		}
		p.listen()
		queued("in the close handshake")
		if n := <-sent; n < 2000 {
			t.Errorf("the peer was not heard out, but for %d pings", n)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// The time that its pongs wait for room is not that of a frame of its own.
func TestPeerThatReadsLateIsNotCutOverItsPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		ping := frameOf(true, opPing, make([]byte, 125))
		begun := append(ping[1:], ping[0]) // each comes with the first byte of the next
		go func() {
			_ = p.write(ping[:1])
			for range 400 {
				if p.write(begun) != nil {
					return
				}
			}
		}()
		time.Sleep(7 * time.Second) // longer than FrameTimeout, shorter than WriteTimeout
		p.listen()
		time.Sleep(time.Second)
		if left(s) != 1 {
			t.Errorf("the peer was cut: %v", ss.why)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}
