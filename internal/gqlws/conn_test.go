package gqlws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

const startA = `{"id":"a","type":"start","payload":{"query":"subscription{a}"}}`

func TestPeerThatReadsNothingIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log notebook
		o := testOptions
		o.Logger = log.logger()
		s, ss := NewServer(o), newScript(t)
		p := dial(t, s, ss) // and never listens
		p.say(startA)
		st := ss.stream(1)
		st.push("1", "2", "3")

		time.Sleep(o.WriteTimeout - time.Millisecond)
		if left(s) != 1 {
			t.Error("cut before the time is over")
		}
		if n := st.timesAsked(); n != 2 { // once for nothing, once for what is being written
			t.Errorf("a stream was asked %d times while nothing could be written", n)
		}
		time.Sleep(time.Millisecond)
		if left(s) != 0 || ss.open() != 0 {
			t.Error("a peer that reads nothing still holds its connection")
		}
		if !strings.Contains(log.String(), `reason="write failed"`) || !strings.Contains(log.String(), "timeout") {
			t.Errorf("the log does not say why: %s", log.String())
		}
		p.conn.Close()
	})
}

func TestPeerThatAsksWithoutReadingIsHeldUpAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newScript(t))
		asked := make(chan int)
		go func() {
			n := 0
			for p.send(opText, []byte(`{"type":"connection_init"}`)) == nil {
				n++
			}
			asked <- n
		}()
		time.Sleep(testOptions.WriteTimeout)
		n := <-asked
		if left(s) != 0 {
			t.Error("it still holds its connection")
		}
		if most := maxOutbox/frameCost + 10; n > most {
			t.Errorf("%d answers were kept for it, more than %d", n, most)
		}
	})
}

func TestPeerThatReadsMayAskInBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newScript(t)).listen()
		const burst = 5000
		for range burst {
			p.say(`{"type":"x"}`)
		}
		for range burst {
			p.expect(`{"type":"error","payload":{"message":"Invalid message type!"}}`)
		}
		p.expectSilence()
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestStreamsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		p.say(startA, `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`)
		a, b := ss.stream(1), ss.stream(2)
		for range 50 {
			a.push("1")
		}
		b.push("2")
		p.listen()
		var lines []string
		for range 4 {
			lines = append(lines, p.next())
		}
		if !strings.Contains(strings.Join(lines, "\n"), `"id":"b"`) {
			t.Errorf("one stream had to wait for all of another:\n%s", strings.Join(lines, "\n"))
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// What a peer is answered does not wait behind what it subscribed to.
func TestAnswersGoAheadOfData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		p.say(startA)
		ss.stream(1).push("1", "2", "3")
		synctest.Wait()
		p.say(`{"type":"connection_init"}`, `{"id":"a","type":"stop"}`)
		p.listen()
		p.expect(`{"type":"data","id":"a","payload":1}`, // was being written
			`{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"complete","id":"a","payload":null}`)
		p.expectSilence()
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestStreamIsClosedAfterItsNextReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA)
		st := ss.stream(1)
		st.mu.Lock()
		st.gate = make(chan struct{})
		st.mu.Unlock()
		st.push("1")
		synctest.Wait()
		p.say(`{"id":"a","type":"stop"}`)
		synctest.Wait()
		if ss.open() != 1 {
			t.Error("closed while Next was under way")
		}
		close(st.gate)
		p.expect(`{"type":"complete","id":"a","payload":null}`) // and no data
		p.expectSilence()
		if ss.open() != 0 {
			t.Error("not closed after Next returned")
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestHalfFrameIsCut(t *testing.T) {
	start := frameOf(true, opText, []byte(startA))
	part := frameOf(false, opText, []byte(`{"type":`))
	ping := frameOf(true, opPing, nil)
	for name, begin := range map[string][]byte{
		"one byte":           start[:1],
		"half a header":      start[:4],
		"half a payload":     start[:20],
		"a part":             part,
		"behind a message":   append(bytes.Clone(start), start[:1]...),
		"behind a ping":      append(bytes.Clone(ping), start[:3]...),
		"a part and a ping":  append(bytes.Clone(part), ping...),
		"half of a ping":     ping[:3],
		"a part and a frame": append(bytes.Clone(part), frameOf(false, 0, []byte(" "))...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss).listen()
				time.Sleep(20 * time.Second) // waiting is no fault
				if err := p.write(begin); err != nil {
					t.Fatal(err)
				}
				time.Sleep(testOptions.FrameTimeout - time.Millisecond)
				if left(s) != 1 {
					t.Error("cut before the time is over")
				}
				time.Sleep(time.Millisecond)
				if left(s) != 0 || ss.open() != 0 {
					t.Error("half a frame still holds a connection")
				}
			})
		})
	}
}

func TestHalfFrameSentWithTheHandshakeIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dialAhead(t, s, newScript(t), frameOf(true, opText, []byte(startA))[:10]).listen()
		time.Sleep(testOptions.FrameTimeout - time.Millisecond)
		p.expectSilence()
		time.Sleep(time.Millisecond)
		p.expect("CUT")
	})
}

func TestStreamIsAskedUntilItHasNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA)
		ss.stream(1).push("1", "2", "3") // and one wake
		p.expect(`{"type":"data","id":"a","payload":1}`, `{"type":"data","id":"a","payload":2}`, `{"type":"data","id":"a","payload":3}`)
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestDribblingDoesNotMoveTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newScript(t)).listen()
		begin := time.Now()
		_ = p.write(frameOf(false, opText, []byte(" ")))
		for left(s) == 1 && time.Since(begin) < time.Minute {
			_ = p.write(frameOf(false, 0, []byte(" ")))
			_ = p.write(frameOf(true, opPing, nil))
			time.Sleep(time.Second)
		}
		if d := time.Since(begin); d > testOptions.FrameTimeout {
			t.Errorf("it took %v to cut a peer that dribbles", d)
		}
	})
}

func TestSlowButWholeMessagesAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newScript(t)).listen()
		query := frameOf(true, opText, []byte(`{"id":"1","type":"start","payload":{"query":"{info{version}}"}}`))
		time.Sleep(time.Second) // so that no pong gets between the pieces
		for range 3 {
			for _, b := range [][]byte{query[:1], query[1:9], query[9:]} {
				if err := p.write(b); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			p.expect(`{"type":"data","id":"1","payload":{"data":{"info":{"version":"0.68.0"}}}}`,
				`{"type":"complete","id":"1","payload":null}`)
			time.Sleep(time.Hour - 6*time.Second)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestPeerSilentToPingsIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log notebook
		o := testOptions
		o.Logger = log.logger()
		s, ss := NewServer(o), newScript(t)
		p := dial(t, s, ss)
		p.mute = true
		p.listen()
		p.say(startA)
		ss.stream(1).push("1")
		p.expect(`{"type":"data","id":"a","payload":1}`)
		time.Sleep(o.KeepAlive)
		p.expect("PING")
		time.Sleep(o.KeepAlive)
		p.expect("PING")
		time.Sleep(o.KeepAlive - time.Millisecond)
		p.expectSilence()
		if left(s) != 1 {
			t.Error("cut before the next but one")
		}
		time.Sleep(2 * time.Millisecond)
		if left(s) != 0 || ss.open() != 0 {
			t.Error("a peer that answers no pings still holds its connection")
		}
		if !strings.Contains(log.String(), "no answer to pings") {
			t.Errorf("the log does not say why: %s", log.String())
		}
	})
}

