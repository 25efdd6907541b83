package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// A lateSession takes its time to start anything, and refuses queries at length.
type lateSession struct{ *script }

func (s lateSession) Start(ctx context.Context, payload []byte) (Operation, error) {
	<-s.release
	if strings.Contains(string(payload), "subscription") {
		return s.script.Start(ctx, payload)
	}
	return Operation{}, requestError(strings.Repeat("x", maxOutbox), "BAD_REQUEST")
}

// An operation may be started, or refused, behind the farewell: nothing runs, and
// the reader does not wait for the refusal to be written.
func TestStartBehindTheFarewellHoldsNothing(t *testing.T) {
	for name, query := range map[string]string{"refused": "{a}", "started": "subscription{a}"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dialAs(t, s, lateSession{ss}, "graphql-transport-ws", nil).listen()
				p.say(`{"type":"connection_init","payload":{"ttl":"1s"}}`,
					`{"id":"a","type":"subscribe","payload":{"query":"`+query+`"}}`)
				p.expect(modernAck)
				time.Sleep(time.Second)
				p.expect("CLOSE 1001 Session expired")
				close(ss.release)
				if name == "started" {
					if err := ss.stream(1).closedBy(); err != ErrExpired {
						t.Errorf("the stream was closed with %v", err)
					}
				}
				if left(s) != 0 || ss.open() != 0 {
					t.Errorf("%d connections and %d streams are left", left(s), ss.open())
				}
				shutdown(t, s)
			})
		})
	}
}

// A strangerSession knows nobody.
type strangerSession struct{ *script }

func (strangerSession) Init(context.Context, []byte) (context.Context, error) {
	return nil, errors.New("a stranger")
}

func TestLegacyPeerMayBeRefusedAtItsFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, strangerSession{ss}).listen()
		p.say(startA, startA)
		p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Unauthorized access","extensions":{"code":"UNAUTHENTICATED"}}}`,
			"CLOSE 1008")
		p.expectSilence()
		if left(s) != 0 || len(ss.streams) != 0 {
			t.Errorf("%d connections are left, %d streams were started", left(s), len(ss.streams))
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
		synctest.Wait()
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
		for id := range testOptions.MaxSubscriptions {
			p.say(fmt.Sprintf(`{"id":%d,"type":"start","payload":{"query":"subscription{a}"}}`, id))
		}
		p.expectSilence() // its place is free again
		p.conn.Close()
		shutdown(t, s)
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
