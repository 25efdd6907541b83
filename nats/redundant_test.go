package natschain_test

import (
	"context"
	"testing"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// TestSecondIndexerNeedsFewResponsesPerBlock has two Writers append the same blocks. For each block, one of them finds
// that the other was faster. It must not read parts of the index, or store them again.
func TestSecondIndexerNeedsFewResponsesPerBlock(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), uneven(3020)
	writers := []*natschain.Writer{writer(t, open(t, s.ClientURL(), nil)), writer(t, open(t, s.ClientURL(), nil))}
	appendBoth := func(blocks ...chaingql.Block) {
		t.Helper()
		for _, w := range writers {
			if err := w.Append(ctx, blocks...); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendBoth(all[:3000]...)
	index, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	stored := index.CachedInfo().State.LastSeq
	x := newSpy(t, s.ClientURL())
	for _, b := range all[3000:] {
		appendBoth(b)
	}
	_, _, answers := x.saw()
	if perBlock := answers / 20; perBlock > 300 { // 256 of them are the messages before the block
		t.Errorf("got %d responses per block, want at most 300", perBlock)
	}
	info, err := index.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if again := info.State.LastSeq - stored; again > 3 { // those of the Writer's first block
		t.Errorf("got %d more messages in the index, although no leaf was complete", again)
	}
}
