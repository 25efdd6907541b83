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

// quick has deadlines that a test can wait for.
var quick = tonlite.Options{Timeout: time.Second}

// within fails a test where a call takes longer.
func within(t *testing.T, limit time.Duration, call func()) {
	t.Helper()
	begin := time.Now()
	call()
	if took := time.Since(begin); took > limit {
		t.Errorf("it took %v, more than %v", took, limit)
	}
}

func TestAnotherServerTakesOver(t *testing.T) {
	chain := liteservertest.Made(30)
	facts := chain.Blocks()
	for _, row := range []struct {
		name string
		fail func(s *liteservertest.Server)
		opts *tonlite.Options
	}{
		{"where one is gone", func(s *liteservertest.Server) { s.Stop() }, nil},
		{"where one hangs", func(s *liteservertest.Server) { t.Cleanup(s.Stall()) }, &quick},
		{"where one is behind", func(s *liteservertest.Server) { s.Advance(15) }, &quick},
		{"where one has forgotten", func(s *liteservertest.Server) { s.Forget(29) }, nil},
		{"where one lies", func(s *liteservertest.Server) { s.Tell(liteservertest.Garbage) }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // some wait for deadlines
			first, second := start(t, chain, nil), start(t, chain, nil)
			first.Advance(15)
			second.Advance(15)
			b := open(t, first.Config(second), row.opts)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i := 0
			for block, err := range b.Follow(ctx, "") {
				if err != nil {
					t.Fatalf("after %d blocks: %v", i, err)
				}
				if block != facts[i] {
					t.Fatalf("block %d is %+v, want %+v", i, block, facts[i])
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
					t.Fatalf("%v has %v, want %v; %v", addr, nano, want, err)
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

// TestHungServerIsGivenUp has nobody but a server that says nothing, and no
// deadline but the Backend's own.
func TestHungServerIsGivenUp(t *testing.T) {
	chain := liteservertest.Made(10)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	b.Hurry(500 * time.Millisecond)
	newest := chain.Blocks()[len(chain.Blocks())-1].Cursor
	resume := s.Stall()
	within(t, 10*time.Second, func() {
		if _, err := b.Balance(context.Background(), chaingql.Address{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Balance returned %v", err)
		}
	})
	within(t, 10*time.Second, func() {
		if _, err := b.Blocks(context.Background(), chaingql.BlocksQuery{Last: 3}); err == nil {
			t.Error("Blocks returned no error")
		}
	})
	resume()
	time.Sleep(300 * time.Millisecond) // it is left alone for a moment
	stalled := make(chan func(), 1)
	time.AfterFunc(50*time.Millisecond, func() { stalled <- s.Stall() })
	within(t, 10*time.Second, func() {
		for _, err := range b.Follow(context.Background(), newest) {
			if err == nil {
				t.Error("Follow of a hung server goes on")
			}
			break
		}
	})
	(<-stalled)()
}

// TestLostConnectionIsNoticedAtOnce: what is under way when a connection drops
// does not wait for its deadline.
func TestLostConnectionIsNoticedAtOnce(t *testing.T) {
	s := start(t, liteservertest.Made(10), nil)
	b := open(t, s.Config(), &tonlite.Options{Timeout: time.Minute})
	resume := s.Stall()
	defer resume()
	s.Asked() // what Open did
	var under sync.WaitGroup
	defer under.Wait()
	under.Go(func() {
		for len(s.Asked()) == 0 { // nothing is under way yet
			time.Sleep(time.Millisecond)
		}
		s.Interrupt()
	})
	within(t, 30*time.Second, func() {
		if _, err := b.Balance(context.Background(), chaingql.Address{}); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Balance returned %v", err)
		}
	})
}

// TestServerThatIsDownIsLeftAlone: it is not asked with every call, and found
// again when it is back.
func TestServerThatIsDownIsLeftAlone(t *testing.T) {
	chain := liteservertest.Made(10)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	s.Stop()
	alone := 0
	for range 20 {
		_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
		if err == nil {
			t.Fatal("a server that is down answers")
		}
		if strings.Contains(err.Error(), "left alone for") && strings.Contains(err.Error(), "connection refused") {
			alone++
		}
	}
	if alone < 10 { // each time it is left alone for longer
		t.Errorf("it was left alone by %d of 20 calls", alone)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not found again")
		}
	}
}

func TestClosedBackendEndsWhatIsUnderWay(t *testing.T) {
	chain := liteservertest.Made(10)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	time.AfterFunc(50*time.Millisecond, b.Close)
	var last error
	for _, err := range b.Follow(context.Background(), "") {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "the Backend was closed") {
		t.Errorf("Follow ended with %v", last)
	}
	if _, err := b.Balance(context.Background(), chaingql.Address{}); err == nil || !strings.Contains(err.Error(), "the Backend was closed") {
		t.Errorf("Balance returned %v", err)
	}
}

// TestServerThatFellBehindIsPassedOver: with nobody who follows, a page tells
// what the server knows that is furthest.
func TestServerThatFellBehindIsPassedOver(t *testing.T) {
	chain := liteservertest.Made(30)
	for _, behind := range []int{0, 1} {
		servers := []*liteservertest.Server{start(t, chain, nil), start(t, chain, nil)}
		servers[behind].Advance(16) // so that it is preferred
		servers[1-behind].Advance(15)
		b := open(t, servers[0].Config(servers[1]), nil)
		servers[behind].Advance(10)
		servers[1-behind].Advance(30)
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 5})
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{Last: 5}))
	}
}

// TestLeavingAFollowIsNoFaultOfTheServer leaves while a new block is proven: others
// are served on.
func TestLeavingAFollowIsNoFaultOfTheServer(t *testing.T) {
	chain := liteservertest.Made(60)
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
		for ctx.Err() == nil && s.Asked()["lookupBlock"] == 0 { // it does not wait yet
			time.Sleep(10 * time.Microsecond)
		}
		s.Advance(seqNo + 1)
		for ctx.Err() == nil && s.Asked()["getBlockProof"] == 0 {
			time.Sleep(10 * time.Microsecond)
		}
		leave()
		following.Wait()
		if _, err := b.Balance(t.Context(), chaingql.Address{Workchain: -1}); err != nil && !errors.Is(err, chaingql.ErrNotFound) {
			t.Fatalf("at block %d: %v", seqNo, err)
		}
	}
}

// TestServerAMomentBehindTakesOver loses the server that told of the newest block
// while the other one does not have that yet.
func TestServerAMomentBehindTakesOver(t *testing.T) {
	chain := liteservertest.Made(30)
	first, second := start(t, chain, nil), start(t, chain, nil)
	second.Advance(29)
	resume := second.Stall()
	b := open(t, first.Config(second), &tonlite.Options{Timeout: time.Minute}) // which is at 30 then
	resume()
	first.Stop()
	second.Asked() // what Open did
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
			t.Errorf("%v has %v, want %v; %v", addr, nano, want, err)
		}
		break
	}
}
