package backendtest

import (
	"context"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestChaosPrunePassesAllRules(t *testing.T) {
	checkAllRules(t, func() Harness {
		c := memchain.New()
		h := fullHarness(c)
		chaos := Chaos(c, ChaosOptions{})
		h.Backend = chaos
		h.Reopen = func() (chaingql.Backend, error) { return chaos, nil }
		h.Prune = func(before chaingql.Cursor) error { return chaos.Prune(context.Background(), before) }
		return h
	})
}

func TestChaosPruneWithEmptyCursorKeepsAllBlocks(t *testing.T) {
	c := memchain.New()
	if err := c.Append(Chain(3, 1)...); err != nil {
		t.Fatal(err)
	}
	chaos := Chaos(c, ChaosOptions{})
	if err := chaos.Prune(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if page, err := chaos.Blocks(t.Context(), query{First: 5}); err != nil || len(page) != 3 {
		t.Errorf("Blocks returned %d blocks and error %v, want 3 blocks", len(page), err)
	}
}
