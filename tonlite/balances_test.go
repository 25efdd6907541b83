package tonlite_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestManyBalancesDoNotDelayOthers reads balances and pages of old blocks while more clients request the balances of
// 20 accounts each than a Handler may have Backend calls in flight.
func TestManyBalancesDoNotDelayOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newLoadedHandler(t, m)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		s.request(80, func(n uint32) string { return balances(20, n) })
		within(t, time.Second, func() { // each balance should take about 100 ms
			for range 5 {
				if text := s.balance(); !strings.Contains(text, `"balance":"0x0"`) {
					t.Errorf("balance: got response %s", text)
				}
			}
		})
		within(t, 5*time.Second, func() { // each page should take about 1.2 s
			for i := range uint32(3) {
				query := fmt.Sprintf("{blockchain{blocks(first:3,after:%q){edges{cursor}}}}", cursor(100+10*i))
				if text := s.ask(query); strings.Contains(text, "errors") {
					t.Errorf("page: got response %s", text)
				}
			}
		})
	})
}

// balances returns a query for the balances of some accounts. Different numbers select different accounts.
func balances(accounts, n uint32) string {
	var query strings.Builder
	for i := range accounts {
		fmt.Fprintf(&query, `a%d:account(address:"-1:%064x"){info{balance}}`, i, accounts*n+i)
	}
	return "{blockchain{" + query.String() + "}}"
}

// TestManyBalancesDoNotMakeOthersFail reads the balances of five accounts while 16 clients request those of 50 each.
func TestManyBalancesDoNotMakeOthersFail(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newLoadedHandler(t, m)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		s.request(16, func(n uint32) string { return balances(50, n) })
		within(t, 5*time.Second, func() { // each request should take about a second
			for range 4 {
				if text := s.ask(balances(5, 0)); strings.Contains(text, "errors") {
					t.Errorf("balances: got response %s", text)
				}
			}
		})
	})
}

// TestManyRequestsForManyBalancesSucceed lets 16 clients request the balances of 50 accounts each, for 15 seconds. The
// server could answer three requests per second.
func TestManyRequestsForManyBalancesSucceed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		s, server := newLoadedHandler(t, m)
		s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
		s.awaitBlock(server, 601)
		var complete atomic.Int32
		for n := range uint32(16) {
			s.wait.Go(func() {
				for s.ctx.Err() == nil {
					if !strings.Contains(s.ask(balances(50, n)), "errors") {
						complete.Add(1)
					}
				}
			})
		}
		time.Sleep(15 * time.Second)
		if n := complete.Load(); n < 35 {
			t.Errorf("%d requests were answered, want at least 35", n)
		}
	})
}
