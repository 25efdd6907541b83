package tonlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestBalancesDoNotWaitForLateBlocks reads balances while a Follow runs, and the servers with the accounts do not have
// the newest blocks.
func TestBalancesDoNotWaitForLateBlocks(t *testing.T) {
	for _, row := range []struct {
		withheld bool
		lag      uint32
	}{{true, 2}, {true, 4}, {true, 12}, {false, 3}, {false, 12}} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) { balancesLate(t, m, row.withheld, row.lag) })
		})
	}
}

func balancesLate(t *testing.T, m *memoryNetwork, withheld bool, lag uint32) {
	late, b := startLate(m, withheld, lag)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		for after := cursor(29); ctx.Err() == nil; { // a Handler calls Follow again, too
			for block, err := range b.Follow(ctx, after) {
				if err == nil {
					after = block.Cursor
				}
			}
			time.Sleep(time.Second)
		}
	}()
	var (
		n    int
		took time.Duration
	)
	for head := uint32(31); head <= 80; head++ {
		time.Sleep(blockInterval)
		if late.grow(head); head < 60 {
			continue
		}
		for addr := range late.chain.Balances(30) {
			own, cancel := context.WithTimeout(ctx, 5*time.Second) // Limits.BackendTimeout
			begin := time.Now()
			_, err := b.Balance(own, addr)
			if n, took = n+1, took+time.Since(begin); err != nil {
				t.Errorf("block %d: got error %v after %v", head, err, time.Since(begin))
			}
			cancel()
			if time.Sleep(100 * time.Millisecond); addr.Workchain == -1 {
				break
			}
		}
	}
	if mean := took / time.Duration(n); mean > 300*time.Millisecond {
		t.Errorf("a balance took %v on average", mean)
	}
}
