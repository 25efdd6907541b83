package tonlite_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestFollowDoesNotWaitForDeadServers follows a chain with one server that works and four that hang. The blocks are
// further apart than Options.Timeout. Only a block after a lost connection may be late, because Follow may have to ask
// all servers.
func TestFollowDoesNotWaitForDeadServers(t *testing.T) {
	for name, lost := range map[string]uint32{"no new block for some time": 0, "lost connection": 23} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(30)
				good := m.start(chain)
				good.Advance(20)
				var dead []*liteservertest.Server
				for i := range 4 {
					dead = append(dead, m.start(chain))
					dead[i].Advance(20)
				}
				b := m.open(good.Config(dead...), nil)
				b.Prefer(0)
				for _, s := range dead {
					defer s.Stall()()
				}
				following(t, b, cursor(19))
				for seqNo := uint32(21); seqNo <= 30; seqNo++ {
					if seqNo == lost {
						good.Interrupt()
					}
					time.Sleep(6 * time.Second)
					good.Advance(seqNo)
					limit := 100 * time.Millisecond
					if seqNo == lost {
						limit = 8 * time.Second
					}
					within(t, limit, func() { awaitNewest(t, b, seqNo) })
				}
			})
		})
	}
}

// awaitNewest waits for up to a minute until Follow has the masterchain block with the given seq_no.
func awaitNewest(t *testing.T, b *tonlite.Backend, seqNo uint32) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
		if err != nil || time.Since(begin) > time.Minute {
			t.Fatalf("no block %d: %v and error %v", seqNo, page, err)
		}
		if page[0].Cursor == cursor(seqNo) {
			return
		}
	}
}
