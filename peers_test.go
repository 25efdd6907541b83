package chaingql

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionsOfOnePeerShareItsUsage(t *testing.T) {
	var all peers
	for _, test := range []struct {
		one, other string
		same       bool
	}{
		{"192.0.2.1:80", "192.0.2.1:81", true},
		{"192.0.2.1:80", "192.0.2.1", true},
		{"192.0.2.1:80", "[::ffff:192.0.2.1]:80", true},
		{"192.0.2.1:80", "192.0.2.2:80", false},
		{"[2001:db8::1]:80", "[2001:db8::2:1]:81", true}, // a network of 64 bits
		{"[2001:db8::1]:80", "2001:db8:0:1::1", false},
		{"127.0.0.1:80", "127.0.0.1:80", true},  // a connection of HTTP/2
		{"127.0.0.1:80", "127.0.0.1:81", false}, // connections of a proxy, which has many clients
		{"10.0.0.1:80", "10.0.0.1:81", false},
		{"100.64.0.1:80", "100.64.0.1:81", false},
		{"[64:ff9b::c000:201]:80", "192.0.2.1:80", true},
		{"[64:ff9b::c000:201]:80", "[64:ff9b::c000:202]:80", false},
		{"[fd00::1]:80", "[fd00::1]:81", false},
		{"[fe80::1%lo]:80", "[fe80::1%lo]:81", false},
		{"10.0.0.1", "10.0.0.1", true}, // the host has replaced the address of its proxy
		{"@", "@", false},              // Unix sockets, whose connections cannot be told apart
		{"", "", false},
	} {
		one, other := all.enter(test.one), all.enter(test.other)
		if (one == other) != test.same {
			t.Errorf("clients at %q and %q: same peer %v, want %v", test.one, test.other, one == other, test.same)
		}
		all.leave(one)
		all.leave(other)
	}
	if len(all.of) != 0 {
		t.Errorf("%d peers without usage are kept", len(all.of))
	}
}

func TestUsageOfAPeerIsKeptAfterItHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all peers
		usageOf := func(address string) time.Duration {
			p := all.enter(address)
			defer all.leave(p)
			return p.turns.Time()
		}
		p := all.enter("127.0.0.1:80")
		p.turns.Add(5 * time.Millisecond)
		all.leave(p)
		time.Sleep(time.Second)
		if got, want := usageOf("127.0.0.1:80"), 4*time.Millisecond; got != want {
			t.Errorf("the usage is %v a second later, want %v", got, want)
		}
		for i := range 2 * maxLeftPeers {
			p := all.enter(fmt.Sprintf("127.0.0.1:%d", 1000+i))
			switch i % 4 {
			case 1:
				p.pages.Add(time.Second)
			case 3:
				p.live.Add(time.Second)
			}
			all.leave(p)
		}
		if n := len(all.of); n != maxLeftPeers {
			t.Errorf("%d peers that have left are kept, want %d", n, maxLeftPeers)
		}
		if got := usageOf("127.0.0.1:80"); got != 0 {
			t.Errorf("the usage of the peer that left first is still %v", got)
		}
	})
}
