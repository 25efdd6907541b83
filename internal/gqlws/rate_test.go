package gqlws

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Peers may send three times the rate at once, and then as many as the rate allows;
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
			o.InitTimeout, o.UnusedTimeout = 0, 0
			s, ss := NewServer(o), newScript(t)
			return s, ss, dialAs(t, s, ss, protocol, nil).listen()
		}
		// full sends what may be sent at once.
		full := func(p *peer) {
			for range 3 * rate {
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
		for name, frames := range map[string]struct{ first, each, last []byte }{
			"pings":           {each: frameOf(true, opPing, nil)},
			"pongs":           {each: frameOf(true, opPong, nil)},
			"large pongs":     {each: frameOf(true, opPong, make([]byte, 125))},
			"messages":        {each: frameOf(true, opText, []byte(say.nothing))},
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
					p.expectSilence()
					write(frames.each)
					p.expect(say.farewell...)
					if len(ss.streams) != 0 || strings.Join(ss.limits, " ") != "MessageRate" {
						t.Errorf("%d streams were started, and the session learned of %v", len(ss.streams), ss.limits)
					}
					p.conn.Close()
					shutdown(t, s)
				})
			})
		}
		t.Run(protocol+"/a message in small parts is heard", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				p.say(say.nothing) // the modern one's init is not needed for it
				text := strings.Repeat(" ", 3*rate*wholeFrame-4*wholeFrame) + say.nothing
				text = text[len(say.nothing):]
				parts := frameOf(false, opText, nil)
				for i := range len(text) {
					parts = append(parts, frameOf(false, 0, []byte{text[i]})...)
				}
				if err := p.write(append(parts, frameOf(true, 0, nil)...)); err != nil {
					t.Fatal(err)
				}
				p.expectSilence()
				if len(ss.limits) != 0 || left(s) != 1 {
					t.Errorf("the session learned of %v, %d connections are left", ss.limits, left(s))
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
		t.Run(protocol+"/silence is not saved up", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss, p := connect(t)
				p.say(say.nothing)
				time.Sleep(time.Hour + time.Second) // the last pong has come long since
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

// The rate bounds what a peer can do in the close handshake, too, and the bound is
// far above what one that is surprised by its end has on the way.
func TestPeerThatFloodsTheCloseHandshakeIsCut(t *testing.T) {
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
				s, ss := NewServer(o), newScript(t)
				p := dial(t, s, ss)
				p.mute = true
				p.listen()
				heard := 0
				for p.write(frame) == nil {
					heard++
				}
				if most := int(afterEnd/time.Second)*rate + 1; heard != most {
					t.Errorf("%d frames were sent, want %d", heard, most)
				}
				if err := ss.ended(); !errors.Is(err, ErrRefused) {
					t.Errorf("closed with %v", err)
				}
				shutdown(t, s)
			})
		})
	}
}

// However the bytes arrive, the headers are found.
func TestFramesAreCountedInAnyPieces(t *testing.T) {
	var all []byte
	want := 0
	add := func(weight int, frame []byte) {
		all = append(all, frame...)
		want += weight
	}
	for _, n := range []int{0, 1, 125, 126, 200, 1<<16 - 1, 1 << 16, 1<<16 + 1} {
		add(wholeFrame, frameOf(false, opText, make([]byte, n)))
		add(1, frameOf(false, 0, make([]byte, max(n, 1))))
		add(wholeFrame, frameOf(true, opPong, make([]byte, n%126)))
		add(wholeFrame, frameOf(true, 0, nil))
	}
	add(wholeFrame, []byte{0x81, 2, '{', '}'}) // not masked, which the library refuses
	add(wholeFrame, frameOf(true, opBinary, []byte("{}")))
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
			t.Errorf("pieces of %d bytes count %d, want %d", size, got, want)
		}
	}
	var f frameCounter
	if got := testing.AllocsPerRun(10, func() { f.count(all) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
