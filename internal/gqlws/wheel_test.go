package gqlws

import (
	"bufio"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many connections there are, whenever they came and whoever leaves, each has its keep-alives in its own time.
func TestEachConnectionHasItsOwnTimesOfKeepAlives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxSockets = 0
		s, ss := NewServer(o), newScript(t)
		ss.shared = true
		var reading sync.WaitGroup
		for i := range 300 {
			stay := time.Minute
			if i%3 == 0 {
				stay = 19*time.Second + time.Duration(i)*31*time.Millisecond
			}
			reading.Go(func() {
				time.Sleep(time.Duration(i/2) * 37 * time.Millisecond) // two at once, over more than an interval
				expectTimes(t, o.KeepAlive, stay, timesOfKeepAlives(t, dial(t, s, ss), stay))
			})
		}
		reading.Wait()
		if n := left(s); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		p := dial(t, s, ss) // the wheel stood still
		expectTimes(t, o.KeepAlive, time.Minute, timesOfKeepAlives(t, p, time.Minute))
		shutdown(t, s)
	})
}

// timesOfKeepAlives returns when a peer had its keep-alives, counted from its connection_init.
func timesOfKeepAlives(t *testing.T, p *peer, stay time.Duration) (times []time.Duration) {
	begin := time.Now()
	time.AfterFunc(stay, func() { _ = p.conn.Close() })
	go p.say(`{"type":"connection_init"}`)
	for br := bufio.NewReader(p.conn); ; {
		op, payload, err := readServerFrame(br)
		switch {
		case err != nil:
			return times
		case op == opPing:
			_ = p.send(opPong, payload)
		case string(payload) == `{"type":"ka"}`:
			times = append(times, time.Since(begin))
		case string(payload) != `{"type":"connection_ack"}`:
			t.Errorf("heard %s", payload)
		}
	}
}

func expectTimes(t *testing.T, keepAlive, stay time.Duration, times []time.Duration) {
	due := []time.Duration{0, keepAlive}
	for next := keepAlive + keepAlive/beats; next+maxSlot < stay; next += keepAlive / beats {
		due = append(due, next)
	}
	if len(times) < len(due) {
		t.Errorf("keep-alives at %v in %v, want %v", times, stay, due)
		return
	}
	late := times[2] - due[2]
	if late < 0 || late >= maxSlot {
		t.Errorf("the third keep-alive was late by %v", late)
	}
	for i, d := range due {
		if i >= 2 {
			d += late
		}
		if times[i] != d {
			t.Errorf("keep-alive %d came after %v, want %v", i+1, times[i], d)
		}
	}
}
