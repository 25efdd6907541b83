package tonlite_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestManyRequestsDoNotHaveOthersRefused sends 20 requests while another client has a hundred in progress, which is
// more than a Handler may have Backend calls in flight. They take longer than alone, but most of them succeed.
func TestManyRequestsDoNotHaveOthersRefused(t *testing.T) {
	page := func(n uint32) string {
		return fmt.Sprintf("{blockchain{blocks(first:3,after:%q){edges{cursor}}}}", cursor(50+7*n%500))
	}
	block := func(n uint32) string {
		return fmt.Sprintf(`{blockchain{block_by_seq_no(workchain:-1,thread:"8%015d",seq_no:%d){id}}}`, 0, 100+10*n)
	}
	large := func(n uint32) string {
		return fmt.Sprintf("{blockchain{blocks(last:50,before:%q){edges{cursor}}}}", cursor(600-37*n%300))
	}
	few := func(n uint32) string { return balances(5, 1000+n) }
	some := func(n uint32) string { return balances(20, 1000+n) }
	many := func(n uint32) string { return balances(50, 1000+n) }
	for _, test := range []struct {
		name            string
		others, request func(n uint32) string
	}{
		{"few balances", few, few},
		{"few balances while others request many", many, few},
		{"pages", page, page},
		{"balances while others request more", many, some},
		{"small pages while others request large ones", large, page},
		{"a block by its number while others request pages", page, block},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				s, server := newLoadedHandler(t, m)
				s.ask("{blockchain{blocks(last:1){edges{cursor}}}}")
				s.awaitBlock(server, 601)
				s.request(100, test.others)
				succeeded, failure, began := 0, "", time.Now()
				for n := range uint32(20) {
					if text := s.ask(test.request(n)); !strings.Contains(text, "errors") {
						succeeded++
					} else {
						failure = text
					}
				}
				t.Logf("%d of 20 requests succeeded, in %v", succeeded, time.Since(began))
				if succeeded < 10 {
					t.Errorf("%d of 20 requests succeeded, the last failure was %s", succeeded, failure)
				}
			})
		})
	}
}
