package tonlite_test

import (
	"context"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// A laggingNetwork has a block every 2.5 seconds. All servers except one have each new block lag later. The
// other one has only the newest blocks.
type laggingNetwork struct {
	*tonlite.Backend
	chain *liteservertest.Chain
	first *liteservertest.Server // the server that is ahead
	head  uint32                 // the newest block of first
}

// readBehind calls read twice per second for 20 seconds, in fake time, while a Follow runs. read must
// succeed.
func readBehind(t *testing.T, lag time.Duration, read func(ctx context.Context, n *laggingNetwork) error) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		n := &laggingNetwork{chain: generate(400), head: 300}
		n.first = m.start(n.chain)
		others := []*liteservertest.Server{m.start(n.chain), m.start(n.chain)}
		for _, s := range append(others, n.first) {
			s.Advance(n.head)
		}
		n.first.Forget(n.head - 5)
		n.Backend = m.open(n.first.Config(others...), &tonlite.Options{Cache: 8})
		n.Prefer(0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for at := cursor(299); ctx.Err() == nil; { // a Handler calls Follow again, too
				for block, err := range n.Follow(ctx, at) {
					if err == nil {
						at = block.Cursor
					}
				}
			}
		}()
		defer func() { cancel(); <-ended }()
		for due := time.Now(); ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
			for ; time.Since(due) > 0; due = due.Add(2500 * time.Millisecond) {
				n.head++
			}
			head := n.head
			n.first.Advance(head)
			n.first.Forget(head - 5)
			time.AfterFunc(lag, func() { // at most one at a time, because their order would be random
				for _, s := range others {
					s.Advance(head)
				}
			})
			own, cancel := context.WithTimeout(ctx, 5*time.Second) // Limits.BackendTimeout
			if err := read(own, n); err != nil && ctx.Err() == nil {
				t.Errorf("at block %d: got error %v", n.head, err)
			}
			cancel()
		}
	})
}

// TestOldPagesNeedNoServerWithTheNewestBlock reads old blocks from servers that lag.
func TestOldPagesNeedNoServerWithTheNewestBlock(t *testing.T) {
	for _, lag := range []time.Duration{2 * time.Second, 4 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			var i uint32
			var slowest time.Duration
			readBehind(t, lag, func(ctx context.Context, n *laggingNetwork) error {
				i += 7
				q := chaingql.BlocksQuery{First: 5, After: cursor(60 + i%200)}
				if i%2 == 0 {
					q = chaingql.BlocksQuery{Last: 5, Before: cursor(60 + i%200)}
				}
				begin := time.Now()
				page, err := n.Blocks(ctx, q)
				if slowest = max(slowest, time.Since(begin)); err == nil {
					same(t, page, chaingql.PageOf(n.chain.Blocks(), q))
				}
				return err
			})
			if slowest > 500*time.Millisecond {
				t.Errorf("a page took %v", slowest)
			}
		})
	}
}

// TestBalancesNeedNoServerWithTheNewestBlock lets the server that is ahead withhold accounts, or reject queries for
// them. Balances must be those of one of the newest blocks, the same one for all accounts of a call.
func TestBalancesNeedNoServerWithTheNewestBlock(t *testing.T) {
	withhold := func(s *liteservertest.Server) { s.SetLie(liteservertest.Withheld) }
	reject := func(s *liteservertest.Server) { s.Reject("getAccountState") }
	for _, row := range []struct {
		name string
		lag  time.Duration
		fail func(s *liteservertest.Server)
	}{
		{"500ms, withheld", 500 * time.Millisecond, withhold},
		{"4s, withheld", 4 * time.Second, withhold},
		{"4s, rejected", 4 * time.Second, reject},
	} {
		t.Run(row.name, func(t *testing.T) {
			readBehind(t, row.lag, func(ctx context.Context, n *laggingNetwork) error {
				row.fail(n.first)
				addrs := slices.Collect(maps.Keys(n.chain.Balances(300)))[:2]
				batch, err := n.Balances(ctx, addrs)
				if err != nil {
					return err
				}
				single, err := n.Balance(ctx, addrs[0])
				if err != nil {
					return err
				}
				block := func(want []*big.Int) uint32 {
					for head := n.head; head > n.head-8; head-- {
						facts := n.chain.Balances(head)
						if !slices.ContainsFunc(want, func(nano *big.Int) bool {
							return facts[addrs[slices.Index(want, nano)]].Cmp(nano) != 0
						}) {
							return head
						}
					}
					return 0
				}
				if block(batch) == 0 || block([]*big.Int{single}) == 0 {
					t.Errorf("got balances %v and %v, which no block before %d has", batch, single, n.head)
				}
				return nil
			})
		})
	}
}
