package natschain_test

import (
	"context"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

// TestBlocksBetweenManyStrayMessagesAreFound publishes strays after each of the oldest blocks, so that no block is near
// another one. Then the Backend forgets which messages are blocks and finds that out for only the newest ones.
func TestBlocksBetweenManyStrayMessagesAreFound(t *testing.T) {
	for _, row := range []struct {
		name  string
		prev  chaingql.Cursor
		stray func(after *chaingql.Block, i int) chaingql.Cursor
		many  int
	}{
		{"ten with higher cursors", "0999", func(*chaingql.Block, int) chaingql.Cursor { return "212c" }, 10},
		{"one with a cursor between those of blocks", "0999", between, 1},
		{"ten with cursors between those of blocks and a low prev", "", between, 10},
		{"30 that cannot be decoded", "0999", func(*chaingql.Block, int) chaingql.Cursor { return "?" }, 30},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			b := open(t, s.ClientURL(), (&logbook{}).options())
			all := hashed(1000, "surrounded")
			nc, err := nats.Connect(s.ClientURL())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			publishRun(t, s.ClientURL(), "", all[:1])
			for i := range 8 {
				for j := range row.many {
					x := all[i+j%3]
					x.Cursor, x.Hash[3] = row.stray(&all[i], j), x.Hash[3]+1
					publishRun(t, s.ClientURL(), row.prev, []chaingql.Block{x})
				}
				publishRun(t, s.ClientURL(), all[i].Cursor, all[i+1:i+2])
			}
			publishRun(t, s.ClientURL(), all[8].Cursor, all[9:])
			shard, workchain := all[5].Shard, all[5].Workchain
			for _, q := range []chaingql.BlocksQuery{
				{First: 300}, {First: 1, After: all[3].Cursor}, {Last: 5, Before: all[9].Cursor},
				{First: 8, Workchain: &workchain}, {First: 300, Workchain: &workchain},
				{Last: 1, Workchain: &workchain},
				{First: 1, Workchain: &workchain, Shard: &shard}, {First: 300, Workchain: &workchain, Shard: &shard},
				{Last: 300, Workchain: &workchain, Shard: &shard, Before: all[8].Cursor},
			} {
				b.Reset()
				got, err := b.Blocks(ctx, q)
				if want := chaingql.PageOf(all, q); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: got %d blocks and error %v, want %d blocks", named(q), len(got), err, len(want))
				}
			}
			for _, block := range []chaingql.Block{all[0], all[1], all[5], all[8], all[40]} {
				b.Reset()
				got, err := b.BlockBySeqNo(ctx, block.Workchain, block.Shard, block.SeqNo)
				if err != nil || got != block {
					t.Errorf("BlockBySeqNo of block %s: got %q and error %v", block.Cursor, got.Cursor, err)
				}
				b.Reset()
				if got, err = b.BlockByHash(ctx, block.Hash); err != nil || got != block {
					t.Errorf("BlockByHash of block %s: got %q and error %v", block.Cursor, got.Cursor, err)
				}
			}
		})
	}
}

func between(after *chaingql.Block, i int) chaingql.Cursor {
	return after.Cursor + chaingql.SeqCursor(uint64(i))
}
