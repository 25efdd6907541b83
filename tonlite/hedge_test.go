package tonlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// slowTimeout is the timeout in tests with a slow server. If the Backend waited for that server, each
// query would take half of it.
const slowTimeout = time.Minute

// TestServerThatOnlyAnnouncesQuicklyDoesNotDelayFollow lets one of two servers announce each new
// block first, but send everything else after 30 seconds, which is less than its timeout.
func TestServerThatOnlyAnnouncesQuicklyDoesNotDelayFollow(t *testing.T) {
	chain := generate(60)
	slow, fast := start(t, chain, nil), start(t, chain, nil)
	slow.Advance(21)
	fast.Advance(20)
	b := open(t, slow.Config(fast), &tonlite.Options{Timeout: slowTimeout})
	slow.DelayData(slowTimeout / 2)
	ctx, cancel := context.WithTimeout(t.Context(), slowTimeout/3)
	defer cancel()
	head := uint32(22)
	for _, s := range []*liteservertest.Server{slow, fast} {
		s.Advance(head)
	}
	slow.Asked()
	for block, err := range b.Follow(ctx, cursor(21)) {
		if err != nil {
			t.Fatalf("Follow with head %d: got error %v", head, err)
		}
		if block.Workchain != -1 || block.SeqNo != head {
			continue
		}
		for addr, want := range chain.Balances(head) {
			if nano, err := b.Balance(ctx, addr); err != nil || nano.Cmp(want) != 0 {
				t.Fatalf("balance of %v at block %d: got %v and error %v, want %v", addr, head, nano, err, want)
			}
			break
		}
		if head++; head > chain.Last() {
			break
		}
		slow.Advance(head)
		fast.Advance(head)
	}
	asked := slow.Asked()
	if n := asked["getBlockProof"] + asked["getBlock"] + asked["getAccountState"]; n > 10 {
		t.Errorf("the slow server received %d queries for 39 blocks and their balances, want at most 10", n)
	}
}

// TestSlowServerDelaysCallsOnce prefers a slow server. The first call must query the other server in
// addition, and later calls that one alone.
func TestSlowServerDelaysCallsOnce(t *testing.T) {
	chain := generate(10)
	slow, fast := start(t, chain, nil), start(t, chain, nil)
	b := open(t, slow.Config(fast), &tonlite.Options{Timeout: slowTimeout, Cache: 1})
	b.Prefer(0)
	slow.Delay(slowTimeout / 2)
	slow.Asked()
	ctx, cancel := context.WithTimeout(t.Context(), slowTimeout/3)
	defer cancel()
	for range 20 {
		if page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 3}); err != nil || len(page) != 3 {
			t.Fatalf("got a page of %d blocks and error %v", len(page), err)
		}
	}
	n := 0
	for _, k := range slow.Asked() {
		n += k
	}
	if n != 1 {
		t.Errorf("the slow server received %d queries, want 1", n)
	}
}

// TestFastServersAreNotQueriedInAddition requires that a call sends each query to one server.
func TestFastServersAreNotQueriedInAddition(t *testing.T) {
	chain := generate(40)
	preferred, other := start(t, chain, nil), start(t, chain, nil)
	b := open(t, preferred.Config(other), &tonlite.Options{Timeout: slowTimeout, Cache: 1})
	b.Prefer(0)
	other.Asked()
	for range 5 {
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, k := range other.Asked() {
		n += k
	}
	if n > 5 { // a few responses may be late on a busy machine
		t.Errorf("the other server received %d queries, want at most 5", n)
	}
}

// TestSlowServerDoesNotDelayPages prefers a server that takes almost four times as long as the others, which is too
// fast for a query in addition. A page of old blocks takes more than 20 round trips.
func TestSlowServerDoesNotDelayPages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(400)
		slow, one, two := m.start(chain), m.start(chain), m.start(chain)
		for _, s := range []*liteservertest.Server{slow, one, two} {
			s.Delay(60 * time.Millisecond)
		}
		b := m.open(slow.Config(one, two), nil)
		b.Prefer(0)
		slow.Delay(225 * time.Millisecond)
		for i := range uint32(5) {
			q := chaingql.BlocksQuery{First: 50, After: cursor(20 + 30*i)}
			if took := readPage(t, b, chain, q); took > 5*time.Second/2 { // 1.4 s from the other servers
				t.Errorf("page %d took %v, want at most 2.5 s", i, took)
			}
		}
	})
}

