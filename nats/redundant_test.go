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

// TestWriterReplacesIndexOfBlocksThatOthersReplaced restores the block stream, but not the index, from a backup. Then a
// program that writes no index appends more blocks than were lost, so that the Writer does not notice the loss by the
// length of the stream.
func TestWriterReplacesIndexOfBlocksThatOthersReplaced(t *testing.T) {
	s, ctx := newBroker(t), context.Background()
	lost, all := hashed(5000, "lost"), hashed(5000, "new")
	copy(all, lost[:1000])
	w := writer(t, open(t, s.ClientURL(), nil))
	restore := s.appendAndBackUp(w, lost[:4500], 1000)
	restore[1000]()
	publishRun(t, s.ClientURL(), all[999].Cursor, all[1000:4600])
	for i := 4600; i < len(all); i += 20 {
		if err := w.Append(ctx, all[i:i+20]...); err != nil {
			t.Fatal(err)
		}
	}
	expectByHash(t, open(t, s.ClientURL(), nil), every(53, all), true)
}
