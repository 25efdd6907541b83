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

func TestPeerThatIgnoresPingsIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		s, ss := NewServer(o), newFakeSession(t)
		p := dial(t, s, ss)
		p.noAnswers = true
		p.startReading()
		p.sendText(startA)
		ss.stream(1).push("1")
		p.expect(`{"type":"data","id":"a","payload":1}`)
		time.Sleep(o.KeepAliveInterval)
		p.expect("PING")
		time.Sleep(o.KeepAliveInterval)
		p.expect("PING")
		time.Sleep(o.KeepAliveInterval - time.Millisecond)
		p.expectNothing()
		if remainingSockets(s) != 1 {
			t.Error("the connection was cut before two pings were missed")
		}
		time.Sleep(2 * time.Millisecond)
		if remainingSockets(s) != 0 || ss.openStreams() != 0 {
			t.Error("the connection is still open after two missed pings")
		}
		if why := ss.closeReason(); !errors.Is(why, ErrCut) || !strings.Contains(why.Error(), "no answer to pings") {
			t.Errorf("Session.Closed received %v, want the reason \"no answer to pings\"", why)
		}
	})
}

func TestDisconnectReleasesStreamsAndQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA, `{"id":"b","type":"start","payload":{"query":"{wait}"}}`)
		synctest.Wait()
		p.conn.Close()
		if remainingSockets(s) != 0 || ss.openStreams() != 0 {
			t.Errorf("%d connections and %d streams are left, want none", remainingSockets(s), ss.openStreams())
		}
		if ss.ctx.Err() == nil {
			t.Error("the context of the Session is not canceled")
		}
	})
}

func TestShutdownWaitsAtMostCloseTimeoutForSilentPeers(t *testing.T) {
	for name, prepare := range map[string]func(p *peer){
		"silent":           func(p *peer) { p.noAnswers = true; p.startReading() },
		"does not read":    func(p *peer) {},
		"incomplete frame": func(p *peer) { p.noAnswers = true; p.startReading(); _ = p.write([]byte{0x81}) },
		"incomplete frame and a stream": func(p *peer) {
			p.noAnswers = true
			p.startReading()
			p.sendText(startA)
			_ = p.write([]byte{0x81, 0xff, 0})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dial(t, s, ss)
				prepare(p)
				synctest.Wait()
				begin := time.Now()
				shutdown(t, s)
				if d := time.Since(begin); d > closeTimeout {
					t.Errorf("Shutdown took %v, want at most %v", d, closeTimeout)
				}
				if remainingSockets(s) != 0 || ss.openStreams() != 0 {
					t.Errorf("%d connections and %d streams are left, want none", remainingSockets(s), ss.openStreams())
				}
				p.conn.Close()
			})
		})
	}
}

func TestShutdownReturnsWhenContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA, `{"id":"b","type":"start","payload":{"query":"{stubborn}"}}`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin := time.Now()
		err := s.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("Shutdown returned %v after %v, want %v after 1s", err, time.Since(begin),
				context.DeadlineExceeded)
		}
		p.expect("CUT")
		if ss.openStreams() != 0 {
			t.Error("a stream is still open")
		}
		if remainingSockets(s) != 1 {
			t.Error("the connection is not counted although its query is still running")
		}
		close(ss.release)
		if remainingSockets(s) != 0 {
			t.Error("the connection is still counted after its query has ended")
		}
		shutdown(t, s)
	})
}

// If a connection ends while a write is stalled, WriteTimeout still applies.
func TestWriteTimeoutAppliesIfConnectionEndsDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.sendText(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
		ss.stream(1)
		time.Sleep(testOptions.WriteTimeout)
		if remainingSockets(s) != 0 || ss.openStreams() != 0 {
			t.Error("the connection is still open after WriteTimeout")
		}
		if _, err := io.ReadAll(p.conn); err != nil {
			t.Error(err)
		}
	})
}

// After the end of a connection, progress does not extend the time of a write, so that a slow peer does not keep its
// file and its memory.
func TestSlowReadsDoNotExtendAWriteOfAConnectionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.sendText(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
		ss.stream(1).push(`"` + strings.Repeat("x", 1<<20) + `"`)
		begin := time.Now()
		for err := error(nil); err == nil; time.Sleep(time.Second) { // 32 s for the whole message
			_, err = io.ReadFull(p.conn, make([]byte, 32<<10))
		}
		if took := time.Since(begin); took > 2*time.Second+testOptions.WriteTimeout {
			t.Errorf("the connection ended after %v, want at most WriteTimeout after its credential expired", took)
		}
	})
}

func TestShutdownWaitsForWriterAndPollerGoroutines(t *testing.T) {
	for name, group := range map[string]func(*Server) *sync.WaitGroup{
		"writers": func(s *Server) *sync.WaitGroup { return &s.writers.wg },
		"poller":  func(s *Server) *sync.WaitGroup { return &s.poller.wg },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(testOptions)
				group(s).Add(1)
				over := make(chan struct{})
				go func() { shutdown(t, s); close(over) }()
				synctest.Wait()
				select {
				case <-over:
					t.Errorf("Shutdown did not wait for the goroutine of the %s", name)
				default:
				}
				group(s).Done()
				<-over
			})
		})
	}
}
