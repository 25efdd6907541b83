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

// Foreign code may end the goroutine that it is called on, as a test of a host's
// does that fails inside one of its hooks.

// A fleeingSession does it where it is told something.
type fleeingSession struct {
	closing
	from string
}

func (s fleeingSession) Opened(ctx context.Context, protocol string) {
	s.closing.Opened(ctx, protocol)
	if s.from == "Opened" {
		runtime.Goexit()
	}
}

func (s fleeingSession) Limit(string) {
	if s.from == "Limit" {
		runtime.Goexit()
	}
}

func TestSessionThatEndsItsGoroutineDoesNotKeepItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		from string
		say  []string
	}{
		"when it is told of the connection": {"Opened", nil},
		"when it is told of a size":         {"Limit", []string{strings.Repeat(" ", 600)}},
		"when it is told of a rate":         {"Limit", slices.Repeat([]string{`{"type":"stop"}`}, 100)}, // some more may come where this process is held up
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions
			o.MessageRate = 2
			s, ss := NewServer(o), fleeingSession{newClosing(t), tc.from}
			url, _ := serveLoopback(t, s, ss)
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			c := connect(t, nc, err)
			for _, text := range tc.say {
				if _, err := c.nc.Write(frameOf(true, opText, []byte(text))); err != nil {
					break // it is closed already
				}
			}
			select {
			case why := <-ss.whys:
				if why == nil {
					t.Error("closed as if all were well")
				}
			case <-time.After(20 * time.Second): // before its pings would find out
				t.Fatal("it is still there")
			}
			shutdown(t, s)
		})
	}
}

func TestStreamThatEndsItsGoroutineCostsItsOwnConnection(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	c := dialLoopback(t, url)
	good := ss.started(ctx, 1)
	for i := range 2*s.crew.most + 1 {
		dialLoopback(t, url)
		bad := ss.started(ctx, i+2)
		bad.mu.Lock()
		bad.exits = true
		bad.mu.Unlock()
		bad.push("1")
		if why := <-ss.whys; !errors.Is(why, ErrCut) || !strings.Contains(why.Error(), "writer failed") {
			t.Errorf("closed with %v", why)
		}
		good.push("2")
		c.expect(`{"type":"data","id":"a","payload":2}`)
	}
	cutAll(t, s)
}
