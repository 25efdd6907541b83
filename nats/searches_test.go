package natschain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// TestWaitingSearchesAreLimited uses a chain without an index. Searches beyond the limit must fail
// at once, so that a Handler keeps calls for other requests.
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
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "too many searches") {
			t.Fatal(err)
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
