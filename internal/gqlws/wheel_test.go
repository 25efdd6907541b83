package gqlws

import (
	"bufio"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeepAliveTimesDoNotDependOnOtherConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxSockets = 0
		s, ss := NewServer(o), newFakeSession(t)
		ss.shared = true
		var reading sync.WaitGroup
		for i := range 300 {
			stay := time.Minute
			if i%3 == 0 {
				stay = 19*time.Second + time.Duration(i)*31*time.Millisecond
			}
			reading.Go(func() {
				time.Sleep(time.Duration(i/2) * 37 * time.Millisecond) // pairs, over more than one interval
				expectKeepAliveTimes(t, o.KeepAliveInterval, stay, keepAliveTimes(t, dial(t, s, ss), stay))
			})
		}
		reading.Wait()
		if n := remainingSockets(s); n != 0 {
			t.Errorf("%d connections are left, want none", n)
		}
		p := dial(t, s, ss) // the wheel has stopped and starts again
		expectKeepAliveTimes(t, o.KeepAliveInterval, time.Minute, keepAliveTimes(t, p, time.Minute))
		shutdown(t, s)
	})
}

// keepAliveTimes returns how long after its connection_init a peer receives each keep-alive. It disconnects the peer
// after stay.
func keepAliveTimes(t *testing.T, p *peer, stay time.Duration) (times []time.Duration) {
	begin := time.Now()
	time.AfterFunc(stay, func() { _ = p.conn.Close() })
	go p.sendText(`{"type":"connection_init"}`)
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
			t.Errorf("received %s, want keep-alives", payload)
		}
	}
}

// expectKeepAliveTimes checks that the keep-alives arrived when they were due. The third one may be late by less than a
// slot. All later ones must then be late by the same time.
func expectKeepAliveTimes(t *testing.T, keepAlive, stay time.Duration, times []time.Duration) {
	due := []time.Duration{0, keepAlive}
	for next := keepAlive + keepAlive/beatsPerInterval; next+maxSlot < stay; next += keepAlive / beatsPerInterval {
		due = append(due, next)
	}
	if len(times) < len(due) {
		t.Errorf("keep-alives at %v within %v, want %v", times, stay, due)
		return
	}
	late := times[2] - due[2]
	if late < 0 || late >= maxSlot {
		t.Errorf("the third keep-alive was late by %v, want less than %v", late, maxSlot)
	}
	for i, d := range due {
		if i >= 2 {
			d += late
		}
		if times[i] != d {
			t.Errorf("keep-alive %d arrived after %v, want %v", i+1, times[i], d)
		}
	}
}
