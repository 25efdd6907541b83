package gqlws

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// Peers may send twice the rate at once, and then as many as the rate allows;
// the first one more ends the connection and is not acted upon.
func TestMessageRate(t *testing.T) {
	const rate = 10
	for protocol, say := range map[string]struct {
		nothing, start string
		farewell       []string
	}{
		"graphql-ws": {
			nothing: `{"type":"stop","id":"x"}`,
			start:   startA,
			farewell: []string{
				`{"type":"connection_error","id":null,"payload":{"message":"More than 10 messages a second","extensions":{"code":"LIMIT_EXCEEDED"}}}`,
				"CLOSE 1008",
			},
		},
		"graphql-transport-ws": {
			nothing:  `{"type":"complete","id":"x"}`,
			start:    `{"id":"a","type":"subscribe","payload":{"query":"subscription{a}"}}`,
			farewell: []string{"CLOSE 1008 More than 10 messages a second"},
		},
	} {
		connect := func(t *testing.T) (*Server, *script, *peer) {
			o := testOptions
			o.MessageRate = rate
			o.InitTimeout = 0
			s, ss := NewServer(o), newScript(t)
			return s, ss, dialAs(t, s, ss, protocol, nil).listen()
		}
		// full sends what may be sent at once.
		full := func(p *peer) {
			for range 2 * rate {
				p.say(say.nothing)
			}
			p.expectSilence()
		}
		over := func(t *testing.T, s *Server, ss *script, p *peer) {
			p.say(say.start, say.start)
			p.expect(say.farewell...)
			p.expectSilence()
			if left(s) != 0 || len(ss.streams) != 0 {
				t.Errorf("%d connections are left, %d streams were started", left(s), len(ss.streams))
			}
		}
		t.Run(protocol+"/at once", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				full(p)
				over(t, s, ss, p)
			})
		})
		t.Run(protocol+"/at the rate", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				full(p)
				for range 10 * rate {
					time.Sleep(time.Second / rate)
					p.say(say.nothing)
				}
				p.expectSilence()
				time.Sleep(time.Second/rate - 1)
				over(t, s, ss, p)
			})
		})
		t.Run(protocol+"/pings are counted", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				var pongs []string
				for range 2 * rate {
					if err := p.write(frameOf(true, opPing, nil)); err != nil {
						t.Fatal(err)
					}
					pongs = append(pongs, "PONG")
				}
				p.expect(pongs...)
				if err := p.write(frameOf(true, opPing, nil)); err != nil {
					t.Fatal(err)
				}
				p.expect(say.farewell...)
				if left(s) != 0 || len(ss.streams) != 0 {
					t.Errorf("%d connections are left", left(s))
				}
			})
		})
		t.Run(protocol+"/silence is not saved up", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				p.say(say.nothing)
				time.Sleep(time.Hour)
				full(p)
				over(t, s, ss, p)
			})
		})
	}
}

// In the close handshake the library hears pings on another goroutine.
func TestPingsAndMessagesAreCountedTogether(t *testing.T) {
	o := testOptions
	o.MessageRate = 1_000_000
	s, ss := NewServer(o), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	all := frameOf(true, opText, []byte(`{"type":"connection_terminate"}`))
	for range 200 {
		all = append(all, frameOf(true, opText, []byte(`{"type":"stop","id":"x"}`))...)
		all = append(all, frameOf(true, opPing, nil)...)
	}
	for range 50 {
		c := dialLoopback(t, url)
		_ = c.nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond)) // and leaves amid the handshake
		_, _ = c.nc.Write(all)
		_, _ = io.Copy(io.Discard, c.br)
		c.nc.Close()
		<-ss.whys
	}
	shutdown(t, s)
}
