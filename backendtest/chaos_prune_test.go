package backendtest

import (
	"context"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestAChaosThatPrunesKeepsTheContract(t *testing.T) {
	keepsEveryRule(t, func() Harness {
		c := memchain.New()
		h := whole(c)
		forgets := Chaos(c, ChaosOptions{})
		h.Backend = forgets
		h.Reopen = func() (chaingql.Backend, error) { return forgets, nil }
		h.Prune = func(before chaingql.Cursor) error { return forgets.Prune(context.Background(), before) }
		return h
	})
}

func TestAChaosThatPrunesKeepsAllBlocksFromTheEmptyCursorOn(t *testing.T) {
	c := memchain.New()
	if err := c.Append(Chain(3, 1)...); err != nil {
		t.Fatal(err)
	}
	forgets := Chaos(c, ChaosOptions{})
	if err := forgets.Prune(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if page, err := forgets.Blocks(t.Context(), query{First: 5}); err != nil || len(page) != 3 {
		t.Errorf("kept are %d blocks of 3; %v", len(page), err)
	}
}
