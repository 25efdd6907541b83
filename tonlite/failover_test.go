package tonlite_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// quick has a timeout that is short enough for tests.
var quick = tonlite.Options{Timeout: time.Second}

// within fails the test if the call takes longer than limit.
func within(t *testing.T, limit time.Duration, call func()) {
	t.Helper()
	begin := time.Now()
	call()
	if took := time.Since(begin); took > limit {
		t.Errorf("the call took %v, want at most %v", took, limit)
	}
}

func TestReadsContinueWhenOneServerFails(t *testing.T) {
	chain := generate(30)
	facts := chain.Blocks()
	for _, row := range []struct {
		name string
		fail func(s *liteservertest.Server)
		opts *tonlite.Options
	}{
		{"one server stops", func(s *liteservertest.Server) { s.Stop() }, nil},
		{"one server hangs", func(s *liteservertest.Server) { t.Cleanup(s.Stall()) }, &quick},
		{"one server lags", func(s *liteservertest.Server) { s.Advance(15) }, &quick},
		{"one server deletes blocks", func(s *liteservertest.Server) { s.Forget(29) }, nil},
		{"one server sends garbage", func(s *liteservertest.Server) { s.SetLie(liteservertest.Garbage) }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // some subtests wait for a deadline
			first, second := start(t, chain, nil), start(t, chain, nil)
			first.Advance(15)
			second.Advance(15)
			b := open(t, first.Config(second), row.opts)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i := 0
			for block, err := range b.Follow(ctx, "") {
				if err != nil {
					t.Fatalf("Follow after %d blocks: got error %v", i, err)
				}
				if block != facts[i] {
					t.Fatalf("block %d: got %+v, want %+v", i, block, facts[i])
				}
				if i++; i == len(facts) {
					break
				}
				if block.Workchain == -1 && block.SeqNo == 15 {
					first.Advance(30)
					row.fail(first)
					second.Advance(30)
				}
			}
			for addr, want := range chain.Balances(30) {
				if nano, err := b.Balance(ctx, addr); err != nil || nano.Cmp(want) != 0 {
					t.Fatalf("balance of %v: got %v and error %v, want %v", addr, nano, err, want)
				}
			}
			cold := open(t, second.Config(first), row.opts)
			page, err := cold.Blocks(ctx, chaingql.BlocksQuery{First: 1000})
			if err != nil {
				t.Fatal(err)
			}
			same(t, page, facts)
		})
	}
}

// TestTimeoutLimitsCallsToHungServer uses a single server, which does not respond, and contexts
// without a deadline.
func TestTimeoutLimitsCallsToHungServer(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(10)
		s := m.start(chain)
		b := m.open(s.Config(), nil)
		b.Hurry(500 * time.Millisecond)
		newest := chain.Blocks()[len(chain.Blocks())-1].Cursor
		resume := s.Stall()
		within(t, 10*time.Second, func() {
			_, err := b.Balance(context.Background(), chaingql.Address{})
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("Balance: got error %v, want DeadlineExceeded and ErrUnavailable", err)
			}
		})
		within(t, 10*time.Second, func() {
			_, err := b.Blocks(context.Background(), chaingql.BlocksQuery{Last: 3})
			if !errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("Blocks: got error %v, want ErrUnavailable", err)
			}
		})
		resume()
		time.Sleep(300 * time.Millisecond) // the backoff ends
		stalled := make(chan func(), 1)
		time.AfterFunc(50*time.Millisecond, func() { stalled <- s.Stall() })
		within(t, 10*time.Second, func() {
			for _, err := range b.Follow(context.Background(), newest) {
				if err == nil {
					t.Error("Follow yielded a block, want an error because the server hangs")
				}
				break
			}
		})
		(<-stalled)()
	})
}

// TestHungServerLeavesTimeToQueryAnotherServer makes calls with a deadline that equals Options.Timeout,
// as a Handler does by default.
func TestHungServerLeavesTimeToQueryAnotherServer(t *testing.T) {
	chain := generate(10)
	for _, row := range []struct {
		name string
		fail func(s *liteservertest.Server)
	}{
		{"one server hangs", func(s *liteservertest.Server) { t.Cleanup(s.Stall()) }},
		{"one server hangs during the handshake", func(s *liteservertest.Server) {
			t.Cleanup(s.Stall())
			s.Interrupt()
		}},
		{"one server is slow", func(s *liteservertest.Server) { s.Delay(1600 * time.Millisecond) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			first, second := start(t, chain, nil), start(t, chain, nil)
			b := open(t, first.Config(second), &tonlite.Options{Timeout: 2 * time.Second})
			b.Prefer(0)
			row.fail(first)
			for addr := range chain.Balances(10) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if _, err := b.Balance(ctx, addr); err != nil {
					t.Errorf("Balance: got error %v", err)
				}
				if _, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 3}); err != nil {
					t.Errorf("Blocks: got error %v", err)
				}
				cancel()
			}
		})
	}
}

