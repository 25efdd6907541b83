package gqlws

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A goexitSession calls runtime.Goexit in the method that from names. The code of a host may do that, for example if a
// hook calls t.Fatal in a test.
type goexitSession struct {
	closeSession
	from string
}

func (s goexitSession) Opened(ctx context.Context, protocol string, left func() bool) {
	s.closeSession.Opened(ctx, protocol, left)
	if s.from == "Opened" {
		runtime.Goexit()
	}
}

func (s goexitSession) Blocked(bool) {}

func (s goexitSession) Limit(string) {
	if s.from == "Limit" {
		runtime.Goexit()
	}
}

func TestGoexitInSessionEndsConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		from string
		send []string
	}{
		"Opened":             {"Opened", nil},
		"Limit MessageBytes": {"Limit", []string{strings.Repeat(" ", 600)}},
		// These are more than a burst, because a slow test may need several seconds to send them.
		"Limit MessageRate": {"Limit", slices.Repeat([]string{`{"type":"stop"}`}, 100)},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions
			o.MessageRate = 2
			s, ss := NewServer(o), goexitSession{newCloseSession(t), tc.from}
			url, _ := serveLoopback(t, s, ss)
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			c := dialClient(t, nc, err)
			for _, text := range tc.send {
				if _, err := c.nc.Write(frameOf(true, opText, []byte(text))); err != nil {
					break // the server has closed the connection
				}
			}
			select {
			case why := <-ss.closed:
				if why == nil {
					t.Error("Closed received nil, want an error")
				}
			case <-time.After(20 * time.Second): // earlier than missed pings would cut the connection
				t.Fatal("the connection is still open")
			}
			shutdown(t, s)
		})
	}
}

func TestGoexitInStreamEndsOnlyItsConnection(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	good := ss.waitStream(ctx, 1)
	for i := range 2*s.writers.maxWorkers + 1 {
		dialLoopback(t, url)
		bad := ss.waitStream(ctx, i+2)
		bad.mu.Lock()
		bad.goexitInNext = true
		bad.mu.Unlock()
		bad.push("1")
		if why := <-ss.closed; !errors.Is(why, ErrCut) || !strings.Contains(why.Error(), "writer failed") {
			t.Errorf("Session.Closed received %v, want ErrCut and \"writer failed\"", why)
		}
		bad.mu.Lock()
		if !bad.closed {
			t.Error("the stream was not closed")
		}
		bad.mu.Unlock()
		good.push("2")
		c.expect(`{"type":"data","id":"a","payload":2}`)
	}
	cutAll(t, s)
}
