package natschain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// TestIndexOfShiftedBlocksIsReplaced restores a backup without a stray and appends the same blocks again, with a stray
// at another place. Most blocks between the two have other sequence numbers than before, but the messages after
// the index nodes are equal.
func TestIndexOfShiftedBlocksIsReplaced(t *testing.T) {
	t.Parallel()
	s, all := newBroker(t), hashed(1400, "a")
	s.appendNew(t, all[:30])
	backUp, restore := s.backups()
	backUp()
	s.appendNew(t, all[30:40])
	s.publishStray(t, &all[0])
	s.appendNew(t, all[40:600])
	restore()
	s.appendNew(t, all[30:200])
	s.publishStray(t, &all[0])
	s.appendNew(t, all[200:])
	expectByHash(t, open(t, s.ClientURL(), nil), every(7, all), true)
}

// TestIndexOfCorrectedBlocksIsReplaced restores the backup of a chain because some blocks had wrong times, and appends
// the corrected blocks, which have the same cursors and hashes. The pages of a rare workchain are read from the index.
func TestIndexOfCorrectedBlocksIsReplaced(t *testing.T) {
	t.Parallel()
	s, ctx, all, rare := newBroker(t), t.Context(), withRareBlocks(1400), int32(5)
	wrong := slices.Clone(all)
	for i := 40; i < 200; i++ {
		wrong[i].Time = wrong[i].Time.Add(time.Hour)
	}
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	restore := s.appendAndBackUp(w, wrong[:600], 30)
	restore[30]()
	w = writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	if err := w.Append(ctx, all[30:]...); err != nil {
		t.Fatal(err)
	}
	expectPages(t, open(t, s.ClientURL(), nil), all, []chaingql.BlocksQuery{
		{First: 5, Workchain: &rare}, {Last: 5, Before: all[310].Cursor, Workchain: &rare},
	})
}

// TestPruneKeepsIndexAfterLaggingWriter lets a Writer append a block after another one has extended the index by many
// nodes. Prune must not delete the nodes of blocks that are still stored.
func TestPruneKeepsIndexAfterLaggingWriter(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), t.Context(), hashed(5301, "a")
	lagging := writer(t, open(t, s.ClientURL(), nil))
	if err := lagging.Append(ctx, all[:300]...); err != nil {
		t.Fatal(err)
	}
	w := writer(t, open(t, s.ClientURL(), nil))
	for stored := 300; stored < 5300; stored += 1000 {
		if err := w.Append(ctx, all[stored:stored+1000]...); err != nil {
			t.Fatal(err)
		}
	}
	if err := lagging.Append(ctx, all[5300]); err != nil {
		t.Fatal(err)
	}
	pruned := 5 * 256
	if err := w.Prune(ctx, all[pruned].Cursor); err != nil {
		t.Fatal(err)
	}
	expectByHash(t, open(t, s.ClientURL(), nil), every(97, all[pruned:]), true)
}

// TestIndexIsCompleteAfterRestoreOfPrunedBlocks prunes too many blocks and restores a backup that has them, while the
// indexer continues. A node that was stored before Prune must stay: a new one would lack the blocks that were pruned.
func TestIndexIsCompleteAfterRestoreOfPrunedBlocks(t *testing.T) {
	t.Parallel()
	s, ctx, all, rare := newBroker(t), t.Context(), withRareBlocks(2600), int32(5)
	for i, b := range hashed(len(all), "a") {
		all[i].Hash = b.Hash
	}
	restore := s.appendAndBackUp(writer(t, open(t, s.ClientURL(), nil)), all[:301], 300)
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	if err := w.Prune(ctx, all[249].Cursor); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, all[301:310]...); err != nil {
		t.Fatal(err)
	}
	restore[300]()
	if err := w.Append(ctx, all[299:]...); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), nil)
	expectPages(t, b, all, []chaingql.BlocksQuery{
		{First: 3, Workchain: &rare}, {Last: 3, Before: all[330].Cursor, Workchain: &rare},
	})
	expectByHash(t, b, every(17, all[:300]), true)
}

// TestHashesAreReadAgainAfterRestoreOfPrunedBlocks prunes too many blocks and restores a backup that has them, while a
// host is running that has looked up a block in between, and perhaps one before most blocks were appended. The chain is
// too short for a node of the index.
func TestHashesAreReadAgainAfterRestoreOfPrunedBlocks(t *testing.T) {
	t.Parallel()
	for _, early := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d early lookups", early), func(t *testing.T) {
			t.Parallel()
			s, ctx, all := newBroker(t), t.Context(), hashed(200, "a")
			s.appendNew(t, all[:50])
			host := open(t, s.ClientURL(), (&logbook{}).options())
			expectByHash(t, host, all[:early], true)
			s.appendNew(t, all[50:])
			expectPages(t, host, all, []chaingql.BlocksQuery{{Last: 1}})
			backUp, restore := s.backups()
			backUp()
			w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
			if err := w.Prune(ctx, all[149].Cursor); err != nil {
				t.Fatal(err)
			}
			expectByHash(t, host, all[160:161], true)
			restore()
			expectByHash(t, host, all, true)
		})
	}
}
