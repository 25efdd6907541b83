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
		time.Sleep(time.Minute)
		for i := range 1000 {
			usageOf(fmt.Sprintf("192.0.2.2:%d", i))
		}
		if n := len(conns.of); n > 20 {
			t.Errorf("%d connections without streams are kept", n)
		}
		for i := range 2 * maxStreamConns {
			conn := conns.enter(fmt.Sprintf("192.0.2.3:%d", i))
			conn.pages.Add(time.Second)
			conns.leave(conn)
		}
		if n := len(conns.of); n > maxStreamConns {
			t.Errorf("%d connections without streams are kept, want at most %d", n, maxStreamConns)
		}
	})
}
