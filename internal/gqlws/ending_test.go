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

// errAny stands for any *RequestError in the test table of TestStreamAndSessionReceiveCloseReason.
var errAny = errors.New("a request error")

// isEnd reports whether err is the expected close reason.
func isEnd(err, want error) bool {
	if want == errAny {
		var r *RequestError
		return errors.As(err, &r)
	}
	return errors.Is(err, want) // nil matches only nil
}

// An endingCase holds a server and one connection of the legacy protocol, which has one open stream. The session of the
// connection expires after an hour.
type endingCase struct {
	s      *Server
	ss     *fakeSession
	p      *peer
	st     *fakeStream
	cancel context.CancelFunc // cancels the context that the method shutdown passes to Shutdown
	done   chan error
}

func (g *endingCase) shutdown(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	g.cancel = cancel
	go func() { g.done <- g.s.Shutdown(ctx) }()
	synctest.Wait()
}

func loss() *RequestError {
	return &RequestError{Errors: []json.RawMessage{json.RawMessage(`{"message":"Gap"}`)}, Lost: true}
}

func TestStreamAndSessionReceiveCloseReason(t *testing.T) {
	const startB = `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`
	stall := func(g *endingCase) { // the peer stops reading during a write
		g.p.stopReading()
		g.st.push(`"` + strings.Repeat("x", 1000) + `"`)
		synctest.Wait()
	}
	for name, tc := range map[string]struct {
		act    func(g *endingCase)
		stream error  // argument of Stream.Close
		conn   error  // argument of Session.Closed
		text   string // part of both texts
	}{
		"stopped": {func(g *endingCase) { g.p.sendText(`{"id":"a","type":"stop"}`) }, nil, ErrGone, ""},
		"started again": {func(g *endingCase) {
			g.p.sendText(startA)
			g.st.closeReason()
		}, nil, ErrGone, ""},
		"the stream ends": {func(g *endingCase) { g.st.end(io.EOF) }, nil, ErrGone, ""},
		"the stream fails with a RequestError": {func(g *endingCase) {
			g.st.end(requestError("Too old", "CURSOR_TOO_OLD"))
		}, nil, ErrGone, ""},
		"the stream fails with another error": {func(g *endingCase) {
			g.st.end(io.ErrUnexpectedEOF)
		}, nil, ErrGone, ""},
		"the stream is lost": {func(g *endingCase) { g.st.end(loss()) }, nil, errAny, ""},
		"terminated": {func(g *endingCase) {
			g.p.sendText(`{"type":"connection_terminate"}`)
		}, nil, nil, ""},
		"terminated during a stalled write": {func(g *endingCase) {
			stall(g)
			g.p.sendText(`{"type":"connection_terminate"}`)
		}, nil, nil, ""},
		"another stream is lost": {func(g *endingCase) {
			g.p.sendText(startB)
			g.ss.stream(2).end(loss())
		}, errAny, errAny, "Gap"},
		"the peer closes": {func(g *endingCase) {
			_ = g.p.send(opClose, []byte{0x03, 0xe8})
		}, ErrGone, nil, ""},
		"the peer closes with 1001": {func(g *endingCase) {
			_ = g.p.send(opClose, []byte{0x03, 0xe9})
		}, ErrGone, nil, ""},
		"the peer disconnects": {func(g *endingCase) { g.p.conn.Close() }, ErrGone, ErrGone, "read failed"},
		"the peer disconnects during a write": {func(g *endingCase) {
			stall(g)
			g.p.conn.Close()
		}, ErrGone, ErrGone, "failed"},
		"expired":   {func(g *endingCase) { time.Sleep(time.Hour) }, ErrExpired, ErrExpired, ""},
		"shut down": {func(g *endingCase) { g.shutdown(time.Minute) }, ErrShutdown, ErrShutdown, ""},
		"shut down, the peer does not respond": {func(g *endingCase) {
			g.p.stopAnswering()
			g.shutdown(time.Minute)
			time.Sleep(closeTimeout)
		}, ErrShutdown, ErrShutdown, ""},
		"refused by a second Init": {func(g *endingCase) {
			g.p.sendText(`{"type":"connection_init","payload":{"Authorization":"wrong"}}`)
		}, ErrRefused, ErrRefused, "the secret is 42"},
		"Init returns a RequestError": {func(g *endingCase) {
			g.p.sendText(`{"type":"connection_init","payload":{"Authorization":"trouble"}}`)
		}, errAny, errAny, "Database is down"},
		"too large a message": {func(g *endingCase) {
			g.p.sendText(strings.Repeat(" ", 600))
		}, ErrRefused, ErrRefused, "larger than 512 bytes"},
		"not UTF-8": {func(g *endingCase) { g.p.sendText("\xff") }, ErrRefused, ErrRefused, "not UTF-8"},
		"not JSON, ten times": {func(g *endingCase) {
			g.p.sendText("", "", "", "", "", "", "", "", "", "")
		}, ErrRefused, ErrRefused, "Too many messages"},
		"a broken frame": {func(g *endingCase) {
			_ = g.p.write([]byte{0x81, 1, 'x'})
		}, ErrRefused, ErrRefused, "unmasked"},
		"a stalled write": {func(g *endingCase) {
			stall(g)
			time.Sleep(testOptions.WriteTimeout)
		}, ErrCut, ErrCut, "write failed"},
		"another stream is lost during a stalled write": {func(g *endingCase) {
			stall(g)
			g.p.sendText(`{"id":"b","type":"start","payload":{"query":"{lost}"}}`)
			time.Sleep(testOptions.WriteTimeout)
		}, ErrCut, ErrCut, "write failed"},
		"expired during a stalled write": {func(g *endingCase) {
			time.Sleep(time.Hour - time.Second)
			stall(g)
			time.Sleep(testOptions.WriteTimeout)
		}, ErrCut, ErrCut, "write failed"},
		"no pong": {func(g *endingCase) {
			g.p.stopAnswering()
			time.Sleep(4 * testOptions.KeepAliveInterval)
		}, ErrCut, ErrCut, "no answer to pings"},
		"an incomplete frame": {func(g *endingCase) {
			_ = g.p.write([]byte{0x81})
			time.Sleep(testOptions.FrameTimeout)
		}, ErrCut, ErrCut, "read failed"},
		"a stalled close handshake": {func(g *endingCase) {
			g.p.stopReading()
			g.shutdown(time.Minute)
			time.Sleep(closeTimeout)
		}, ErrCut, ErrCut, "close handshake took too long"},
		"Shutdown reaches its deadline": {func(g *endingCase) {
			stall(g)
			g.shutdown(time.Second)
			time.Sleep(time.Second)
		}, ErrCut, ErrCut, "shutdown took too long"},
		"Shutdown is canceled": {func(g *endingCase) {
			stall(g)
			g.shutdown(time.Minute)
			g.cancel()
		}, ErrCut, ErrCut, "shutdown took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &endingCase{s: NewServer(testOptions), ss: newFakeSession(t), done: make(chan error, 1)}
				g.p = dial(t, g.s, g.ss).startReading()
				g.p.sendText(`{"type":"connection_init","payload":{"ttl":"1h"}}`, startA)
				g.st = g.ss.stream(1)
				tc.act(g)
				if got := g.st.closeReason(); !isEnd(got, tc.stream) || got != nil &&
					!strings.Contains(got.Error(), tc.text) {
					t.Errorf("Stream.Close received %v, want %v with the text %q", got, tc.stream, tc.text)
				}
				if tc.conn == ErrGone { // only the stream has ended: disconnect the peer
					g.p.conn.Close()
				}
				synctest.Wait()
				time.Sleep(testOptions.WriteTimeout) // for the case "terminated during a stalled write"
				if got := g.ss.closeReason(); !isEnd(got, tc.conn) || got != nil &&
					!strings.Contains(got.Error(), tc.text) {
					t.Errorf("Session.Closed received %v, want %v with the text %q", got, tc.conn, tc.text)
				}
				if tc.conn == ErrCut && strings.HasSuffix(tc.text, "failed") &&
					!errors.Is(g.ss.closeReason(), os.ErrDeadlineExceeded) {
					t.Errorf("Session.Closed received %v, want it to wrap os.ErrDeadlineExceeded", g.ss.closeReason())
				}
				g.p.conn.Close()
				shutdown(t, g.s)
				if g.cancel != nil {
					<-g.done
					g.cancel()
				}
			})
		})
	}
}

func TestStalledPingWriteCutsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA) // without init, so that only pings are written
		p.stopReading()
		time.Sleep(testOptions.KeepAliveInterval + testOptions.WriteTimeout)
		for _, err := range []error{ss.stream(1).closeReason(), ss.closeReason()} {
			if !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "write failed") {
				t.Errorf("Stream.Close or Session.Closed received %v, want ErrCut and \"write failed\"", err)
			}
		}
		p.conn.Close()
	})
}

// If a peer disconnects during the close handshake, the close reason is still the reason for which the server started
// the handshake.
func TestDisconnectDuringCloseHandshakeKeepsCloseReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dialAs(t, s, ss, "graphql-transport-ws", nil).startReading()
		p.sendText(modernInit)
		for _, id := range []string{"1", "2"} {
			p.sendText(`{"id":"` + id + `","type":"subscribe","payload":{"query":"subscription{a}"}}`)
		}
		p.expect(modernAck)
		p.stopReading()
		go shutdown(t, s)
		synctest.Wait()
		p.conn.Close()
		for n := range 2 {
			if err := ss.stream(n + 1).closeReason(); err != ErrShutdown {
				t.Errorf("Close of stream %d received %v, want %v", n+1, err, ErrShutdown)
			}
		}
		if err := ss.closeReason(); err != ErrShutdown {
			t.Errorf("Session.Closed received %v, want %v", err, ErrShutdown)
		}
	})
}

