package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const startA = `{"id":"a","type":"start","payload":{"query":"subscription{a}"}}`

func TestPeerThatDoesNotReadIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		s, ss := NewServer(o), newFakeSession(t)
		p := dial(t, s, ss) // does not read
		p.sendText(startA)
		st := ss.stream(1)
		st.push("1", "2", "3")

		time.Sleep(o.WriteTimeout - time.Millisecond)
		if remainingSockets(s) != 1 {
			t.Error("the connection was cut before WriteTimeout")
		}
		// The first call returns nothing, and the second one returns the payload that is being written.
		if n := st.countNextCalls(); n != 2 {
			t.Errorf("Next was called %d times during a stalled write, want 2", n)
		}
		time.Sleep(time.Millisecond)
		if remainingSockets(s) != 0 || ss.openStreams() != 0 {
			t.Error("the connection is still open after WriteTimeout")
		}
		if why := ss.closeReason(); !errors.Is(why, ErrCut) || !errors.Is(why, os.ErrDeadlineExceeded) ||
			!strings.Contains(why.Error(), "write failed") {
			t.Errorf("Session.Closed received %v, want a failed write with a timeout", why)
		}
		p.conn.Close()
	})
}

func TestPeerThatSendsWithoutReadingIsThrottledAndDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newFakeSession(t))
		sent := make(chan int)
		go func() {
			n := 0
			for p.send(opText, []byte(`{"type":"connection_init"}`)) == nil {
				n++
			}
			sent <- n
		}()
		time.Sleep(testOptions.WriteTimeout)
		n := <-sent
		if remainingSockets(s) != 0 {
			t.Error("the connection is still open after WriteTimeout")
		}
		if most := maxOutbox/frameCost + 10; n > most {
			t.Errorf("the server read %d messages, want at most %d", n, most)
		}
	})
}

// A slowStartSession is a Session. Its Start waits until release is closed. It refuses queries with an error of
// maxOutbox bytes.
type slowStartSession struct{ *fakeSession }

func (s slowStartSession) Start(ctx context.Context, payload []byte) (Operation, error) {
	<-s.release
	if strings.Contains(string(payload), "subscription") {
		return s.fakeSession.Start(ctx, payload)
	}
	return Operation{}, requestError(strings.Repeat("x", maxOutbox), "BAD_REQUEST")
}

// If the connection ends while Start is running, the operation does not run, and the reader does not wait until an
// error of Start has been written.
func TestOperationIsReleasedIfConnectionEndsDuringStart(t *testing.T) {
	for name, query := range map[string]string{"refused": "{a}", "started": "subscription{a}"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dialAs(t, s, slowStartSession{ss}, "graphql-transport-ws", nil).startReading()
				p.sendText(`{"type":"connection_init","payload":{"ttl":"1s"}}`,
					`{"id":"a","type":"subscribe","payload":{"query":"`+query+`"}}`)
				p.expect(modernAck)
				time.Sleep(time.Second)
				p.expect("CLOSE 1001 Session expired")
				close(ss.release)
				if name == "started" {
					if err := ss.stream(1).closeReason(); err != ErrExpired {
						t.Errorf("Stream.Close received %v, want %v", err, ErrExpired)
					}
				}
				if remainingSockets(s) != 0 || ss.openStreams() != 0 {
					t.Errorf("%d connections and %d streams are left, want none", remainingSockets(s), ss.openStreams())
				}
				shutdown(t, s)
			})
		})
	}
}

// A refusingSession is a Session. Its Init refuses all peers.
type refusingSession struct{ *fakeSession }

func (refusingSession) Init(context.Context, []byte) (context.Context, error) {
	return nil, errors.New("unknown peer")
}

func TestLegacyPeerIsRefusedAtStartIfInitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, refusingSession{ss}).startReading()
		p.sendText(startA, startA)
		p.expect(legacyError("Unauthorized access", "UNAUTHENTICATED"), "CLOSE 1008")
		p.expectNothing()
		if remainingSockets(s) != 0 || len(ss.streams) != 0 {
			t.Errorf("%d connections are left and %d streams were started, want none", remainingSockets(s),
				len(ss.streams))
		}
	})
}

func TestPeerThatReadsMaySendBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newFakeSession(t)).startReading()
		const burst = 5000
		for range burst {
			p.sendText(`{"type":"x"}`)
		}
		for range burst {
			p.expect(`{"type":"error","payload":{"message":"Invalid message type!"}}`)
		}
		p.expectNothing()
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestBusyStreamDoesNotDelayOtherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.sendText(startA, `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`)
		a, b := ss.stream(1), ss.stream(2)
		for range 50 {
			a.push("1")
		}
		b.push("2")
		p.startReading()
		var lines []string
		for range 4 {
			lines = append(lines, p.next())
		}
		if !strings.Contains(strings.Join(lines, "\n"), `"id":"b"`) {
			t.Errorf("received no data of stream b among four messages:\n%s", strings.Join(lines, "\n"))
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestControlMessagesPrecedeData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.sendText(startA)
		ss.stream(1).push("1", "2", "3")
		synctest.Wait()
		p.sendText(`{"type":"connection_init"}`, `{"id":"a","type":"stop"}`)
		synctest.Wait()
		p.startReading()
		p.expect(`{"type":"data","id":"a","payload":1}`, // the current write
			`{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"complete","id":"a","payload":null}`)
		p.expectNothing()
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestStreamIsClosedAfterNextReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA)
		st := ss.stream(1)
		st.mu.Lock()
		st.blockNext = make(chan struct{})
		st.mu.Unlock()
		st.push("1")
		synctest.Wait()
		p.sendText(`{"id":"a","type":"stop"}`)
		synctest.Wait()
		if ss.openStreams() != 1 {
			t.Error("the stream was closed during Next")
		}
		close(st.blockNext)
		p.expect(`{"type":"complete","id":"a","payload":null}`) // without the data
		p.expectNothing()
		if ss.openStreams() != 0 {
			t.Error("the stream is still open after Next has returned, want it closed")
		}
		for id := range testOptions.MaxSubscriptions {
			p.sendText(fmt.Sprintf(`{"id":%d,"type":"start","payload":{"query":"subscription{a}"}}`, id))
		}
		p.expectNothing() // the stopped subscription does not count toward MaxSubscriptions
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestNextIsCalledUntilItReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA)
		ss.stream(1).push("1", "2", "3") // calls wake only once
		p.expect(`{"type":"data","id":"a","payload":1}`, `{"type":"data","id":"a","payload":2}`,
			`{"type":"data","id":"a","payload":3}`)
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestOperationsWithoutConnectionInitCallInitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA, `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`,
			`{"type":"connection_init","payload":{"accessKey":"k"}}`, `{"type":"connection_init","payload":null}`)
		p.expect(`{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"connection_ack"}`)
		if got, want := fmt.Sprintf("%q", ss.inits), `["" "{\"accessKey\":\"k\"}" ""]`; got != want {
			t.Errorf("Init was called with %s, want %s", got, want)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestZeroOptionsDisableLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(Options{}), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		time.Sleep(time.Hour)
		p.sendText(`{"type":"connection_init"}`)
		p.expect(`{"type":"connection_ack"}`)
		for i := range 100 {
			p.sendText(fmt.Sprintf(`{"id":"%0200d","type":"start","payload":{"query":"subscription{a}","x":"%01000d"}}`,
				i, i))
		}
		p.expectNothing()
		if ss.openStreams() != 100 {
			t.Errorf("%d streams are open, want 100", ss.openStreams())
		}
		_ = p.write([]byte{0x81})
		time.Sleep(time.Hour)
		if remainingSockets(s) != 1 {
			t.Error("the connection was closed, want it open")
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestRequestErrorContainsFirstError(t *testing.T) {
	for want, err := range map[string]error{
		"gqlws: request error":                  &RequestError{},
		`gqlws: request error: {"message":"a"}`: &RequestError{Errors: []json.RawMessage{[]byte(`{"message":"a"}`)}},
	} {
		if got := err.Error(); got != want {
			t.Errorf("Error() = %s, want %s", got, want)
		}
	}
}

func TestSessionIsBlockedWhileAWriteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		p.sendText(`{"type":"connection_init"}`)
		if synctest.Wait(); !ss.blocked.Load() {
			t.Error("the session is not blocked although the peer reads nothing")
		}
		p.startReading()
		if synctest.Wait(); ss.blocked.Load() {
			t.Error("the session is blocked although the peer has read everything")
		}
		shutdown(t, s)
	})
}
