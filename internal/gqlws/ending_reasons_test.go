package gqlws

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The tests in this file check that a peer receives the first reason for the end of its connection, whatever the peer
// sends afterwards.

// coder/websocket closes the connection immediately if a frame is broken. It must not do so before the writer has sent
// the first reason.
func TestBrokenFrameDoesNotReplaceFirstCloseReason(t *testing.T) {
	large := strings.Repeat(" ", int(testOptions.MaxMessage))
	for name, tc := range map[string]struct {
		send []byte
		want []string
	}{
		"a message too big": {frameOf(false, opText, []byte(large+" ")),
			[]string{legacyError("Message is larger than 512 bytes", "LIMIT_EXCEEDED"), "CLOSE 1009 message too big"}},
		"not UTF-8": {frameOf(true, opText, []byte("\xff")),
			[]string{legacyError("Message is not UTF-8", "BAD_REQUEST"), "CLOSE 1007 not UTF-8"}},
		"connection_terminate": {frameOf(true, opText, []byte(`{"type":"connection_terminate"}`)),
			[]string{"CLOSE 1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dial(t, s, ss).startReading()
				p.sendText(startA)
				st := ss.stream(1)
				st.mu.Lock()
				st.blockNext = make(chan struct{}) // blocks the writer
				st.mu.Unlock()
				st.push("1")
				broken := frameOf(true, 0x40|opPing, nil)
				go func() { _ = p.write(append(tc.send, broken...)) }() // fails if the server closes first
				synctest.Wait()
				close(st.blockNext)
				p.expect(tc.want...)
				p.expectNothing()
				shutdown(t, s)
			})
		})
	}
}

// A broken frame must not close the connection before the close frame is written, even if the peer starts to read late.
func TestSlowPeerReceivesCloseFrameDespiteBrokenFrame(t *testing.T) {
	terminate := []byte(`{"type":"connection_terminate"}`)
	for name, tc := range map[string]struct {
		protocol string
		send     []byte
		want     string
	}{
		"legacy": {"graphql-ws", terminate, "CLOSE 1000"},
		"modern": {"graphql-transport-ws", terminate, "CLOSE 4400 Message type is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dialAs(t, s, ss, tc.protocol, nil)
				unmasked := []byte{0x80 | opText, 1, 'x'} // coder/websocket closes without a close frame
				_ = p.write(append(frameOf(true, opText, tc.send), unmasked...))
				synctest.Wait()
				p.startReading()
				p.expect(tc.want)
				p.expectNothing()
				shutdown(t, s)
			})
		})
	}
}

func TestBrokenFrameAndEOFDoNotReplaceFirstCloseReason(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	for i := range 5 {
		c := dialLoopback(t, url)
		ss.waitStream(ctx, i+1).push(numberedPayload(i, 10_000_000)) // more than fits in the kernel's buffers
		if _, err := c.br.Peek(1); err != nil {
			t.Fatal(err)
		}
		c.write(append(frameOf(false, opText, make([]byte, 600)), frameOf(true, opText, []byte("broken"))...))
		if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.expect(`{"type":"data","id":"a","payload":`+numberedPayload(i, 10_000_000)+`}`,
			legacyError("Message is larger than 512 bytes", "LIMIT_EXCEEDED"),
			"CLOSE 1009 message too big")
		if why := <-ss.closed; !errors.Is(why, ErrRefused) {
			t.Errorf("Session.Closed received %v, want %v", why, ErrRefused)
		}
	}
	shutdown(t, s)
}

// A peer may read the last messages of the server before it has sent the rest of its own message. The server must read
// this rest, because a TCP reset could otherwise discard the last messages. FrameTimeout must not end the connection
// earlier.
func TestRestOfTooLargeMessageIsReadBeforeConnectionCloses(t *testing.T) {
	large := frameOf(false, opText, make([]byte, testOptions.MaxMessage+1))
	for name, tc := range map[string]struct{ send, rest []byte }{
		"a message too big": {large, frameOf(true, 0, []byte("its rest"))},
		"part of the next one": {append(frameOf(true, opText, []byte("\xff")), 0x81),
			frameOf(true, opText, []byte("its rest"))[1:]},
		"a ping and part of one": {append(frameOf(true, opText, []byte("\xff")),
			append(frameOf(true, opPing, nil), 0x89)...), frameOf(true, opPing, nil)[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dial(t, s, ss)
				p.sendText(startA)
				ss.stream(1).push("1")
				synctest.Wait() // the payload is being written
				_ = p.write(tc.send)
				time.Sleep(7 * time.Second) // longer than FrameTimeout, shorter than WriteTimeout
				p.noAnswers = true
				p.startReading()
				if err := p.write(tc.rest); err != nil {
					t.Errorf("the rest of the message was not read: %v", err)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}