func TestBrokenFrameDuringCloseHandshakeKeepsCloseReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA)
		p.stopReading()
		go shutdown(t, s)
		synctest.Wait()
		_ = p.write([]byte{0x81, 1, 'x'}) // not masked: coder/websocket closes without a close frame
		if err := ss.stream(1).closeReason(); err != ErrShutdown {
			t.Errorf("Stream.Close received %v, want %v", err, ErrShutdown)
		}
		if err := ss.closeReason(); err != ErrShutdown {
			t.Errorf("Session.Closed received %v, want %v", err, ErrShutdown)
		}
		p.conn.Close()
	})
}

// If Next returns a payload while the connection is ending, the payload is sent before the last message, and the cursor
// in the last message is after the payload.
func TestLastCursorIncludesPayloadSentWhileConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(*fakeStream){
		"a payload": func(st *fakeStream) { st.push("1") },
		"a loss":    func(st *fakeStream) { st.end(loss()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dial(t, s, ss).startReading()
				p.sendText(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
				p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`)
				st := ss.stream(1)
				st.setCursor("6")
				st.mu.Lock()
				st.blockNext = make(chan struct{})
				st.mu.Unlock()
				end(st)
				time.Sleep(time.Second) // the session expires during Next
				p.expectNothing()
				st.setCursor("7")
				close(st.blockNext)
				if name == "a payload" {
					p.expect(`{"type":"data","id":"a","payload":1}`)
				}
				p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Session expired",`+
					`"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"7"}}}`,
					"CLOSE 1001 session expired")
				if err := st.closeReason(); err != ErrExpired {
					t.Errorf("Stream.Close received %v, want %v", err, ErrExpired)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// If a session expires after a stream was lost, the peer still receives the error of the lost stream.
func TestLostStreamErrorIsSentDespiteSessionExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
		p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`)
		st := ss.stream(1)
		st.blockClose = make(chan struct{})
		st.end(loss())
		time.Sleep(time.Second)
		close(st.blockClose)
		p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Gap"}}`, "CLOSE 1001 stream lost")
		p.conn.Close()
		shutdown(t, s)
	})
}
