package chaingql

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestUsageOfAnEventStreamIsThatOfItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns streamConns
		usageOf := func(address string) time.Duration {
			s := conns.enter(address)
			defer conns.leave(s)
			return s.turns.Time()
		}
		for _, address := range []string{"192.0.2.1:80", "192.0.2.1", "@"} {
			s := conns.enter(address)
			s.turns.Add(5 * time.Millisecond)
			conns.leave(s)
		}
		time.Sleep(time.Second)
		for address, want := range map[string]time.Duration{
			"192.0.2.1:80": 4 * time.Millisecond, // all streams have ended meanwhile
			"192.0.2.1:81": 0,                    // another connection
			"192.0.2.1":    4 * time.Millisecond, // the address of a client of a proxy
			"@":            0,                    // a Unix socket, whose connections cannot be told apart
		} {
			if got := usageOf(address); got != want {
				t.Errorf("the usage of a stream from %s is %v, want %v", address, got, want)
			}
		}
		for i := range 2 * maxEndedConns {
			conn := conns.enter(fmt.Sprintf("192.0.2.3:%d", i))
			if i%2 > 0 {
				conn.pages.Add(time.Second)
			}
			conns.leave(conn)
		}
		if n := len(conns.of); n != maxEndedConns {
			t.Errorf("%d connections without streams are kept, want %d", n, maxEndedConns)
		}
		if got := usageOf("192.0.2.1:80"); got != 0 {
			t.Errorf("the usage of the connection that ended first is still %v", got)
		}
	})
}
