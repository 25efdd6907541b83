package gqlws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestSessionLimitReceivesNameOfExceededLimit(t *testing.T) {
	legacyStart := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"start","payload":{"query":"subscription{a}"}}`, id)
	}
	modernStart := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":{"query":"subscription{a}"}}`, id)
	}
	for _, tc := range []struct {
		name, protocol, want string
		send                 []string
	}{
		{"a large message", "graphql-ws", "MessageBytes", []string{strings.Repeat(" ", 600), strings.Repeat(" ", 600)}},
		{"many messages", "graphql-ws", "MessageRate", strings.Split(strings.Repeat(`{"type":"stop"} `, 30), " ")},
		{"many subscriptions", "graphql-ws", "SocketSubscriptions SocketSubscriptions",
			[]string{legacyStart("1"), legacyStart("2"), legacyStart("3"), legacyStart("4"), legacyStart("5")}},
		{"many subscriptions", "graphql-transport-ws", "SocketSubscriptions",
			[]string{modernInit, modernStart("1"), modernStart("2"), modernStart("3"), modernStart("4")}},
		{"a long id", "graphql-ws", "IDBytes IDBytes",
			[]string{legacyStart("0123456789abcdefg"), `{"id":"0123456789abcdefg","type":"stop"}`}},
		{"a long id", "graphql-transport-ws", "IDBytes", []string{modernInit, modernStart("0123456789abcdefg")}},
		{"a long id of escapes", "graphql-ws", "IDBytes",
			[]string{`{"id":"\u0061\u0061\u0061","type":"start","payload":{"query":"subscription{a}"}}`}},
		{"a long id of escapes", "graphql-transport-ws", "IDBytes",
			[]string{modernInit, `{"id":"\u0061\u0061\u0061","type":"subscribe",` +
				`"payload":{"query":"subscription{a}"}}`}},
		{"an id of a wrong type", "graphql-ws", "", []string{`{"id":true,"type":"start"}`}},
		{"an id of a wrong type", "graphql-transport-ws", "", []string{`{"id":1,"type":"complete"}`}},
		{"within all limits", "graphql-ws", "", []string{legacyStart("1"), legacyStart("0123456789abcdef")}},
	} {
		t.Run(tc.protocol+"/"+tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions
				o.MessageRate = 10
				s, ss := NewServer(o), newFakeSession(t)
				p := dialAs(t, s, ss, tc.protocol, nil).startReading()
				p.sendText(tc.send...)
				synctest.Wait()
				if got := strings.Join(ss.limits, " "); got != tc.want {
					t.Errorf("Limit was called with %q, want %q", got, tc.want)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// A panicSession is a Session that panics in each method without a result.
type panicSession struct{ *fakeSession }

func (panicSession) Opened(context.Context, string, func() bool) { panic("Opened") }
func (panicSession) Limit(string)                                { panic("Limit") }
func (panicSession) Blocked(bool)                                { panic("Blocked") }
func (panicSession) Closed(error)                                { panic("Closed") }

func TestPanicsInSessionAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		o := testOptions
		o.Logger = loggerTo(&log)
		s, ss := NewServer(o), newFakeSession(t)
		ss.opened = "unknown" // panicSession does not call ss.Opened
		p := dial(t, s, panicSession{ss}).startReading()
		p.sendText(`{"id":"0123456789abcdefg","type":"stop"}`, startA)
		p.expect(`{"type":"error","payload":{"message":"Operation id is longer than 16 bytes",` +
			`"extensions":{"code":"LIMIT_EXCEEDED"}}}`)
		st := ss.stream(1)
		st.mu.Lock()
		st.panicInCalls = true // also in Cursor and Close
		st.mu.Unlock()
		shutdown(t, s)
		p.expect(legacyError("Service is shutting down", "SERVICE_UNAVAILABLE"), "CLOSE 1001 shutting down")
		for _, method := range []string{
			"Session.Opened", "Session.Limit", "Stream.Position", "Stream.Close", "Session.Closed",
		} {
			if !strings.Contains(log.String(), "panic in "+method) {
				t.Errorf("the log does not report the panic in %s", method)
			}
		}
		if remainingSockets(s) != 0 || ss.openStreams() != 0 {
			t.Errorf("%d connections and %d streams are left, want none", remainingSockets(s), ss.openStreams())
		}
	})
}

// The pongs for a peer that does not read must not use memory without bound.
func TestPeerThatPingsWithoutReadingIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss)
		ping := frameOf(true, opPing, bytes.Repeat([]byte("x"), 125))
		sent := 0
		for p.write(ping) == nil {
			sent++
		}
		if most := maxOutbox/125 + 10; sent > most {
			t.Errorf("the server read %d pings, want at most %d", sent, most)
		}
		if err := ss.closeReason(); !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "write failed") {
			t.Errorf("Session.Closed received %v, want ErrCut and \"write failed\"", err)
		}
		shutdown(t, s)
	})
}
