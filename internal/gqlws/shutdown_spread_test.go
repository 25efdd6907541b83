package gqlws

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const legacyShutdown = `{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down",` +
	`"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"7"}}}`

// connectSubscribers connects n legacy peers. Each has one stream with the cursor 7.
func connectSubscribers(t *testing.T, s *Server, n int) ([]*fakeSession, []*peer) {
	sessions, peers := make([]*fakeSession, n), make([]*peer, n)
	for i := range n {
		sessions[i] = newFakeSession(t)
		peers[i] = dial(t, s, sessions[i]).startReading()
		peers[i].sendText(startA)
	}
	for _, ss := range sessions {
		ss.stream(1).setCursor("7")
	}
	return sessions, peers
}

func TestShutdownSpreadsDisconnects(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"long deadline": 10 * time.Second,
		"short deadline": 3 * time.Second, "no deadline": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 200
				s := NewServer(Options{})
				sessions, peers := connectSubscribers(t, s, n)
				ctx, cancel := context.Background(), func() {}
				within := (n - 1) * 10 * time.Millisecond
				if timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, timeout)
					within = min(within, timeout/2)
				}
				defer cancel()
				begin := time.Now()
				if err := s.Shutdown(ctx); err != nil {
					t.Errorf("Shutdown returned %v, want nil", err)
				}
				if d := time.Since(begin); d > within {
					t.Errorf("Shutdown took %v, want at most %v", d, within)
				}
				slots := make(map[time.Duration]int)
				for i, p := range peers {
					p.expect(legacyShutdown, "CLOSE 1001 shutting down")
					slots[p.end.Sub(begin)/(100*time.Millisecond)]++
					if err := sessions[i].closeReason(); err != ErrShutdown {
						t.Errorf("Session.Closed received %v, want %v", err, ErrShutdown)
					}
				}
				if len(slots) < 10 {
					t.Errorf("peers were disconnected in %d different tenths of a second, want at least 10: %v",
						len(slots), slots)
				}
			})
		})
	}
}

func TestShutdownOfOneConnectionIsImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		_, peers := connectSubscribers(t, s, 1)
		begin := time.Now()
		shutdown(t, s)
		if d := time.Since(begin); d > 0 {
			t.Errorf("Shutdown took %v, want it to return immediately", d)
		}
		peers[0].expect(legacyShutdown, "CLOSE 1001 shutting down")
	})
}

func TestStalledPeerIsDisconnectedAtShutdownDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{}) // without WriteTimeout
		sessions, peers := connectSubscribers(t, s, 200)
		peers[0].stopReading()
		sessions[0].stream(1).push("1")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 10*time.Second {
			t.Errorf("Shutdown returned %v after %v, want %v after 10s", err, time.Since(begin),
				context.DeadlineExceeded)
		}
		if err := sessions[0].closeReason(); !errors.Is(err, ErrCut) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Session.Closed of the stalled connection received %v, want ErrCut and %v",
				err, context.DeadlineExceeded)
		}
		for _, p := range peers[1:] {
			p.expect(legacyShutdown, "CLOSE 1001 shutting down")
			if d := p.end.Sub(begin); d > 5*time.Second {
				t.Errorf("a peer received the close frame after %v, want at most 5s", d)
			}
		}
		if remainingSockets(s) != 0 {
			t.Error("connections are left, want none")
		}
		peers[0].conn.Close()
	})
}

// During the delay of its shutdown, a connection is served as before. A request for a new operation ends the delay.
func TestConnectionIsServedDuringShutdownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxSockets = 0
		s := NewServer(o)
		sessions, peers := connectSubscribers(t, s, 50)
		p, ss := peers[0], sessions[0]
		p.sendText(`{"id":"q","type":"start","payload":{"query":"{wait}"}}`)
		synctest.Wait()
		begin := time.Now()
		over := make(chan struct{})
		go func() { shutdown(t, s); close(over) }()
		p.expectNothing()

		ss.stream(1).push("1")
		p.expect(`{"type":"data","id":"a","payload":1}`)
		p.sendText(`{"type":"connection_init"}`, `{"type":"connection_init"}`)
		p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"connection_ack"}`)
		p.sendText(`{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`)
		p.expectNothing() // the query is still running
		ss.stream(1).push("2")
		p.expect(`{"type":"data","id":"a","payload":2}`)
		close(ss.release)
		p.expect(`{"type":"data","id":"q","payload":{"data":{"wait":1}}}`,
			`{"type":"complete","id":"q","payload":null}`,
			legacyShutdown, "CLOSE 1001 shutting down")
		if d := p.end.Sub(begin); d > 0 || len(ss.streams) != 1 {
			t.Errorf("the connection ended after %v and %d streams, want immediately after one stream",
				d, len(ss.streams))
		}
		if remainingSockets(s) != 49 {
			t.Errorf("%d other connections are left, want 49", remainingSockets(s))
		}
		<-over
	})
}

func TestConnectionAcceptedDuringShutdownEndsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{})
		connectSubscribers(t, s, 50)
		here, there := net.Pipe()
		p := &peer{t: t, conn: here, writing: make(chan struct{}, 1)}
		over := make(chan struct{})
		w := &pipeWriter{conn: there, header: http.Header{}, beforeHijack: func() {
			go func() { shutdown(t, s); close(over) }()
			synctest.Wait()
		}}
		r := upgradeRequest("graphql-ws")
		go func() {
			if err := s.Accept(w, r, newFakeSession(t)); err != nil {
				t.Errorf("Accept returned %v, want nil", err)
			}
		}()
		begin := time.Now()
		if _, err := http.ReadResponse(bufio.NewReaderSize(here, 16), r); err != nil {
			t.Fatal(err)
		}
		p.startReading()
		p.expect(legacyError("Service is shutting down", "SERVICE_UNAVAILABLE"), "CLOSE 1001 shutting down")
		if d := p.end.Sub(begin); d > 0 {
			t.Errorf("the connection ended after %v, want immediately", d)
		}
		<-over
	})
}

// A slowCloseSession is a Session. Its Closed method takes one second.
type slowCloseSession struct{ *fakeSession }

func (s slowCloseSession) Closed(why error) {
	time.Sleep(time.Second)
	s.fakeSession.Closed(why)
}

func TestShutdownWaitsForSessionClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		dial(t, s, slowCloseSession{ss}).startReading()
		begin := time.Now()
		shutdown(t, s)
		if d := time.Since(begin); d != time.Second || ss.closeReason() != ErrShutdown {
			t.Errorf("Shutdown took %v and Session.Closed received %v, want 1s and %v",
				d, ss.closeReason(), ErrShutdown)
		}
	})
}
