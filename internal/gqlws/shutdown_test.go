package gqlws

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPeerSilentToPingsIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log notebook
		o := testOptions
		o.Logger = log.logger()
		s, ss := NewServer(o), newScript(t)
		p := dial(t, s, ss)
		p.mute = true
		p.listen()
		p.say(startA)
		ss.stream(1).push("1")
		p.expect(`{"type":"data","id":"a","payload":1}`)
		time.Sleep(o.KeepAlive)
		p.expect("PING")
		time.Sleep(o.KeepAlive)
		p.expect("PING")
		time.Sleep(o.KeepAlive - time.Millisecond)
		p.expectSilence()
		if left(s) != 1 {
			t.Error("cut before the next but one")
		}
		time.Sleep(2 * time.Millisecond)
		if left(s) != 0 || ss.open() != 0 {
			t.Error("a peer that answers no pings still holds its connection")
		}
		if !strings.Contains(log.String(), "no answer to pings") {
			t.Errorf("the log does not say why: %s", log.String())
		}
	})
}

func TestPeerThatLeavesFreesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA, `{"id":"b","type":"start","payload":{"query":"{wait}"}}`)
		synctest.Wait()
		p.conn.Close()
		if left(s) != 0 || ss.open() != 0 {
			t.Errorf("%d connections and %d streams are left", left(s), ss.open())
		}
		if ss.ctx.Err() == nil {
			t.Error("the Session's context goes on")
		}
	})
}

func TestShutdownIsNotHeldUpByPeersThatDoNotClose(t *testing.T) {
	for name, prepare := range map[string]func(p *peer){
		"silent":         func(p *peer) { p.mute = true; p.listen() },
		"reads nothing":  func(p *peer) {},
		"half a frame":   func(p *peer) { p.mute = true; p.listen(); _ = p.write([]byte{0x81}) },
		"still speaking": func(p *peer) { p.mute = true; p.listen(); p.say(startA); _ = p.write([]byte{0x81, 0xff, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss)
				prepare(p)
				synctest.Wait()
				begin := time.Now()
				shutdown(t, s)
				if d := time.Since(begin); d > closeWait {
					t.Errorf("Shutdown took %v", d)
				}
				if left(s) != 0 || ss.open() != 0 {
					t.Errorf("%d connections and %d streams are left", left(s), ss.open())
				}
				p.conn.Close()
			})
		})
	}
}

func TestShutdownHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA, `{"id":"b","type":"start","payload":{"query":"{stubborn}"}}`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin := time.Now()
		err := s.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("Shutdown returned %v after %v", err, time.Since(begin))
		}
		p.expect("CUT")
		if ss.open() != 0 {
			t.Error("a stream is left")
		}
		if left(s) != 1 {
			t.Error("a query goes on, but its connection's place is free")
		}
		close(ss.release)
		if left(s) != 0 {
			t.Error("a connection is left")
		}
		shutdown(t, s)
	})
}

// A peer may stall in the midst of the answer to a query whose connection is
// being ended for another reason.
func TestEndDuringAStalledWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		p.say(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
		ss.stream(1)
		time.Sleep(testOptions.WriteTimeout)
		if left(s) != 0 || ss.open() != 0 {
			t.Error("still connected")
		}
		if _, err := io.ReadAll(p.conn); err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownWaitsForHandsAndTheWatch(t *testing.T) {
	for name, of := range map[string]func(*Server) *sync.WaitGroup{
		"hands": func(s *Server) *sync.WaitGroup { return &s.crew.working },
		"watch": func(s *Server) *sync.WaitGroup { return &s.watch.waiting },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(testOptions)
				of(s).Add(1)
				over := make(chan struct{})
				go func() { shutdown(t, s); close(over) }()
				synctest.Wait()
				select {
				case <-over:
					t.Error("it has not waited")
				default:
				}
				of(s).Done()
				<-over
			})
		})
	}
}