// TestLostConnectionEndsQueriesAtOnce requires that queries do not wait for their deadline if the
// connection is lost.
func TestLostConnectionEndsQueriesAtOnce(t *testing.T) {
	s := start(t, generate(10), nil)
	b := open(t, s.Config(), &tonlite.Options{Timeout: time.Minute})
	resume := s.Stall()
	defer resume()
	s.Asked() // resets the count after Open
	var under sync.WaitGroup
	defer under.Wait()
	under.Go(func() {
		for len(s.Asked()) == 0 { // until a query is in flight
			time.Sleep(time.Millisecond)
		}
		s.Interrupt()
	})
	within(t, 30*time.Second, func() {
		_, err := b.Balance(context.Background(), chaingql.Address{})
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Balance: got error %v, want an error other than DeadlineExceeded", err)
		}
	})
}

// TestStoppedServerIsQueriedRarely requires that most calls skip a stopped server, and that the
// server is used again after its restart.
func TestStoppedServerIsQueriedRarely(t *testing.T) {
	chain := generate(10)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	s.Stop()
	alone := 0
	for range 20 {
		_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
		if err == nil {
			t.Fatal("Blocks from a stopped server: got no error")
		}
		if strings.Contains(err.Error(), "not used for") && strings.Contains(err.Error(), "connection refused") {
			alone++
		}
	}
	if alone < 10 { // the backoff grows
		t.Errorf("%d of 20 calls skipped the server, want at least 10", alone)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the restarted server was not used within 20 seconds")
		}
	}
}

func TestCloseEndsRunningCalls(t *testing.T) {
	chain := generate(10)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	time.AfterFunc(50*time.Millisecond, b.Close)
	var last error
	for _, err := range b.Follow(context.Background(), "") {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "the Backend was closed") {
		t.Errorf("Follow: got error %v, want that the Backend was closed", last)
	}
	_, err := b.Balance(context.Background(), chaingql.Address{})
	if err == nil || !strings.Contains(err.Error(), "the Backend was closed") {
		t.Errorf("Balance: got error %v, want that the Backend was closed", err)
	}
}

// TestLaggingServerIsSkipped requires that pages include the newest block that any server has,
// even if no Follow runs.
func TestLaggingServerIsSkipped(t *testing.T) {
	chain := generate(30)
	for _, lagging := range []int{0, 1} {
		servers := []*liteservertest.Server{start(t, chain, nil), start(t, chain, nil)}
		servers[lagging].Advance(16) // makes it the preferred server
		servers[1-lagging].Advance(15)
		b := open(t, servers[0].Config(servers[1]), nil)
		servers[lagging].Advance(10)
		servers[1-lagging].Advance(30)
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 5})
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{Last: 5}))
	}
}

// TestCanceledFollowDoesNotDisableServer cancels a Follow while the Backend proves a new block.
// The server must remain in use.
func TestCanceledFollowDoesNotDisableServer(t *testing.T) {
	chain := generate(60)
	s := start(t, chain, nil)
	s.Advance(20)
	b := open(t, s.Config(), nil)
	for seqNo := uint32(20); seqNo < chain.Last(); seqNo++ {
		ctx, leave := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() {
			for range b.Follow(ctx, chaingql.ChainOrder(-1, 1<<63, seqNo, 0)) {
				leave()
			}
		})
		for ctx.Err() == nil && s.Asked()["lookupBlock"] == 0 { // until Follow waits for a block
			time.Sleep(10 * time.Microsecond)
		}
		s.Advance(seqNo + 1)
		for ctx.Err() == nil && s.Asked()["getBlockProof"] == 0 {
			time.Sleep(10 * time.Microsecond)
		}
		leave()
		following.Wait()
		_, err := b.Balance(t.Context(), chaingql.Address{Workchain: -1})
		if err != nil && !errors.Is(err, chaingql.ErrNotFound) {
			t.Fatalf("Balance after a canceled Follow at block %d: got error %v", seqNo, err)
		}
	}
}

// TestBalanceIsReadFromLaggingServerOnceItCatchesUp stops the server that announced the newest block. The other server
// does not have that block yet, but receives it while the call waits.
func TestBalanceIsReadFromLaggingServerOnceItCatchesUp(t *testing.T) {
	chain := generate(30)
	first, second := start(t, chain, nil), start(t, chain, nil)
	second.Advance(29)
	resume := second.Stall()
	b := open(t, first.Config(second), &tonlite.Options{Timeout: time.Minute}) // its head is block 30
	resume()
	first.Stop()
	second.Asked() // resets the count after Open
	var growing sync.WaitGroup
	defer growing.Wait()
	growing.Go(func() {
		for second.Asked()["getMasterchainInfo"] == 0 {
			time.Sleep(time.Millisecond)
		}
		second.Advance(30)
	})
	for addr, want := range chain.Balances(30) {
		if addr.Workchain != -1 {
			continue
		}
		if nano, err := b.Balance(t.Context(), addr); err != nil || nano.Cmp(want) != 0 {
			t.Errorf("balance of %v: got %v and error %v, want %v", addr, nano, err, want)
		}
		break
	}
}
