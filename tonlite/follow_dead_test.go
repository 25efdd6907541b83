package tonlite_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
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

// TestFollowDoesNotWaitForAConnection follows a chain with a server that has each block a second before the other one.
// Then its connections break when Follow waits on it, and connecting to it is slow. The other server is preferred.
// For a minute, queries for blocks go first to the server that had them first, which may delay each by 0.3 s.
func TestFollowDoesNotWaitForAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(60)
		ahead, other := m.start(chain), m.start(chain)
		ahead.Delay(130 * time.Millisecond)
		other.Delay(60 * time.Millisecond)
		ahead.Advance(20)
		other.Advance(20)
		var slow atomic.Bool
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != ahead.Addr() || !slow.Load() {
				return m.dial(ctx, network, addr)
			}
			select {
			case <-time.After(4700 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			conn, err := m.dial(ctx, network, addr)
			return &brokenConn{Conn: conn}, err
		}
		b := open(t, ahead.Config(other), (&tonlite.Options{Logger: slog.New(slog.DiscardHandler)}).With(dial))
		following(t, b, cursor(19))
		for seqNo := uint32(21); seqNo <= 50; seqNo++ {
			b.Prefer(1) // queries for pages do this because it is nearer
			if seqNo == 35 {
				slow.Store(true)
				ahead.Interrupt()
			}
			time.Sleep(1400 * time.Millisecond)
			ahead.Advance(seqNo)
			time.Sleep(time.Second)
			other.Advance(seqNo)
			limit := 1600 * time.Millisecond
			if seqNo == 35 {
				limit = 3 * time.Second
			}
			within(t, limit, func() { awaitNewest(t, b, seqNo) })
		}
	})
}
