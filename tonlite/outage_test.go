package tonlite_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
)

// following runs a Follow until the test ends. It returns when Follow keeps the newest block up to
// date.
func following(t *testing.T, b *tonlite.Backend, after chaingql.Cursor) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for _, err := range b.Follow(ctx, after) {
			if err != nil {
				break
			}
			select {
			case <-began:
			default:
				close(began)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-began
}

// While Follow runs, Blocks returns the newest block from memory. Ping must notice that no server answers.
func TestPingQueriesAServerWhileFollowRuns(t *testing.T) {
	chain := generate(10)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	ctx := t.Context()
	following(t, b, chain.Blocks()[0].Cursor)
	if err := b.Ping(ctx); err != nil {
		t.Errorf("Ping returned %v, but the server answers", err)
	}
	defer s.Stall()()
	limited, done := context.WithTimeout(ctx, 300*time.Millisecond)
	defer done()
	if err := b.Ping(limited); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("Ping returned %v, but the server does not answer; want ErrUnavailable", err)
	}
}

// TestDeadlineOfCallsToHungServerIsErrUnavailable makes calls that know the newest block, so that they
// wait for several queries or for the other calls.
func TestDeadlineOfCallsToHungServerIsErrUnavailable(t *testing.T) {
	chain := generate(30)
	s := start(t, chain, nil)
	b := open(t, s.Config(), &tonlite.Options{Cache: 1})
	following(t, b, cursor(28))
	defer s.Stall()()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	addrs := []chaingql.Address{{Workchain: -1}, {Workchain: -1, ID: [32]byte{1}}}
	page := func() error { _, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 25}); return err }
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"Balances":     func() error { _, err := b.Balances(ctx, addrs); return err },
		"a page":       page,
		"another page": page, // waits for the first one
		"BlockBySeqNo": func() error { _, err := b.BlockBySeqNo(ctx, -1, 1<<63, 3); return err },
	} {
		calls.Go(func() {
			if err := call(); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("%s: got error %v, want DeadlineExceeded and ErrUnavailable", name, err)
			}
		})
	}
	calls.Wait()
}

// TestBlocksThatNoServerHasAreErrUnavailable uses a server that lost its newest blocks.
func TestBlocksThatNoServerHasAreErrUnavailable(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	following(t, b, chain.Blocks()[0].Cursor)
	s.Advance(30)
	ctx, shard := t.Context(), int32(-1)
	for name, call := range map[string]func() error{
		"BlockBySeqNo": func() error {
			_, err := b.BlockBySeqNo(ctx, -1, 1<<63, 35)
			return err
		},
		"Blocks, last": func() error {
			_, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 5, Workchain: &shard})
			return err
		},
	} {
		if err := call(); !errors.Is(err, chaingql.ErrUnavailable) {
			t.Errorf("%s: got error %v, want ErrUnavailable", name, err)
		}
	}
}

// TestBalanceFromLaggingServerIsErrUnavailable uses a server that lost its newest blocks. It reports a
// timeout, because it waits for the newest block that the Backend knows.
func TestBalanceFromLaggingServerIsErrUnavailable(t *testing.T) {
	s := start(t, generate(10), nil)
	b := open(t, s.Config(), &tonlite.Options{Timeout: 400 * time.Millisecond})
	s.Advance(5)
	if _, err := b.Balance(t.Context(), chaingql.Address{Workchain: -1}); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("Balance: got error %v, want ErrUnavailable", err)
	}
}

// The only server with old blocks limits the rate of its clients.
func TestRateLimitIsAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(320)
		archive, other := m.start(chain), m.start(chain)
		other.Forget(220)
		b := m.open(archive.Config(other), nil)
		b.Prefer(0)
		if err := b.Ping(t.Context()); err != nil { // a server that has never worked is not expected to have the block
			t.Fatal(err)
		}
		archive.Reject("lookupBlock")
		_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3, After: cursor(20)})
		if !errors.Is(err, chaingql.ErrUnavailable) {
			t.Errorf("got error %v, want ErrUnavailable", err)
		}
	})
}
