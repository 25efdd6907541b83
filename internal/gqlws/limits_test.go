package gqlws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

func TestSessionLearnsOfLimits(t *testing.T) {
	legacyStart := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"start","payload":{"query":"subscription{a}"}}`, id)
	}
	modernStart := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":{"query":"subscription{a}"}}`, id)
	}
	for _, tc := range []struct {
		name, protocol, want string
		say                  []string
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
		{"another wrong id", "graphql-ws", "", []string{`{"id":true,"type":"start"}`}},
		{"another wrong id", "graphql-transport-ws", "", []string{`{"id":1,"type":"complete"}`}},
		{"all in order", "graphql-ws", "", []string{legacyStart("1"), legacyStart("0123456789abcdef")}},
	} {
		t.Run(tc.protocol+"/"+tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions
				o.MessageRate = 10
				s, ss := NewServer(o), newScript(t)
				p := dialAs(t, s, ss, tc.protocol, nil).listen()
				p.say(tc.say...)
				synctest.Wait()
				if got := strings.Join(ss.limits, " "); got != tc.want {
					t.Errorf("told of %q, want %q", got, tc.want)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// A jumpySession panics wherever it is only told something.
type jumpySession struct{ *script }

func (jumpySession) Opened(context.Context, string) { panic("Opened") }
func (jumpySession) Limit(string)                   { panic("Limit") }
func (jumpySession) Closed(error)                   { panic("Closed") }

func TestSessionThatPanicsWhenToldIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log notebook
		o := testOptions
		o.Logger = log.logger()
		s, ss := NewServer(o), newScript(t)
		ss.opened = "not told"
		p := dial(t, s, jumpySession{ss}).listen()
		p.say(`{"id":"0123456789abcdefg","type":"stop"}`, startA)
		p.expect(`{"type":"error","payload":{"message":"Operation id is longer than 16 bytes","extensions":{"code":"LIMIT_EXCEEDED"}}}`)
		st := ss.stream(1)
		st.mu.Lock()
		st.panics = true // in Cursor and Close
		st.mu.Unlock()
		shutdown(t, s)
		p.expect(`{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE"}}}`,
			"CLOSE 1001 shutting down")
		for _, what := range []string{"Session.Opened", "Session.Limit", "Stream.Cursor", "Stream.Close", "Session.Closed"} {
			if !strings.Contains(log.String(), "panic in "+what) {
				t.Errorf("the log has no panic in %s", what)
			}
		}
		if left(s) != 0 || ss.open() != 0 {
			t.Errorf("%d connections and %d streams are left", left(s), ss.open())
		}
	})
}

// A pong for each ping of a peer that reads none is no way to fill the memory.
func TestPeerThatPingsAndReadsNothingIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss)
		ping := frameOf(true, opPing, bytes.Repeat([]byte("x"), 125))
		sent := 0
		for p.write(ping) == nil {
			sent++
		}
		if most := maxOutbox/125 + 10; sent > most {
			t.Errorf("%d pings were heard", sent)
		}
		if err := ss.ended(); !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "write failed") {
			t.Errorf("closed with %v", err)
		}
		shutdown(t, s)
	})
}
