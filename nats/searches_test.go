package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
)

// TestWaitingSearchesAreLimited requests 64 pages that need a search, in a chain without an index. At
// most 16 searches may wait. The others must fail at once, so that a Handler can still serve other
// requests.
func TestWaitingSearchesAreLimited(t *testing.T) {
	all := uneven(6_000)
	s, _, _ := indexedChain(t, all)
	if err := raw(t, s.ClientURL()).DeleteStream(t.Context(), "chain_index"); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), &natschain.Options{})
	end, err := b.Search(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	workchain := int32(6)
	q := chaingql.BlocksQuery{Workchain: &workchain, Before: all[5_000].Cursor, Last: 50}
	ended := make(chan error, 64)
	for range cap(ended) {
		go func() {
			_, err := b.Blocks(ctx, q)
			ended <- err
		}()
	}
	for range 48 {
		err := <-ended
		if !errors.Is(err, chaingql.ErrUnavailable) || !strings.Contains(err.Error(), "too many searches") {
			t.Fatalf("search above the limit: got error %v, want ErrUnavailable because of too many searches", err)
		}
	}
	end()
	for range 16 {
		if err := <-ended; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	expectPages(t, b, all, []chaingql.BlocksQuery{q})
}

// TestSlowPagesAreLimitedDuringSearch reads 64 pages that need many requests while a search runs and the
// server does not respond. Only 34 of them may be in progress. The others must fail at once, so that a Handler,
// which has at most 64 calls in flight, can still query balances. A page for subscriptions must not fail.
func TestSlowPagesAreLimitedDuringSearch(t *testing.T) {
	all := uneven(6_000)
	s, _, _ := indexedChain(t, all)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), &natschain.Options{Timeout: patience})
	end, err := b.Search(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	marked, resume := forSubscriptions(t), p.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 64)
	for i := range cap(ended) {
		go func() {
			q := chaingql.BlocksQuery{Before: all[1_000+i].Cursor, Last: 10}
			if i%2 == 0 {
				q = chaingql.BlocksQuery{Workchain: &all[i].Workchain, First: 10 + i}
			}
			_, err := b.Blocks(ctx, q)
			ended <- err
		}()
	}
	for range 30 {
		err := <-ended
		if !errors.Is(err, chaingql.ErrUnavailable) || !strings.Contains(err.Error(), "too many searches") {
			t.Errorf("page above the limit: got error %v, want ErrUnavailable because of too many searches", err)
		}
	}
	short, cancel := context.WithTimeout(marked, 50*time.Millisecond)
	defer cancel()
	_, err = b.Blocks(short, chaingql.BlocksQuery{After: all[2_000].Cursor, First: 100})
	// The pages in progress may take all the room of the connection.
	if !errors.Is(err, context.DeadlineExceeded) && (err == nil || !strings.Contains(err.Error(), "too many pages")) {
		t.Errorf("page for a subscription that resumes: got error %v, want none until the time is too short", err)
	}
	resume()
	end()
	for range 34 {
		if err := <-ended; err != nil {
			t.Errorf("page within the limit: got error %v, want none", err)
		}
	}
}
