package backendtest

import (
	"errors"

	"github.com/chaingql/chaingql"
)

// pruneBelow drops the n oldest blocks and returns them.
func (t *trial) pruneBelow(n int) (gone []chaingql.Block) {
	t.Helper()
	gone, t.stored = t.stored[:n:n], t.stored[n:]
	t.pruneTo(t.stored[0].Cursor)
	return gone
}

func (t *trial) pruneTo(before chaingql.Cursor) {
	t.Helper()
	if err := t.Prune(before); err != nil {
		t.Fatalf("Harness.Prune(%q): %v", before, err)
	}
}

// expectTooOld checks that pages and Follows from a cursor fail with ErrCursorTooOld.
func (t *trial) expectTooOld(c chaingql.Cursor) {
	t.Helper()
	for _, q := range t.filtered(chaingql.BlocksQuery{First: 5, After: c}, chaingql.BlocksQuery{Last: 5, After: c}) {
		t.expectRefusal(q, chaingql.ErrCursorTooOld, "ErrCursorTooOld, as a block after the cursor is gone")
	}
	t.expectFollowTooOld(c)
}

// filtered returns queries as they are, and for the workchain, the shard and both of
// the newest block: sources often read these by indexes of their own.
func (t *trial) filtered(queries ...chaingql.BlocksQuery) (all []chaingql.BlocksQuery) {
	newest := t.stored[len(t.stored)-1]
	for _, q := range queries {
		all = append(all, q)
		q.Shard = &newest.Shard
		all = append(all, q)
		q.Workchain = &newest.Workchain
		all = append(all, q)
		q.Shard = nil
		all = append(all, q)
	}
	return all
}

func (t *trial) expectFollowTooOld(c chaingql.Cursor) {
	t.Helper()
	f := t.follow(c)
	it := f.next("ErrCursorTooOld, as a block after the cursor is gone")
	if !errors.Is(it.err, chaingql.ErrCursorTooOld) {
		t.Fatalf("%s yielded first cursor %q and error %v: it must yield ErrCursorTooOld, as a block after its cursor is gone", f.name, it.block.Cursor, it.err)
	}
	f.stop()
}

func prunedHistoryIsTooOld(t *trial) {
	t.fill(60, 0)
	strangers := t.strangers()
	gone := t.pruneBelow(20)
	for _, b := range []chaingql.Block{gone[0], gone[10], gone[18]} {
		t.expectTooOld(b.Cursor)
	}
	for _, c := range strangers {
		if c < gone[19].Cursor { // between pruned blocks
			t.expectTooOld(c)
		}
	}
	oldest := t.stored[0].Cursor
	for _, q := range []chaingql.BlocksQuery{
		{First: 5, After: oldest}, {Last: 1000, After: oldest}, {First: 5, Before: oldest}, {Last: 5, Before: oldest},
		{First: 5, Before: gone[10].Cursor}, {Last: 5, Before: gone[10].Cursor}, // only After is too old
	} {
		t.expectPage(q)
	}
	t.follow(oldest).expect(t.stored[1:])
}

func newestPrunedIsNotTooOld(t *trial) {
	t.fill(60, 0)
	gone := t.pruneBelow(20)
	newest := gone[len(gone)-1].Cursor // nothing after it is gone
	for _, q := range t.filtered(chaingql.BlocksQuery{First: 5, After: newest}, chaingql.BlocksQuery{Last: 1000, After: newest}) {
		t.expectPage(q)
	}
	t.follow(newest).expect(t.stored)
}

// pageBeginsWithTheOldestKept reads pages from "", which is never too old for Blocks.
func pageBeginsWithTheOldestKept(t *trial) {
	t.fill(60, 0)
	t.pruneBelow(20)
	for _, q := range t.filtered(chaingql.BlocksQuery{First: 5}, chaingql.BlocksQuery{Last: chaingql.MaxPage},
		chaingql.BlocksQuery{First: 5, Before: t.stored[3].Cursor}) {
		t.expectPage(q)
	}
}

// followFromTheBeginningIsTooOld follows from "", which is before every block that
// was pruned.
func followFromTheBeginningIsTooOld(t *trial) {
	t.fill(60, 0)
	t.pruneBelow(1)
	t.expectFollowTooOld("")
	t.pruneBelow(20)
	t.expectFollowTooOld("")
}

// newestIsNeverPruned prunes past the newest block, which must remain: without it, the
// position at which the chain continues is lost.
func newestIsNeverPruned(t *trial) {
	t.fill(60, 40)
	gone, newest := t.stored[:59:59], t.stored[59:]
	t.pruneTo(t.coming[20].Cursor)
	t.stored = newest
	for _, q := range []chaingql.BlocksQuery{{Last: 1}, {First: 5}, {First: 5, After: gone[58].Cursor}} {
		t.expectPage(q)
	}
	t.follow(gone[58].Cursor).expect(newest)
	t.expectTooOld(gone[57].Cursor)
	f := t.follow(newest[0].Cursor)
	f.quiet()
	t.grow(40)
	f.expect(t.stored[1:])
}

// prunedIsRememberedAfterRestart reopens a chain that lost its oldest blocks, and one
// that lost all but the newest.
func prunedIsRememberedAfterRestart(t *trial) {
	t.fill(60, 0)
	for _, n := range []int{20, len(t.stored) - 21} {
		gone := t.pruneBelow(n)
		t.reopen()
		newest := gone[n-1].Cursor // nothing after it is gone
		t.expectTooOld(gone[n-2].Cursor)
		t.expectFollowTooOld("")
		for _, q := range []chaingql.BlocksQuery{{First: 5}, {Last: chaingql.MaxPage}, {First: 5, After: newest}} {
			t.expectPage(q)
		}
		t.follow(newest).expect(t.stored)
		f := t.follow(t.stored[len(t.stored)-1].Cursor) // as the Handler does
		f.quiet()
	}
}

// overtakenFollowDoesNotSkip prunes blocks that a Follow has yet to yield: one that
// began when the chain was empty, and one that has read some.
func overtakenFollowDoesNotSkip(t *trial) {
	t.fill(0, 100)
	if t.Append != nil {
		f := t.follow("")
		f.quiet()
		t.grow(100)
		all := t.stored
		t.pruneBelow(40)
		f.expectOrTooOld(all)
		f.stop()
	}
	all := t.stored
	f := t.follow(all[0].Cursor)
	f.expect(all[1:10])
	t.pruneBelow(len(all) * 3 / 5)
	f.expectOrTooOld(all[10:])
}

// followThatIsAheadGoesOn prunes blocks that a Follow has yielded, among them the one at its first cursor.
func followThatIsAheadGoesOn(t *trial) {
	t.fill(60, 20)
	f := t.follow(t.stored[0].Cursor)
	f.expect(t.stored[1:])
	t.pruneBelow(40)
	f.quiet()
	t.grow(20)
	f.expect(t.stored[20:])
}

// expectOrTooOld reads these blocks, or some of them and then ErrCursorTooOld.
func (f *reading) expectOrTooOld(want []chaingql.Block) {
	f.t.Helper()
	for _, due := range want {
		it := f.next("a block or ErrCursorTooOld")
		if it.err != nil {
			if !errors.Is(it.err, chaingql.ErrCursorTooOld) {
				f.t.Fatalf("%s ended after cursor %q, when the block after it was pruned, with %v: it must be ErrCursorTooOld", f.name, f.last, it.err)
			}
			return
		}
		f.take(it.block, due)
	}
}