// TestServerThatDelaysWaitingQueriesDoesNotDelayPages uses a server that is nearer than the others, but is slow to
// respond, or does not respond, to queries that wait for a block. Most queries of a page do. It announces the newest
// block, or only an old one.
func TestServerThatDelaysWaitingQueriesDoesNotDelayPages(t *testing.T) {
	for _, row := range []struct {
		late, others time.Duration // the first one with and without a query in addition
		announces    liteservertest.Lie
	}{
		{300 * time.Millisecond, 80 * time.Millisecond, liteservertest.Truth},
		{time.Hour, 80 * time.Millisecond, liteservertest.Truth},
		{389 * time.Millisecond, 100 * time.Millisecond, liteservertest.OldHead},
	} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(400)
				near, one, two := m.start(chain), m.start(chain), m.start(chain)
				near.Delay(time.Millisecond)
				near.SetLie(row.announces)
				one.Delay(row.others)
				two.Delay(row.others)
				b := m.open(near.Config(one, two), nil)
				following(t, b, cursor(399)) // so pages do not ask for the newest block
				b.Prefer(0)
				near.DelayWaiting(row.late)
				for i := range uint32(5) {
					q := chaingql.BlocksQuery{First: 50, After: cursor(20 + 30*i)}
					if took := readPage(t, b, chain, q); took > 7*time.Second/2 { // at most 2.3 s without near
						t.Errorf("page %d took %v, want at most 3.5 s", i, took)
					}
				}
			})
		})
	}
}

// TestServersThatWaitForBlocksAreNotSlow reads balances as of a block that one server announces and withholds. The
// other server is a millisecond away, and waits for that block.
func TestServersThatWaitForBlocksAreNotSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		withholds, waits, b := m.startTwo(generate(60))
		withholds.SetLie(liteservertest.Withheld)
		withholds.Advance(21)
		for range 3 {
			begin := time.Now()
			_, _ = b.Balance(t.Context(), chaingql.Address{Workchain: -1})
			if took := time.Since(begin); took < time.Second {
				t.Errorf("the balance took %v, want that a server waits for the block", took)
			}
		}
		if waits.Asked()["getAccountState"] < 3 || b.Latency(1) > 10*time.Millisecond {
			t.Errorf("the server that waits usually takes %v, want about a millisecond", b.Latency(1))
		}
	})
}

// A brokenConn closes when a client sends the second query, which follows the handshake and the first query.
type brokenConn struct {
	net.Conn
	writes atomic.Int32
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.writes.Add(1) > 2 {
		_ = c.Close()
	}
	return c.Conn.Write(p)
}

// TestServerThatIsSlowToConnectDoesNotDelayPages loses the connection to the nearest server. Further attempts to
// connect to it hang, or succeed just before its queries go to another server, too, and the connections break.
func TestServerThatIsSlowToConnectDoesNotDelayPages(t *testing.T) {
	for name, delay := range map[string]time.Duration{"hangs": time.Hour, "breaks": 390 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(700)
				near, one, two := m.start(chain), m.start(chain), m.start(chain)
				near.Delay(time.Millisecond)
				one.Delay(100 * time.Millisecond)
				two.Delay(100 * time.Millisecond)
				var slow atomic.Bool
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr != near.Addr() || !slow.Load() {
						return m.dial(ctx, network, addr)
					}
					select {
					case <-time.After(delay):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					conn, err := m.dial(ctx, network, addr)
					return &brokenConn{Conn: conn}, err
				}
				opts := tonlite.Options{Cache: 8, Logger: slog.New(slog.DiscardHandler)}
				b := open(t, near.Config(one, two), opts.With(dial))
				following(t, b, cursor(699))
				for i := range uint32(10) {
					if i == 1 {
						slow.Store(true)
						near.Interrupt()
					}
					q := chaingql.BlocksQuery{First: 50, After: cursor(60 + 50*i)}
					if took := readPage(t, b, chain, q); i > 2 && took > 5*time.Second/2 { // 1.9 s without near
						t.Errorf("page %d took %v, want at most 2.5 s", i, took)
					}
					time.Sleep(5 * time.Second)
				}
			})
		})
	}
}
