package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// errAny is what a *RequestError is told by in the tables here.
var errAny = errors.New("a request error")

func isEnd(err, want error) bool {
	if want == errAny {
		var r *RequestError
		return errors.As(err, &r)
	}
	return errors.Is(err, want) // nil is nil alone
}

// A stage is one connection of the legacy protocol with a session that expires
// after an hour, and a stream, whose end is watched.
type stage struct {
	s      *Server
	ss     *script
	p      *peer
	st     *scriptStream
	cancel context.CancelFunc // ends the context of shutdown
	over   chan error
}

func (g *stage) shutdown(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	g.cancel = cancel
	go func() { g.over <- g.s.Shutdown(ctx) }()
	synctest.Wait()
}

func loss() *RequestError {
	return &RequestError{Errors: []json.RawMessage{json.RawMessage(`{"message":"Gap"}`)}, Lost: true}
}

func TestSessionLearnsWhyItsStreamsEnd(t *testing.T) {
	const startB = `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`
	stall := func(g *stage) { // the peer reads nothing from now on
		g.p.deaf()
		g.st.push(`"` + strings.Repeat("x", 1000) + `"`)
		synctest.Wait()
	}
	for name, tc := range map[string]struct {
		act    func(g *stage)
		stream error  // what Stream.Close is given
		conn   error  // what Session.Closed is given
		text   string // part of both
	}{
		"stopped": {func(g *stage) { g.p.say(`{"id":"a","type":"stop"}`) }, nil, ErrGone, ""},
		"started again": {func(g *stage) {
			g.p.say(startA)
			g.st.closedBy()
		}, nil, ErrGone, ""},
		"at its end":                 {func(g *stage) { g.st.end(io.EOF) }, nil, ErrGone, ""},
		"with an error of its own":   {func(g *stage) { g.st.end(requestError("Too old", "CURSOR_TOO_OLD")) }, nil, ErrGone, ""},
		"with a failure of its own":  {func(g *stage) { g.st.end(io.ErrUnexpectedEOF) }, nil, ErrGone, ""},
		"lost":                       {func(g *stage) { g.st.end(loss()) }, nil, errAny, ""},
		"terminated":                 {func(g *stage) { g.p.say(`{"type":"connection_terminate"}`) }, nil, nil, ""},
		"terminated, and then stuck": {func(g *stage) { stall(g); g.p.say(`{"type":"connection_terminate"}`) }, nil, nil, ""},
		"another stream is lost": {func(g *stage) {
			g.p.say(startB)
			g.ss.stream(2).end(loss())
		}, errAny, errAny, "Gap"},
		"the peer closes":         {func(g *stage) { _ = g.p.send(opClose, []byte{0x03, 0xe8}) }, ErrGone, nil, ""},
		"the peer goes elsewhere": {func(g *stage) { _ = g.p.send(opClose, []byte{0x03, 0xe9}) }, ErrGone, nil, ""},
		"the peer disappears":     {func(g *stage) { g.p.conn.Close() }, ErrGone, ErrGone, "read failed"},
		"the peer disappears in a write": {func(g *stage) {
			stall(g)
			g.p.conn.Close()
		}, ErrGone, ErrGone, "failed"},
		"expired":   {func(g *stage) { time.Sleep(time.Hour) }, ErrExpired, ErrExpired, ""},
		"shut down": {func(g *stage) { g.shutdown(time.Minute) }, ErrShutdown, ErrShutdown, ""},
		"shut down, the peer keeps silent": {func(g *stage) {
			g.p.quiet()
			g.shutdown(time.Minute)
			time.Sleep(closeWait)
		}, ErrShutdown, ErrShutdown, ""},
		"refused later": {func(g *stage) {
			g.p.say(`{"type":"connection_init","payload":{"Authorization":"wrong"}}`)
		}, ErrRefused, ErrRefused, "the secret is 42"},
		"the Session is in trouble": {func(g *stage) {
			g.p.say(`{"type":"connection_init","payload":{"Authorization":"trouble"}}`)
		}, errAny, errAny, "Database is down"},
		"a message too big":   {func(g *stage) { g.p.say(strings.Repeat(" ", 600)) }, ErrRefused, ErrRefused, "larger than 512 bytes"},
		"not UTF-8":           {func(g *stage) { g.p.say("\xff") }, ErrRefused, ErrRefused, "not UTF-8"},
		"not JSON, ten times": {func(g *stage) { g.p.say("", "", "", "", "", "", "", "", "", "") }, ErrRefused, ErrRefused, "Too many messages"},
		"a broken frame":      {func(g *stage) { _ = g.p.write([]byte{0x81, 1, 'x'}) }, ErrRefused, ErrRefused, "unmasked"},
		"a stalled write": {func(g *stage) {
			stall(g)
			time.Sleep(testOptions.WriteTimeout)
		}, ErrCut, ErrCut, "write failed"},
		"another stream is lost in a stalled write": {func(g *stage) {
			stall(g)
			g.p.say(`{"id":"b","type":"start","payload":{"query":"{lost}"}}`)
			time.Sleep(testOptions.WriteTimeout)
		}, ErrCut, ErrCut, "write failed"},
		"expired in a stalled write": {func(g *stage) {
			time.Sleep(time.Hour - time.Second)
			stall(g)
			time.Sleep(testOptions.WriteTimeout)
		}, ErrCut, ErrCut, "write failed"},
		"no pong": {func(g *stage) {
			g.p.quiet()
			time.Sleep(4 * testOptions.KeepAlive)
		}, ErrCut, ErrCut, "no answer to pings"},
		"half a frame": {func(g *stage) {
			_ = g.p.write([]byte{0x81})
			time.Sleep(testOptions.FrameTimeout)
		}, ErrCut, ErrCut, "read failed"},
		"a farewell that stalls": {func(g *stage) {
			g.p.deaf()
			g.shutdown(time.Minute)
			time.Sleep(closeWait)
		}, ErrCut, ErrCut, "farewell took too long"},
		"a shutdown that takes too long": {func(g *stage) {
			stall(g)
			g.shutdown(time.Second)
			time.Sleep(time.Second)
		}, ErrCut, ErrCut, "shutdown took too long"},
		"a shutdown that is given up": {func(g *stage) {
			stall(g)
			g.shutdown(time.Minute)
			g.cancel()
		}, ErrCut, ErrCut, "shutdown took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &stage{s: NewServer(testOptions), ss: newScript(t), over: make(chan error, 1)}
				g.p = dial(t, g.s, g.ss).listen()
				g.p.say(`{"type":"connection_init","payload":{"ttl":"1h"}}`, startA)
				g.st = g.ss.stream(1)
				tc.act(g)
				if got := g.st.closedBy(); !isEnd(got, tc.stream) || got != nil && !strings.Contains(got.Error(), tc.text) {
					t.Errorf("the stream was closed with %v, want %v and %q", got, tc.stream, tc.text)
				}
				if tc.conn == ErrGone { // where only the stream had ended
					g.p.conn.Close()
				}
				synctest.Wait()
				time.Sleep(testOptions.WriteTimeout) // "terminated, and then stuck"
				if got := g.ss.ended(); !isEnd(got, tc.conn) || got != nil && !strings.Contains(got.Error(), tc.text) {
					t.Errorf("the session was closed with %v, want %v and %q", got, tc.conn, tc.text)
				}
				if tc.conn == ErrCut && strings.HasSuffix(tc.text, "failed") && !errors.Is(g.ss.ended(), os.ErrDeadlineExceeded) {
					t.Errorf("%v does not wrap its cause", g.ss.ended())
				}
				g.p.conn.Close()
				shutdown(t, g.s)
				if g.cancel != nil {
					<-g.over
					g.cancel()
				}
			})
		})
	}
}

func TestStalledPingIsACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA) // and no init, so that pings are all that is written
		p.deaf()
		time.Sleep(testOptions.KeepAlive + testOptions.WriteTimeout)
		for _, err := range []error{ss.stream(1).closedBy(), ss.ended()} {
			if !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "write failed") {
				t.Errorf("closed with %v", err)
			}
		}
		p.conn.Close()
	})
}

// One who leaves as soon as it reads the farewell does so because of it.
func TestPeerThatLeavesOnTheFarewellWasToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dialAs(t, s, ss, "graphql-transport-ws", nil).listen()
		p.say(modernInit)
		for _, id := range []string{"1", "2"} {
			p.say(`{"id":"` + id + `","type":"subscribe","payload":{"query":"subscription{a}"}}`)
		}
		p.expect(modernAck)
		p.deaf()
		go shutdown(t, s)
		synctest.Wait()
		p.conn.Close()
		for n := range 2 {
			if err := ss.stream(n + 1).closedBy(); err != ErrShutdown {
				t.Errorf("stream %d was closed with %v", n+1, err)
			}
		}
		if err := ss.ended(); err != ErrShutdown {
			t.Errorf("the session was closed with %v", err)
		}
	})
}

// What a stream gave before the end is written before the peer is told where the
// stream stands, and what is told counts it.
func TestCursorIsToldBehindWhatItCounts(t *testing.T) {
	for name, end := range map[string]func(*scriptStream){
		"a payload": func(st *scriptStream) { st.push("1") },
		"a loss":    func(st *scriptStream) { st.end(loss()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss).listen()
				p.say(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
				p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`)
				st := ss.stream(1)
				st.at("6")
				st.mu.Lock()
				st.gate = make(chan struct{})
				st.mu.Unlock()
				end(st)
				time.Sleep(time.Second) // expires while Next is under way
				p.expectSilence()
				st.at("7")
				close(st.gate)
				if name == "a payload" {
					p.expect(`{"type":"data","id":"a","payload":1}`)
				}
				p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Session expired","extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"7"}}}`,
					"CLOSE 1001 session expired")
				if err := st.closedBy(); err != ErrExpired {
					t.Errorf("closed with %v", err)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// The session expires when a lost stream has ended and its connection not yet.
func TestLossIsToldAlthoughTheSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
		p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`)
		st := ss.stream(1)
		st.leaving = make(chan struct{})
		st.end(loss())
		time.Sleep(time.Second)
		close(st.leaving)
		p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Gap"}}`, "CLOSE 1001 stream lost")
		p.conn.Close()
		shutdown(t, s)
	})
}