func TestLargeMessageIsToldAndClosed(t *testing.T) {
	frame := []byte(`{"id":"1","type":"start","payload":{"query":"{info{version}}","x":"` + strings.Repeat("x", 600) + `"}}`)
	fits := append(bytes.Clone(frame[:300]), `"}}`...)
	fits = append(fits, bytes.Repeat([]byte(" "), int(testOptions.MaxMessage)-len(fits))...)
	for name, tc := range map[string]struct {
		bytes []byte
		want  []string
	}{
		"as large as may be": {frameOf(true, opText, fits),
			[]string{`{"type":"data","id":"1","payload":{"data":{"info":{"version":"0.68.0"}}}}`,
				`{"type":"complete","id":"1","payload":null}`}},
		"one byte more": {frameOf(true, opText, append(bytes.Clone(fits), ' ')), nil},
		"in parts":      {append(frameOf(false, opText, frame[:500]), frameOf(true, 0, frame[500:])...), nil},
		"never ending":  {frameOf(true, opText, make([]byte, 1<<20))[:9000], nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(testOptions)
				p := dial(t, s, newScript(t)).listen()
				if err := p.write(tc.bytes); err != nil {
					t.Fatal(err)
				}
				if tc.want == nil {
					tc.want = []string{`{"type":"connection_error","id":null,"payload":{"message":"Message is larger than 512 bytes","extensions":{"code":"LIMIT_EXCEEDED"}}}`, "CLOSE 1009"}
				}
				p.expect(tc.want...)
				p.expectSilence()
				time.Sleep(closeWait)
				if strings.HasPrefix(tc.want[1], "CLOSE") && left(s) != 0 {
					t.Error("still connected")
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// A message that the connection's end cuts off is not acted upon.
func TestPartOfAMessageIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		b := frameOf(true, opText, []byte(startA))
		if err := p.write(b[:len(b)-1]); err != nil {
			t.Fatal(err)
		}
		p.conn.Close()
		if left(s) != 0 || len(ss.streams) != 0 {
			t.Errorf("%d connections are left, %d streams were started", left(s), len(ss.streams))
		}
	})
}

func TestPeerThatLeavesFreesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA, `{"id":"b","type":"start","payload":{"query":"{wait}"}}`)
		synctest.Wait()
		p.conn.Close()
		if left(s) != 0 || ss.open() != 0 {
			t.Errorf("%d connections and %d streams are left", left(s), ss.open())
		}
		if ss.ctx.Err() == nil {
			t.Error("the Session's context goes on")
		}
	})
}

func TestShutdownIsNotHeldUpByPeersThatDoNotClose(t *testing.T) {
	for name, prepare := range map[string]func(p *peer){
		"silent":         func(p *peer) { p.mute = true; p.listen() },
		"reads nothing":  func(p *peer) {},
		"half a frame":   func(p *peer) { p.mute = true; p.listen(); _ = p.write([]byte{0x81}) },
		"still speaking": func(p *peer) { p.mute = true; p.listen(); p.say(startA); _ = p.write([]byte{0x81, 0xff, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss)
				prepare(p)
				synctest.Wait()
				begin := time.Now()
				shutdown(t, s)
				if d := time.Since(begin); d > closeWait {
					t.Errorf("Shutdown took %v", d)
				}
				if left(s) != 0 || ss.open() != 0 {
					t.Errorf("%d connections and %d streams are left", left(s), ss.open())
				}
				p.conn.Close()
			})
		})
	}
}

func TestShutdownHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA, `{"id":"b","type":"start","payload":{"query":"{stubborn}"}}`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin := time.Now()
		err := s.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("Shutdown returned %v after %v", err, time.Since(begin))
		}
		p.expect("CUT")
		if ss.open() != 0 {
			t.Error("a stream is left")
		}
		if left(s) != 1 {
			t.Error("a query goes on, but its connection's place is free")
		}
		close(ss.release)
		if left(s) != 0 {
			t.Error("a connection is left")
		}
		shutdown(t, s)
	})
}

func TestSessionIsAskedOnceWithoutInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		p.say(startA, `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`,
			`{"type":"connection_init","payload":{"accessKey":"k"}}`, `{"type":"connection_init","payload":null}`)
		p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"connection_ack"}`)
		if got, want := fmt.Sprintf("%q", ss.inits), `["" "{\"accessKey\":\"k\"}" ""]`; got != want {
			t.Errorf("Init was called with %s, want %s", got, want)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// Everything off is a configuration, too.
func TestNothingIsLimitedWhereLimitsAreOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(Options{}), newScript(t)
		p := dial(t, s, ss).listen()
		time.Sleep(time.Hour)
		p.say(`{"type":"connection_init"}`)
		p.expect(`{"type":"connection_ack"}`)
		for i := range 100 {
			p.say(fmt.Sprintf(`{"id":"%0200d","type":"start","payload":{"query":"subscription{a}","x":"%01000d"}}`, i, i))
		}
		p.expectSilence()
		if ss.open() != 100 {
			t.Errorf("%d of 100 streams are open", ss.open())
		}
		_ = p.write([]byte{0x81})
		time.Sleep(time.Hour)
		if left(s) != 1 {
			t.Error("the connection is gone")
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// strictCodec is the legacy protocol spoken strictly, with a ping of its own.
type strictCodec struct{ legacy }

func (strictCodec) strict() bool                              { return true }
func (strictCodec) appendStopped(b []byte, _ identity) []byte { return b }
func (strictCodec) appendKeepAlive(b []byte) []byte           { return b }
func (strictCodec) appendPong(b, payload []byte) []byte {
	return append(append(b, "pong "...), payload...)
}

func (c strictCodec) decode(frame []byte) message {
	m := c.legacy.decode(frame)
	if bytes.Contains(frame, []byte(`"ping"`)) {
		m.kind = kindPing
	}
	return m
}

func (c strictCodec) farewell(b []byte, e ending) ([]byte, websocket.StatusCode, string) {
	return b, websocket.StatusCode(4000 + int(e.cause)), ""
}

func TestStrictProtocolEndsOnBreaches(t *testing.T) {
	const initial, query = `{"type":"connection_init"}`, `{"id":"q","type":"start","payload":{"query":"{info{version}}"}}`
	for name, tc := range map[string]struct {
		say  []string
		wait time.Duration
		want []string
	}{
		"start before init": {say: []string{query}, want: []string{closed(causeNoInit)}},
		"second init":       {say: []string{initial, initial}, want: []string{`{"type":"connection_ack"}`, closed(causeSecondInit)}},
		"id in use":         {say: []string{initial, startA, startA}, want: []string{`{"type":"connection_ack"}`, closed(causeSameID)}},
		"malformed":         {say: []string{initial, "{"}, want: []string{`{"type":"connection_ack"}`, closed(causeMalformed)}},
		"no init in time": {say: []string{`{"type":"ping","payload":1}`}, wait: testOptions.FirstMessage,
			want: []string{"pong 1", closed(causeSilent)}},
		"no keep-alive, no answer to a stop": {
			say:  []string{initial, startA, `{"id":"a","type":"stop"}`, startA, `{"id":"a","type":"stop"}`, query},
			wait: time.Hour,
			want: []string{`{"type":"connection_ack"}`,
				`{"type":"data","id":"q","payload":{"data":{"info":{"version":"0.68.0"}}}}`,
				`{"type":"complete","id":"q","payload":null}`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				s.codecs = []codec{strictCodec{}}
				p := dial(t, s, ss).listen()
				p.say(tc.say...)
				time.Sleep(tc.wait)
				p.expect(tc.want...)
				p.expectSilence()
				p.conn.Close()
				shutdown(t, s)
				if ss.open() != 0 {
					t.Error("a stream is left")
				}
			})
		})
	}
}

func closed(c cause) string { return fmt.Sprintf("CLOSE %d", 4000+int(c)) }

func TestRequestErrorSaysItsFirstError(t *testing.T) {
	for want, err := range map[string]error{
		"gqlws: request error":                  &RequestError{},
		`gqlws: request error: {"message":"a"}`: &RequestError{Errors: []json.RawMessage{json.RawMessage(`{"message":"a"}`)}},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A peer may stall in the midst of the answer to a query whose connection is
// being ended for another reason.
func TestEndDuringAStalledWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		p.say(`{"type":"connection_init","payload":{"ttl":"1s"}}`, startA)
		ss.stream(1)
		time.Sleep(testOptions.WriteTimeout)
		if left(s) != 0 || ss.open() != 0 {
			t.Error("still connected")
		}
		if _, err := io.ReadAll(p.conn); err != nil {
			t.Error(err)
		}
	})
}
