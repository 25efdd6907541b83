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

// The networks' SDK drops a connection by mistake if a timer that it started on the one before finds no keep-alive
// since it was set. With the constant rhythm that leaves the next stale timer, and so on.
func TestSDKThatLostItsConnectionComesToRest(t *testing.T) {
	for _, tc := range []struct {
		rhythm   string
		clients  int
		interval time.Duration // of the third keep-alive and those that follow
		rest     bool
	}{
		{"a fifth from the third on", 1000, testOptions.KeepAlive / beats, true},
		{"constant, which shows that this test can fail", 200, testOptions.KeepAlive, false},
	} {
		t.Run(tc.rhythm, func(t *testing.T) {
			once, still := reconnectsByMistake(t, tc.clients, tc.interval)
			t.Logf("of %d clients, %d reconnected by mistake, %d still do after five minutes", tc.clients, once, still)
			if rest := once <= tc.clients*12/100 && still == 0; rest != tc.rest {
				t.Errorf("12 %% at most reconnect by mistake, and none for ever: %t, want %t", rest, tc.rest)
			}
		})
	}
}

// reconnectsByMistake has clients lose their connection at random times, to a server whose keep-alives from the third
// one on come at an interval. It returns how many reconnect by mistake, and how many still do when five minutes are over.
func reconnectsByMistake(t *testing.T, clients int, interval time.Duration) (once, still int) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxSockets = 0
		s, ss := NewServer(o), newScript(t)
		ss.shared = true
		s.wheel = newWheel(s.crew, interval)
		r := rand.New(rand.NewPCG(1, 2))
		all := make([]*sdkClient, clients)
		var running sync.WaitGroup
		for i := range all {
			c := &sdkClient{t: t, server: s, session: ss, checks: make(chan time.Duration, 100), end: make(chan struct{})}
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
		time.Sleep(time.Minute) // two of the SDK's timers
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

// An sdkClient does with keep-alives what the network code of ever-sdk 1.49.2 does.
type sdkClient struct {
	t       *testing.T
	server  *Server
	session Session
	begin   time.Duration // when it connects
	lose    time.Duration // when it loses its connection
	end     chan struct{}

	state    sdkState
	first    time.Time          // ka, of this connection
	checks   chan time.Duration // a timer is over; timers outlive their connection
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
		p.say(`{"type":"connection_init","payload":{}}`)
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

// connected returns when the connection is to be ended, and whether that is for good.
func (c *sdkClient) connected(kas <-chan struct{}, lost <-chan time.Time) (over bool) {
	for {
		select {
		case _, open := <-kas:
			if !open {
				c.t.Error("the server has ended the connection")
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

// read answers pings and passes keep-alives on.
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
