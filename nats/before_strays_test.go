package natschain_test

import (
	"context"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// TestPageBeforeOldestBlockHasNoStrayMessages lets blocks expire until strays are the oldest messages. A page before
// the oldest block must be empty, and one before the next block must contain only the oldest block.
func TestPageBeforeOldestBlockHasNoStrayMessages(t *testing.T) {
	all := numbered(1001, 2400)
	strays := all[103:107]
	strays = append(slices.Clip(strays), all[192], all[305])
	for _, row := range []struct {
		name   string
		linked bool // whether the strays contain a prev, which is unknown
		stored int  // number of blocks that are stored; of more than 900 messages, only the newest 900 are examined
	}{
		{"without prev", false, 280},
		{"with an unknown prev", true, 280},
		{"with an unknown prev, long before the newest block", true, 1300},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			opts := (&logbook{}).options()
			opts.Timeout = patience
			b := open(t, s.ClientURL(), opts)
			w := writer(t, b)
			if err := w.Append(ctx, all[:200]...); err != nil {
				t.Fatal(err)
			}
			js := raw(t, s.ClientURL())
			for i := range strays {
				if row.linked {
					publishRun(t, s.ClientURL(), "0998", strays[i:i+1])
				} else if _, err := js.Publish(ctx, subjectOf(&strays[i]), payloadOf(&strays[i])); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Append(ctx, all[200:row.stored]...); err != nil {
				t.Fatal(err)
			}
			stream, err := js.Stream(ctx, "chain_blocks")
			if err != nil {
				t.Fatal(err)
			}
			for _, first := range []int{199, 204} {
				if err := stream.Purge(ctx, jetstream.WithPurgeSequence(uint64(first))); err != nil {
					t.Fatal(err)
				}
				for _, n := range []uint64{1001, 1107, 1200, 1202, 1306} {
					b.Reset()
					q := chaingql.BlocksQuery{Last: 4, Before: chaingql.SeqCursor(n)}
					got, err := b.Blocks(ctx, q)
					want := chaingql.PageOf(all[min(first-1, 200):row.stored], q)
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("first message %d, page before block %d: got %v and error %v, want %v",
							first, n, cursorsOf(got), err, cursorsOf(want))
					}
				}
			}
		})
	}
}
