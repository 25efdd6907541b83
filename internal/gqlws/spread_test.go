package gqlws

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const legacyFarewell = `{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"7"}}}`

// subscribers connects legacy peers with a stream each, which is at cursor 7.
func subscribers(t *testing.T, s *Server, n int) ([]*script, []*peer) {
	scripts, peers := make([]*script, n), make([]*peer, n)
	for i := range n {
		scripts[i] = newScript(t)
		peers[i] = dial(t, s, scripts[i]).listen()
		peers[i].say(startA)
	}
	for _, ss := range scripts {
		ss.stream(1).at("7")
	}
	return scripts, peers
}

func TestShutdownSendsPeersBackOneAfterTheOther(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"much time": 10 * time.Second, "little time": 3 * time.Second, "no deadline": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 200
				s := NewServer(Options{})
				scripts, peers := subscribers(t, s, n)
				ctx, cancel := context.Background(), func() {}
				within := (n - 1) * 10 * time.Millisecond
				if timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, timeout)
					within = min(within, timeout/2)
				}
				defer cancel()
				begin := time.Now()
				if err := s.Shutdown(ctx); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				if d := time.Since(begin); d > within {
					t.Errorf("it took %v", d)
				}
				slots := make(map[time.Duration]int)
				for i, p := range peers {
					p.expect(legacyFarewell, "CLOSE 1001 shutting down")
					slots[p.end.Sub(begin)/(100*time.Millisecond)]++
					if err := scripts[i].ended(); err != ErrShutdown {
						t.Errorf("a session was closed with %v", err)
					}
				}
				if len(slots) < 10 {
					t.Errorf("all at once: %v", slots)
				}
			})
		})
	}
}

func TestShutdownOfOneConnectionTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		_, peers := subscribers(t, s, 1)
		begin := time.Now()
		shutdown(t, s)
		if d := time.Since(begin); d > 0 {
			t.Errorf("it took %v", d)
		}
		peers[0].expect(legacyFarewell, "CLOSE 1001 shutting down")
	})
}

func TestStalledPeerIsCutAtTheDeadlineOfShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{}) // and no bound on writes
		scripts, peers := subscribers(t, s, 200)
		peers[0].deaf()
		scripts[0].stream(1).push("1")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 10*time.Second {
			t.Errorf("Shutdown returned %v after %v", err, time.Since(begin))
		}
		if err := scripts[0].ended(); !errors.Is(err, ErrCut) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the stalled session was closed with %v", err)
		}
		for _, p := range peers[1:] {
			p.expect(legacyFarewell, "CLOSE 1001 shutting down")
			if d := p.end.Sub(begin); d > 5*time.Second {
				t.Errorf("a peer was told after %v", d)
			}
		}
		if left(s) != 0 {
			t.Error("connections are left")
		}
		peers[0].conn.Close()
	})
}

// Until its turn a connection is served as before; that it asks for another
// operation has its turn come.
func TestConnectionWaitsForItsTurnToShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		s.options.MaxSockets = 0
		scripts, peers := subscribers(t, s, 50)
		p, ss := peers[0], scripts[0]
		p.say(`{"id":"q","type":"start","payload":{"query":"{wait}"}}`)
		synctest.Wait()
		begin := time.Now()
		over := make(chan struct{})
		go func() { shutdown(t, s); close(over) }()
		p.expectSilence()

		ss.stream(1).push("1")
		p.expect(`{"type":"data","id":"a","payload":1}`)
		p.say(`{"type":"connection_init"}`, `{"type":"connection_init"}`)
		p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"connection_ack"}`)
		p.say(`{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`)
		p.expectSilence() // the query goes on
		ss.stream(1).push("2")
		p.expect(`{"type":"data","id":"a","payload":2}`)
		close(ss.release)
		p.expect(`{"type":"data","id":"q","payload":{"data":{"wait":1}}}`, `{"type":"complete","id":"q","payload":null}`,
			legacyFarewell, "CLOSE 1001 shutting down")
		if d := p.end.Sub(begin); d > 0 || len(ss.streams) != 1 {
			t.Errorf("told after %v, %d streams were started", d, len(ss.streams))
		}
		if left(s) != 49 {
			t.Errorf("%d of 49 others are left", left(s))
		}
		<-over
	})
}

func TestConnectionAcceptedInTheMomentOfShutdownHasNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{})
		subscribers(t, s, 50)
		here, there := net.Pipe()
		p := &peer{t: t, conn: here, writing: make(chan struct{}, 1)}
		over := make(chan struct{})
		w := &pipeWriter{conn: there, header: http.Header{}, before: func() {
			go func() { shutdown(t, s); close(over) }()
			synctest.Wait()
		}}
		r := upgradeRequest("graphql-ws")
		go func() {
			if err := s.Accept(w, r, newScript(t)); err != nil {
				t.Errorf("Accept: %v", err)
			}
		}()
		begin := time.Now()
		if _, err := http.ReadResponse(bufio.NewReaderSize(here, 16), r); err != nil {
			t.Fatal(err)
		}
		p.listen()
		p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`,
			"CLOSE 1001 shutting down")
		if d := p.end.Sub(begin); d > 0 {
			t.Errorf("told after %v", d)
		}
		<-over
	})
}

// A slowSession takes its time to note its end.
type slowSession struct{ *script }

func (s slowSession) Closed(why error) {
	time.Sleep(time.Second)
	s.script.Closed(why)
}

func TestShutdownWaitsForSessionsToBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		dial(t, s, slowSession{ss}).listen()
		begin := time.Now()
		shutdown(t, s)
		if d := time.Since(begin); d != time.Second || ss.ended() != ErrShutdown {
			t.Errorf("it took %v, closed with %v", d, ss.ended())
		}
	})
}

func TestLogHasTheCursorsOfAConnectionThatIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		streams int
		end     func(s *Server, ss *script, p *peer)
		want    string
	}{
		"a stalled write": {2, func(_ *Server, ss *script, p *peer) {
			p.deaf()
			ss.stream(1).push("1")
			synctest.Wait()
			p.say(`{"id":"q","type":"start","payload":{"query":"{info{version}}"}}`) // has no cursor
			time.Sleep(testOptions.WriteTimeout)
		}, `reason="write failed" remote=pipe error="write pipe: i/o timeout" cursors="[c0 c1]"`},
		"a stalled farewell": {2, func(s *Server, _ *script, p *peer) {
			p.deaf()
			shutdown(p.t, s)
		}, `reason="farewell took too long" remote=pipe error="i/o timeout" cursors="[c0 c1]"`},
		"no streams": {0, func(_ *Server, _ *script, p *peer) {
			p.quiet()
			time.Sleep(time.Minute)
		}, `reason="no answer to pings" remote=pipe error="i/o timeout"` + "\n"},
		"many": {40, func(_ *Server, _ *script, p *peer) {
			p.quiet()
			time.Sleep(time.Minute)
		}, ` c31]"` + "\n"},
		"one that leaves": {2, func(_ *Server, _ *script, p *peer) { p.conn.Close() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log notebook
				o := testOptions
				o.Logger, o.MaxSubscriptions = log.logger(), 0
				s, ss := NewServer(o), newScript(t)
				p := dial(t, s, ss).listen()
				for i := range tc.streams {
					p.say(fmt.Sprintf(`{"id":"%02d","type":"start","payload":{"query":"subscription{a}"}}`, i))
					ss.stream(i + 1).at(fmt.Sprintf("c%d", i))
				}
				p.say(`{"type":"stop"}`)
				tc.end(s, ss, p)
				ss.ended()
				logged(t, &log, tc.want)
				p.conn.Close()
			})
		})
	}
}
