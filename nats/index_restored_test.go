package natschain_test

import (
	"context"
	"errors"
	"fmt"
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

// TestIndexOfLostStraysIsIgnored publishes strays, restores the block stream from a backup without them, but not the
// index, and continues the chain with the same blocks. Nodes whose ranges ended in strays lack blocks. Pages and
// lookups must not use such nodes, and the Writer must replace them.
func TestIndexOfLostStraysIsIgnored(t *testing.T) {
	for _, step := range []int{200, 800} {
		t.Run(fmt.Sprintf("%d blocks per Append", step), func(t *testing.T) {
			t.Parallel()
			s, ctx, all, rare := newBroker(t), t.Context(), hashed(2700, "x"), int32(5)
			for i := range all {
				all[i].Workchain, all[i].Shard, all[i].SeqNo = 0, 1<<63, uint32(i+1)
				if i%50 == 3 {
					all[i].Workchain = rare
				}
			}
			opts := (&logbook{}).options()
			if err := writer(t, open(t, s.ClientURL(), opts)).Append(ctx, all[:1100]...); err != nil {
				t.Fatal(err)
			}
			backUp, restore := s.backups()
			backUp()
			js := raw(t, s.ClientURL())
			for range 1000 {
				if _, err := js.PublishAsync(subjectOf(&all[0]), []byte("junk")); err != nil {
					t.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
			if err := writer(t, open(t, s.ClientURL(), opts)).Append(ctx, all[1100:1900]...); err != nil {
				t.Fatal(err)
			}
			restore()
			w, host := writer(t, open(t, s.ClientURL(), opts)), open(t, s.ClientURL(), opts)
			for at := 1100; at < len(all); at += step {
				if err := w.Append(ctx, all[at:at+step]...); err != nil {
					t.Fatal(err)
				}
				fresh := open(t, s.ClientURL(), opts)
				for _, b := range []*natschain.Backend{host, fresh} {
					expectPages(t, b, all[:at+step], []chaingql.BlocksQuery{
						{First: 60, After: all[0].Cursor, Workchain: &rare}, {Last: 20, Workchain: &rare},
					})
					expectByHash(t, b, every(271, all[:at+step]), true)
				}
				fresh.Close()
			}
		})
	}
}
