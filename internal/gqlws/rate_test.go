package gqlws

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A peer may send a burst of three times MessageRate messages, and then messages at that rate. The first message beyond
// this ends the connection and is not processed.
func TestMessageRateIsEnforced(t *testing.T) {
	const rate = 10
	for protocol, messages := range map[string]struct {
		ignored, start string
		end            []string
	}{
		"graphql-ws": {
			ignored: `{"type":"stop","id":"x"}`,
			start:   startA,
			end:     []string{legacyError("More than 10 messages a second", "LIMIT_EXCEEDED"), "CLOSE 1008"},
		},
		"graphql-transport-ws": {
			ignored: `{"type":"complete","id":"x"}`,
			start:   `{"id":"a","type":"subscribe","payload":{"query":"subscription{a}"}}`,
			end:     []string{"CLOSE 1008 More than 10 messages a second"},
		},
	} {
		connect := func(t *testing.T) (*Server, *fakeSession, *peer) {
			o := testOptions
			o.MessageRate = rate
			o.InitTimeout, o.UnusedTimeout = 0, 0
			s, ss := NewServer(o), newFakeSession(t)
			return s, ss, dialAs(t, s, ss, protocol, nil).startReading()
		}
		// sendBurst sends as many messages as a burst may contain.
		sendBurst := func(p *peer) {
			for range 3 * rate {
				p.sendText(messages.ignored)
			}
			p.expectNothing()
		}
		expectEnd := func(t *testing.T, s *Server, ss *fakeSession, p *peer) {
			p.sendText(messages.start, messages.start)
			p.expect(messages.end...)
			p.expectNothing()
			if remainingSockets(s) != 0 || len(ss.streams) != 0 {
				t.Errorf("%d connections are left and %d streams were started, want none", remainingSockets(s),
					len(ss.streams))
			}
		}
		t.Run(protocol+"/burst", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				sendBurst(p)
				expectEnd(t, s, ss, p)
			})
		})
		t.Run(protocol+"/at the rate", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				sendBurst(p)
				for range 10 * rate {
					time.Sleep(time.Second / rate)
					p.sendText(messages.ignored)
				}
				p.expectNothing()
				time.Sleep(time.Second/rate - 1)
				expectEnd(t, s, ss, p)
			})
		})
		for name, frames := range map[string]struct{ first, each, last []byte }{
			"pings":           {each: frameOf(true, opPing, nil)},
			"pongs":           {each: frameOf(true, opPong, nil)},
			"large pongs":     {each: frameOf(true, opPong, make([]byte, 125))},
			"messages":        {each: frameOf(true, opText, []byte(messages.ignored))},
			"empty fragments": {first: frameOf(false, opText, nil), each: frameOf(false, 0, nil)},
		} {
			t.Run(protocol+"/"+name+" are counted", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, ss, p := connect(t)
					write := func(b []byte) {
						if err := p.write(b); err != nil {
							t.Fatal(err)
						}
					}
					left := 3 * rate
					if frames.first != nil {
						write(frames.first)
						left--
					}
					for range left {
						write(frames.each)
					}
					if name == "pings" {
						for range left {
							p.expect("PONG")
						}
					}
					p.expectNothing()
					write(frames.each)
					p.expect(messages.end...)
					if len(ss.streams) != 0 || strings.Join(ss.limits, " ") != "MessageRate" {
						t.Errorf("%d streams were started and Limit was called with %v, want none and MessageRate",
							len(ss.streams), ss.limits)
					}
					p.conn.Close()
					shutdown(t, s)
				})
			})
		}
		t.Run(protocol+"/a message in small fragments is processed", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				p.sendText(messages.ignored) // this message is allowed before connection_init
				text := strings.Repeat(" ", 3*rate*frameWeight-4*frameWeight) + messages.ignored
				text = text[len(messages.ignored):]
				parts := frameOf(false, opText, nil)
				for i := range len(text) {
					parts = append(parts, frameOf(false, 0, []byte{text[i]})...)
				}
				if err := p.write(append(parts, frameOf(true, 0, nil)...)); err != nil {
					t.Fatal(err)
				}
				p.expectNothing()
				if len(ss.limits) != 0 || remainingSockets(s) != 1 {
					t.Errorf("Limit was called with %v and %d connections are left, want no call and one connection",
						ss.limits, remainingSockets(s))
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
		t.Run(protocol+"/idle time is not credited", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				p.sendText(messages.ignored)
				time.Sleep(time.Hour + time.Second) // so that no pong is sent at the same time
				sendBurst(p)
				expectEnd(t, s, ss, p)
			})
		})
	}
}

