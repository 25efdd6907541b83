package gqlws

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A peer that is ended is told why, and why first, whatever it does meanwhile.

// The library closes at once over a broken frame, whoever is at work.
func TestPeerThatBreaksFramesWhileItIsEndedIsToldTheFirstReason(t *testing.T) {
	const error, code = `{"type":"connection_error","id":null,"payload":{"message":`, `"extensions":{"code":"`
	large := strings.Repeat(" ", int(testOptions.MaxMessage))
	for name, tc := range map[string]struct {
		say  []byte
		want []string
	}{
		"a message too big": {frameOf(false, opText, []byte(large+" ")),
			[]string{error + `"Message is larger than 512 bytes",` + code + `LIMIT_EXCEEDED"}}}`, "CLOSE 1009 message too big"}},
		"not UTF-8": {frameOf(true, opText, []byte("\xff")),
			[]string{error + `"Message is not UTF-8",` + code + `BAD_REQUEST"}}}`, "CLOSE 1007 not UTF-8"}},
		"a farewell of its own": {frameOf(true, opText, []byte(`{"type":"connection_terminate"}`)), []string{"CLOSE 1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss).listen()
				p.say(startA)
				st := ss.stream(1)
				st.mu.Lock()
				st.gate = make(chan struct{}) // the writer's, who has the last word
				st.mu.Unlock()
				st.push("1")
				broken := frameOf(true, 0x40|opPing, nil)
				go func() { _ = p.write(append(tc.say, broken...)) }() // not all of it need be read
				synctest.Wait()
				close(st.gate)
				p.expect(tc.want...)
				p.expectSilence()
				shutdown(t, s)
			})
		})
	}
}

// What then fails for the reader is no reason to close before the close frame is
// out, which takes a peer that reads late its time.
func TestPeerThatIsEndedAndReadsLateIsToldWhateverComes(t *testing.T) {
	terminate := []byte(`{"type":"connection_terminate"}`)
	for name, tc := range map[string]struct {
		protocol string
		say      []byte
		want     string
	}{
		"legacy": {"graphql-ws", terminate, "CLOSE 1000"},
		"modern": {"graphql-transport-ws", terminate, "CLOSE 4400 Message type is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dialAs(t, s, ss, tc.protocol, nil)
				unmasked := []byte{0x80 | opText, 1, 'x'} // over which the library sends nothing
				_ = p.write(append(frameOf(true, opText, tc.say), unmasked...))
				synctest.Wait()
				p.listen()
				p.expect(tc.want)
				p.expectSilence()
				shutdown(t, s)
			})
		})
	}
}

func TestPeerThatBreaksFramesAndSaysNoMoreIsToldTheFirstReason(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	for i := range 5 {
		c := dialLoopback(t, url)
		ss.started(ctx, i+1).push(numbered(i, 10_000_000)) // more than the kernel holds
		if _, err := c.br.Peek(1); err != nil {
			t.Fatal(err)
		}
		c.write(append(frameOf(false, opText, make([]byte, 600)), frameOf(true, opText, []byte("broken"))...))
		if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.expect(`{"type":"data","id":"a","payload":`+numbered(i, 10_000_000)+`}`,
			`{"type":"connection_error","id":null,"payload":{"message":"Message is larger than 512 bytes","extensions":{"code":"LIMIT_EXCEEDED"}}}`,
			"CLOSE 1009 message too big")
		if why := <-ss.whys; !errors.Is(why, ErrRefused) {
			t.Errorf("closed with %v", why)
		}
	}
	shutdown(t, s)
}

// The time that a peer takes to read what it was told is not that of what it
// said: it is heard out, so that no reset overtakes the farewell.
func TestPeerThatReadsItsFarewellLateIsHeardOut(t *testing.T) {
	large := frameOf(false, opText, make([]byte, testOptions.MaxMessage+1))
	for name, tc := range map[string]struct{ say, rest []byte }{
		"a message too big":   {large, frameOf(true, 0, []byte("its rest"))},
		"the next is begun":   {append(frameOf(true, opText, []byte("\xff")), 0x81), frameOf(true, opText, []byte("its rest"))[1:]},
		"a ping, and another": {append(frameOf(true, opText, []byte("\xff")), append(frameOf(true, opPing, nil), 0x89)...), frameOf(true, opPing, nil)[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss)
				p.say(startA)
				ss.stream(1).push("1")
				synctest.Wait() // it is on its way
				_ = p.write(tc.say)
				time.Sleep(7 * time.Second) // longer than FrameTimeout, shorter than WriteTimeout
				p.mute = true
				p.listen()
				if err := p.write(tc.rest); err != nil {
					t.Errorf("not heard out: %v", err)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}
