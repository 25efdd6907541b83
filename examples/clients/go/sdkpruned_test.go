package chain_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	client "github.com/chaingql/chaingql/examples/clients/go"
)

var tooOld = &client.SDKError{Code: client.GraphQLError, Message: "The blocks after this cursor are no longer kept."}

// TestFollowNewContinuesIfOnlyKnownBlocksArePruned interrupts a follower of a service that keeps fewer blocks than
// FollowNew reads again.
func TestFollowNewContinuesIfOnlyKnownBlocksArePruned(t *testing.T) {
	for _, keep := range []int{1, 100, 400, 600} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			s, ctx := serve(t), soon(t)
			s.grow(5)
			have := s.cursors(all)
			processed, ended := make(chan string, 10_000), make(chan error, 1)
			if _, err := client.FollowNew(t.Context(), newModelSDK(t, s.address, func(int) {}), have[len(have)-1],
				func(b client.SDKBlock) { processed <- b.ChainOrder }, func(err error) { ended <- err }); err != nil {
				t.Fatal(err)
			}
			var got []string
			growUntilProcessed := func(n int) {
				t.Helper()
				for s.growSoon(ctx); len(got) < n; s.growSoon(ctx) {
					for len(processed) > 0 {
						got = append(got, <-processed)
					}
					if len(ended) > 0 {
						t.Fatal("the subscription ended after", len(got), "blocks:", <-ended)
					}
				}
			}
			growUntilProcessed(1)
			s.grow(400)
			growUntilProcessed(802)
			want := s.cursors(all)[len(have):]
			s.chain.Prune(chaingql.Cursor(got[len(got)-1-keep]))
			s.restart()
			growUntilProcessed(len(want) + 100)
			stored := s.cursors(all)
			newest, _ := slices.BinarySearch(stored, want[len(want)-1])
			want = append(want, stored[newest+1:]...)
			if !slices.Equal(got, want[:len(got)]) {
				t.Errorf("the %d processed blocks differ from those of the chain", len(got))
			}
		})
	}
}

func TestFollowNewReadsStoredBlocksAgainAfterPruning(t *testing.T) {
	for _, row := range []struct {
		name   string
		after  string
		known  int // number of blocks before the error
		pruned int // number of the newest pruned block
		end    error
	}{
		{"all known blocks but one are pruned", order(0), 100, 99, nil},
		{"all known blocks are pruned", order(0), 100, 100, nil},
		{"some blocks after the first cursor are pruned", order(0), 100, 1, nil},
		{"some blocks of the ones that are read again are pruned", order(0), 2000, 1600, nil},
		{"a block that the app does not have is pruned", order(0), 100, 101, tooOld},
		{"a block that the app does not have is pruned, and there are 2000 known ones", order(0), 2000, 2001, tooOld},
		{"there is no first cursor, and all known blocks are pruned", "", 100, 100, nil},
		{"there is no first cursor, and a block that the app does not have is pruned", "", 100, 101, tooOld},
	} {
		t.Run(row.name, func(t *testing.T) {
			var sdk scriptedSDK
			var got []string
			var end error
			if _, err := client.FollowNew(t.Context(), &sdk, row.after, func(b client.SDKBlock) {
				got = append(got, b.ChainOrder)
			}, func(err error) { end = errors.Join(end, err) }); err != nil {
				t.Fatal(err)
			}
			late := row.known - 1 // the block before the newest one is missing at first
			want := make([]string, 0, row.known+3)
			for n := 1; n <= row.known; n++ {
				if n != late {
					sdk.store(n)
					sdk.live(n)
					want = append(want, order(n))
				}
			}
			sdk.after = nil
			sdk.handle(nil, cut)
			sdk.store(late, row.known+1, row.known+2, row.known+3)
			sdk.prune(row.pruned)
			sdk.live(row.known+2, row.known+3)
			if late > row.pruned {
				want = append(want, order(late))
			}
			if row.end == nil {
				want = append(want, order(row.known+1), order(row.known+2), order(row.known+3))
			}
			if !slices.Equal(got, want) {
				t.Errorf("processed %d blocks up to %v, want %d up to %v",
					len(got), got[max(0, len(got)-4):], len(want), want[len(want)-4:])
			}
			if (end != nil) != (row.end != nil) || !errors.Is(end, row.end) {
				t.Errorf("ended with %v, want %v", end, row.end)
			}
			if len(sdk.after) > 30 {
				t.Errorf("FollowNew sent %d queries, want at most 30", len(sdk.after))
			}
		})
	}
}
