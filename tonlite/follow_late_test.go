package tonlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// A lateNetwork has three servers and a new block every 2.5 seconds. All servers announce each masterchain block at
// once and have its shard blocks later. Or, if withheld is set, only the first server announces it at once, but sends
// no blocks, and the others have the whole block later. They fall behind slowly, up to lag blocks.
type lateNetwork struct {
	chain    *liteservertest.Chain
	withheld bool
	lag      uint32
	servers  []*liteservertest.Server
}

const blockInterval = 2500 * time.Millisecond

func startLate(m *memoryNetwork, withheld bool, lag uint32) (n *lateNetwork, b *tonlite.Backend) {
	n = &lateNetwork{chain: generate(400), withheld: withheld, lag: lag}
	for range 3 {
		s := m.start(n.chain)
		s.Advance(30)
		n.servers = append(n.servers, s)
	}
	b = m.open(n.servers[0].Config(n.servers[1:]...), &tonlite.Options{Logger: slog.New(slog.DiscardHandler)})
	b.Prefer(0)
	return n, b
}

// grow announces the block head. It returns the newest block of which honest servers have all shard blocks.
func (n *lateNetwork) grow(head uint32) (complete uint32) {
	complete = max(30+(head-30)/2, head-n.lag)
	for i, s := range n.servers {
		switch {
		case !n.withheld:
			s.LagShards(complete)
			s.Advance(head)
		case i == 0:
			s.SetLie(liteservertest.Withheld)
			s.Advance(head)
		default:
			s.Advance(complete)
		}
	}
	return complete
}

// TestLiveBlocksDoNotWaitForLaterBlocks measures how long after an honest server a Handler has each block.
func TestLiveBlocksDoNotWaitForLaterBlocks(t *testing.T) {
	for _, row := range []struct {
		withheld bool
		lag      uint32
	}{{true, 1}, {true, 4}, {true, 12}, {false, 2}, {false, 12}} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) { followLate(t, m, row.withheld, row.lag) })
		})
	}
}

func followLate(t *testing.T, m *memoryNetwork, withheld bool, lag uint32) {
	const first, last = 31, 90
	n, b := startLate(m, withheld, lag)
	var (
		mu        sync.Mutex
		available = make(map[uint32]time.Time)
		got       int
		worst     time.Duration
	)
	received := func(block chaingql.Block, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if block.Workchain != -1 || block.SeqNo < first {
			return
		}
		got++
		if at, ok := available[block.SeqNo]; ok { // a block without new shard blocks may come earlier
			worst = max(worst, time.Since(at))
		}
	}
	h := chaingql.New(b, &chaingql.Options{
		Logger: slog.New(slog.DiscardHandler), Hooks: chaingql.Hooks{BlockReceived: received},
	})
	defer func() { _ = h.Shutdown(context.Background()) }()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/demo/graphql",
		strings.NewReader(`{"query":"{blockchain{blocks(last:2){edges{node{seq_no}}}}}"}`))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(httptest.NewRecorder(), r) // starts to follow
	time.Sleep(5 * time.Second)
	for head := uint32(first); head <= last; head++ {
		time.Sleep(blockInterval)
		mu.Lock()
		if complete := n.grow(head); available[complete].IsZero() {
			available[complete] = time.Now()
		}
		mu.Unlock()
	}
	time.Sleep(blockInterval)
	mu.Lock()
	defer mu.Unlock()
	if got < len(available)-1 || worst > 2*time.Second {
		t.Errorf("got %d of %d blocks; the worst delay is %v, want at most 2s", got, len(available), worst)
	}
}

// TestPagesOfWorkchainsDoNotNeedTheNewestBlock reads a page of old blocks while no server sends the newest one.
func TestPagesOfWorkchainsDoNotNeedTheNewestBlock(t *testing.T) {
	for _, withheld := range []bool{true, false} {
		t.Run(fmt.Sprintf("withheld %v", withheld), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				n, b := startLate(m, withheld, 6)
				ctx, cancel := context.WithCancel(t.Context())
				var following sync.WaitGroup
				defer following.Wait()
				defer cancel()
				following.Go(func() {
					for ctx.Err() == nil { // a Handler calls Follow again, too
						for range b.Follow(ctx, cursor(29)) {
						}
						time.Sleep(time.Second)
					}
				})
				zero := int32(0)
				q := chaingql.BlocksQuery{Workchain: &zero, Last: 5, Before: cursor(20)}
				want := chaingql.PageOf(n.chain.Blocks(), q)
				for head := uint32(31); head < 50; head++ {
					time.Sleep(blockInterval)
					n.grow(head)
					begin := time.Now()
					page, err := b.Blocks(ctx, q)
					if took := time.Since(begin); err != nil || took > time.Second {
						t.Fatalf("block %d: got error %v after %v", head, err, took)
					}
					same(t, page, want)
				}
			})
		})
	}
}

// TestFollowCatchesUpAfterServersLagged lets one server announce 20 blocks before the others have them, once. After
// that, all servers have each block at once, but a block is not read as fast alone as new blocks come.
func TestFollowCatchesUpAfterServersLagged(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		const from, to, end = 35, 55, 100
		chain := generate(end)
		ahead, other := m.start(chain), m.start(chain)
		for _, s := range []*liteservertest.Server{ahead, other} {
			s.Advance(30)
			s.Delay(200 * time.Millisecond)
		}
		b := m.open(ahead.Config(other), nil)
		b.Prefer(0)
		var mu sync.Mutex
		available := make(map[uint32]time.Time)
		go func() {
			for head := uint32(31); head <= end; head++ {
				time.Sleep(400 * time.Millisecond)
				complete := head
				if head > from && head < to {
					complete = from
					ahead.SetLie(liteservertest.Withheld)
				} else {
					ahead.SetLie(liteservertest.Truth)
				}
				mu.Lock()
				available[complete] = time.Now()
				mu.Unlock()
				ahead.Advance(head)
				other.Advance(complete)
			}
		}()
		for block, err := range b.Follow(t.Context(), cursor(30)) {
			if err != nil {
				t.Fatalf("Follow ends with error %v", err)
			}
			if block.Workchain != -1 {
				continue
			}
			mu.Lock()
			late := time.Since(available[block.SeqNo])
			mu.Unlock()
			if block.SeqNo >= end-10 && late > 4*time.Second {
				t.Fatalf("block %d is %v late, want at most 4s", block.SeqNo, late)
			}
			if block.SeqNo == end {
				break
			}
		}
	})
}
