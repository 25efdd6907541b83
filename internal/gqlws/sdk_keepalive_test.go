package gqlws

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The SDK of the networks (ever-sdk) has a defect: it does not stop the timer of an earlier connection. When that timer
// expires, the SDK closes the current connection if no keep-alive has arrived since the timer was set. If the interval
// between keep-alives is constant, each such mistake leaves another old timer.
func TestKeepAliveIntervalStopsMistakenReconnectsOfSDK(t *testing.T) {
	for _, tc := range []struct {
		name     string
		clients  int
		interval time.Duration // between keep-alives, from the third one on
		stops    bool
	}{
		{"a fifth of the interval", 1000, testOptions.KeepAliveInterval / beatsPerInterval, true},
		{"a constant interval, which shows that the test can fail", 200, testOptions.KeepAliveInterval, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			once, still := countWrongReconnects(t, tc.clients, tc.interval)
			t.Logf("of %d clients, %d reconnected by mistake, and %d still do after five minutes", tc.clients, once,
				still)
			if stops := once <= tc.clients*12/100 && still == 0; stops != tc.stops {
				t.Errorf("at most 12 %% reconnect by mistake, and none after five minutes: %t, want %t", stops,
					tc.stops)
			}
		})
	}
}

// countWrongReconnects runs clients that lose their connection once at a random time. From the third keep-alive on, the
// server sends keep-alives at the given interval. once is the number of clients that reconnect by mistake at least
// once. still is the number of clients that reconnect by mistake after five minutes.
func countWrongReconnects(t *testing.T, clients int, interval time.Duration) (once, still int) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxSockets = 0
		s, ss := NewServer(o), newFakeSession(t)
		ss.shared = true
		s.wheel = newWheel(s.writers, interval)
		r := rand.New(rand.NewPCG(1, 2))
		all := make([]*sdkClient, clients)
		var running sync.WaitGroup
		for i := range all {
			c := &sdkClient{
				t: t, server: s, session: ss, checks: make(chan time.Duration, 100), end: make(chan struct{}),
			}
			c.begin = time.Duration(r.Int64N(int64(30 * time.Second)))
			c.lose = c.begin + 16*time.Second + time.Duration(r.Int64N(int64(30*time.Second)))
			all[i] = c
			running.Go(c.run)
		}
		time.Sleep(90*time.Second + 5*time.Minute)
		synctest.Wait()
		before := make([]int, clients)
		for i, c := range all {
			if before[i] = int(c.mistakes.Load()); before[i] > 0 {
				once++
			}
		}
		time.Sleep(time.Minute) // the time of two timers of the SDK
		synctest.Wait()
		for i, c := range all {
			if int(c.mistakes.Load()) > before[i] {
				still++
			}
			close(c.end)
		}
		running.Wait()
		shutdown(t, s)
	})
	return once, still
}

// An sdkClient handles keep-alives in the same way as the network code of ever-sdk 1.49.2.
type sdkClient struct {
	t       *testing.T
	server  *Server
	session Session
	begin   time.Duration // time at which the client connects
	lose    time.Duration // time at which the client loses its connection
	end     chan struct{}

	state    sdkState
	first    time.Time          // first keep-alive of this connection
	checks   chan time.Duration // receives the timeouts of expired timers, which outlive their connection
	mistakes atomic.Int64
}

type sdkState int

const (
	waitFirst sdkState = iota
	waitSecond
	waitNext
	passed
)

func (c *sdkClient) run() {
	time.Sleep(c.begin)
	lost := time.After(c.lose - c.begin)
	for {
		p := dial(c.t, c.server, c.session)
		kas := make(chan struct{})
		var reading sync.WaitGroup
		reading.Go(func() { c.read(p, kas) })
		p.sendText(`{"type":"connection_init","payload":{}}`)
		c.state = waitFirst
		over := c.connected(kas, lost)
		_ = p.conn.Close()
		for range kas {
		}
		reading.Wait()
		if over {
			return
		}
	}
}

// connected returns when the client closes the connection. over reports that the client must not reconnect.
func (c *sdkClient) connected(kas <-chan struct{}, lost <-chan time.Time) (over bool) {
	for {
		select {
		case _, open := <-kas:
			if !open {
				c.t.Error("the server ended the connection")
				return true
			}
			switch c.state {
			case waitFirst:
				c.state, c.first = waitSecond, time.Now()
			case waitSecond:
				c.startTimer(2 * time.Since(c.first))
			case waitNext:
				c.state = passed
			}
		case timeout := <-c.checks:
			switch c.state {
			case waitNext:
				c.mistakes.Add(1)
				return false
			case passed:
				c.startTimer(timeout)
			}
		case <-lost:
			return false
		case <-c.end:
			return true
		}
	}
}

func (c *sdkClient) startTimer(timeout time.Duration) {
	c.state = waitNext
	time.AfterFunc(timeout, func() { c.checks <- timeout })
}

// read responds to pings and sends a value to kas for each keep-alive.
func (c *sdkClient) read(p *peer, kas chan<- struct{}) {
	defer close(kas)
	br := bufio.NewReader(p.conn)
	for {
		op, payload, err := readServerFrame(br)
		switch {
		case err != nil:
			return
		case op == opPing:
			_ = p.send(opPong, payload)
		case op == opText && strings.Contains(string(payload), `"ka"`):
			kas <- struct{}{}
		case op == opClose:
			c.t.Error(fmt.Sprint("closed: ", closeLine(payload)))
		}
	}
}
