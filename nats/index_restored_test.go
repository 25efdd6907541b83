package natschain_test

import (
	"context"
	"errors"
	"testing"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// TestIndexHasNoLostBlocksAfterInterruptedPage restores the block stream from a backup, but not the index. A page that
// has read a node of the index with lost blocks is interrupted before it notices that. The Writer, which uses the same
// Backend, must not copy these blocks into the nodes that it stores.
func TestIndexHasNoLostBlocksAfterInterruptedPage(t *testing.T) {
	t.Parallel()
	s, lost, all := newBroker(t), withRareBlocks(2_600), withRareBlocks(2_600)
	for i := 1000; i < len(all); i++ { // other blocks are rare, with the same cursors
		all[i].Hash[1]++
		all[i].Workchain = 0
		if i%100 == 50 {
			all[i].Workchain = 5
		}
	}
	h, ctx, rare := newHolder(t, s, "GET.chain_index"), t.Context(), int32(5)
	w := writer(t, h.b)
	restore := s.appendAndBackUp(w, lost, 1000)
	restore[1000]()
	if err := w.Append(ctx, all[1000:1270]...); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(ctx)
	h.hold(1, cancel)
	_, err := h.b.Blocks(interrupted, chaingql.BlocksQuery{Last: 50, Workchain: &rare})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted page: got error %v, want context.Canceled", err)
	}
	if err := w.Append(ctx, all[1270:]...); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*natschain.Backend{open(t, s.ClientURL(), nil), h.b} {
		for _, n := range []int{5, 10, 20} {
			expectPages(t, b, all, []chaingql.BlocksQuery{{Last: n, Workchain: &rare}, {First: n, Workchain: &rare}})
		}
	}
}
