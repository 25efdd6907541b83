package natschain_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestIndexNodeThatIsABlockCountsAsMissing replaces each node of the index with a copy of a block. Pages of rare shards
// must still be complete.
func TestIndexNodeThatIsABlockCountsAsMissing(t *testing.T) {
	ctx, all := context.Background(), uneven(3000)
	s, b, _ := indexedChain(t, all)
	js := raw(t, s.ClientURL())
	index, err := js.Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	info, err := index.Info(ctx, jetstream.WithSubjectFilter("chain.index.>"))
	if err != nil || len(info.State.Subjects) == 0 {
		t.Fatalf("the index has %d nodes, error %v", len(info.State.Subjects), err)
	}
	for subject := range info.State.Subjects {
		if _, err := js.Publish(ctx, subject, payloadOf(&all[3])); err != nil {
			t.Fatal(err)
		}
	}
	expectPages(t, b, all, sparse(all[2_000].Cursor))
}