// During the close handshake, coder/websocket reads pings on the writer's goroutine. The race detector checks that the
// counters of the rate limiter are guarded.
func TestMessageRateHasNoDataRaceDuringCloseHandshake(t *testing.T) {
	o := testOptions
	o.MessageRate = 1_000_000
	s, ss := NewServer(o), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	all := frameOf(true, opText, []byte(`{"type":"connection_terminate"}`))
	for range 200 {
		all = append(all, frameOf(true, opText, []byte(`{"type":"stop","id":"x"}`))...)
		all = append(all, frameOf(true, opPing, nil)...)
	}
	for range 50 {
		c := dialLoopback(t, url)
		_ = c.nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond)) // to disconnect during the close handshake
		_, _ = c.nc.Write(all)
		_, _ = io.Copy(io.Discard, c.br)
		c.nc.Close()
		<-ss.closed
	}
	shutdown(t, s)
}

// While a connection ends, a peer may send more than a burst, because its frames may have been on the way. If it sends
// too many, the connection is cut.
func TestFloodDuringCloseHandshakeCutsConnection(t *testing.T) {
	const rate = 10
	for name, frame := range map[string][]byte{
		"pongs":    frameOf(true, opPong, nil),
		"pings":    frameOf(true, opPing, nil),
		"messages": frameOf(true, opText, []byte(startA)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions
				o.MessageRate = rate
				s, ss := NewServer(o), newFakeSession(t)
				p := dial(t, s, ss)
				p.noAnswers = true
				p.startReading()
				sent := 0
				for p.write(frame) == nil {
					sent++
				}
				if most := int(burstAfterEnd/time.Second)*rate + 1; sent != most {
					t.Errorf("the server read %d frames, want %d", sent, most)
				}
				if err := ss.closeReason(); !errors.Is(err, ErrRefused) {
					t.Errorf("Session.Closed received %v, want %v", err, ErrRefused)
				}
				shutdown(t, s)
			})
		})
	}
}

func TestFrameCounterDoesNotDependOnReadSizes(t *testing.T) {
	var all []byte
	want := 0
	add := func(weight int, frame []byte) {
		all = append(all, frame...)
		want += weight
	}
	for _, n := range []int{0, 1, 125, 126, 200, 1<<16 - 1, 1 << 16, 1<<16 + 1} {
		add(frameWeight, frameOf(false, opText, make([]byte, n)))
		add(1, frameOf(false, 0, make([]byte, max(n, 1))))
		add(frameWeight, frameOf(true, opPong, make([]byte, n%126)))
		add(frameWeight, frameOf(true, 0, nil))
	}
	add(frameWeight, []byte{0x81, 2, '{', '}'}) // not masked: counted here and rejected by coder/websocket
	add(frameWeight, frameOf(true, opBinary, []byte("{}")))
	add(0, frameOf(true, opClose, []byte{3, 232}))
	for _, size := range []int{1, 2, 3, 5, 7, 14, 256, 4096, len(all)} {
		var f frameCounter
		got := 0
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			got += f.count(rest[:n])
			rest = rest[n:]
		}
		if got != want {
			t.Errorf("frames read in pieces of %d bytes have the weight %d, want %d", size, got, want)
		}
	}
	var f frameCounter
	if got := testing.AllocsPerRun(10, func() { f.count(all) }); got != 0 {
		t.Errorf("count allocates %v times, want 0", got)
	}
}
