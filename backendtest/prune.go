package backendtest

import (
	"errors"
	"time"

	"github.com/chaingql/chaingql"
)

// pruneBelow prunes the n oldest blocks and returns them.
func (t *trial) pruneBelow(n int) (gone []chaingql.Block) {
	gone, t.stored = t.stored[:n:n], t.stored[n:]
	t.pruneTo(t.stored[0].Cursor)
	return gone
}

// pruneTo calls Harness.Prune.
func (t *trial) pruneTo(before chaingql.Cursor) {
	if err := t.Prune(before); err != nil {
		t.Fatalf("Harness.Prune(%q) failed: %v", before, err)
	}
}

// expectTooOld checks that Blocks and Follow return ErrCursorTooOld for the cursor c.
func (t *trial) expectTooOld(c chaingql.Cursor) {
	for _, q := range t.pagesAfter(c) {
		t.expectError(q, chaingql.ErrCursorTooOld, tooOldBecause)
	}
	t.expectFollowError(c, chaingql.ErrCursorTooOld, tooOldBecause)
}

// pagesAfter returns queries for blocks after the cursor c.
func (t *trial) pagesAfter(c chaingql.Cursor) []chaingql.BlocksQuery {
	newest := t.stored[len(t.stored)-1].Cursor
	return t.filtered([]chaingql.BlocksQuery{
		{First: 5, After: c}, {Last: 5, After: c},
		{First: 5, After: c, Before: newest}, {Last: 5, After: c, Before: newest},
	}...)
}

const tooOldBecause = "ErrCursorTooOld because a block after the cursor was pruned"

// filtered returns each query without a filter, and with the shard, the workchain, and
// both of the newest block as filters. A source often uses a different index for each of
// these, so one of them can be wrong while the others are correct.
func (t *trial) filtered(queries ...chaingql.BlocksQuery) []chaingql.BlocksQuery {
	return filteredBy(t.stored[len(t.stored)-1], queries...)
}

// filteredBy is like filtered, with the shard and the workchain of b.
func filteredBy(b chaingql.Block, queries ...chaingql.BlocksQuery) (all []chaingql.BlocksQuery) {
	for _, q := range queries {
		all = append(all, q)
		q.Shard = &b.Shard
		all = append(all, q)
		q.Workchain = &b.Workchain
		all = append(all, q)
		q.Shard = nil
		all = append(all, q)
	}
	return all
}

// expectFollowError checks that Follow from the cursor c first yields the error want. due describes that error and its
// reason in messages.
func (t *trial) expectFollowError(c chaingql.Cursor, want error, due string) {
	f := t.follow(c)
	if it := f.next(due); !errors.Is(it.err, want) {
		t.Fatalf("%s first yielded cursor %q and error %v: it must yield %s", f.name, it.block.Cursor, it.err, due)
	}
	f.stop()
}

func cursorBeforePrunedBlockIsTooOld(t *trial) {
	t.fill(60, 0)
	unusedCursors, tooOld := t.unusedCursors(), []chaingql.Cursor{}
	for _, i := range []int{0, 10, 18} {
		tooOld = append(tooOld, t.stored[i].Cursor)
		t.expectPages(t.pagesAfter(t.stored[i].Cursor)...) // a Backend must not remember these pages
	}
	gone := t.pruneBelow(20)
	for _, c := range tooOld {
		t.expectTooOld(c)
	}
	for i := range t.rounds(len(unusedCursors), 4) {
		if c := unusedCursors[i]; c < gone[19].Cursor { // between pruned blocks
			t.expectTooOld(c)
		}
	}
	oldest := t.stored[0].Cursor
	t.expectPages([]chaingql.BlocksQuery{
		{First: 5, After: oldest}, {Last: 1000, After: oldest}, {First: 5, Before: oldest}, {Last: 5, Before: oldest},
		{First: 5, Before: gone[10].Cursor}, {Last: 5, Before: gone[10].Cursor}, // only After is too old
	}...)
	t.follow(oldest).expect(t.stored[1:])
}

func newestPrunedIsNotTooOld(t *trial) {
	t.fill(60, 0)
	gone := t.pruneBelow(20)
	newest := gone[len(gone)-1].Cursor // not too old, because all blocks after it are stored
	t.expectPages(t.filtered(chaingql.BlocksQuery{First: 5, After: newest},
		chaingql.BlocksQuery{Last: 1000, After: newest})...)
	t.follow(newest).expect(t.stored)
}

// pageStartsWithOldestStored reads pages with an empty After, which is never too old for
// Blocks.
func pageStartsWithOldestStored(t *trial) {
	t.fill(60, 0)
	t.pruneBelow(20)
	t.expectPages(t.filtered(chaingql.BlocksQuery{First: 5}, chaingql.BlocksQuery{Last: chaingql.MaxPage},
		chaingql.BlocksQuery{First: 5, Before: t.stored[3].Cursor})...)
}

// followFromStartIsTooOld calls Follow with the cursor "", which is before every pruned
// block.
func followFromStartIsTooOld(t *trial) {
	t.fill(60, 0)
	t.pruneBelow(1)
	t.expectFollowError("", chaingql.ErrCursorTooOld, tooOldBecause)
	t.pruneBelow(20)
	t.expectFollowError("", chaingql.ErrCursorTooOld, tooOldBecause)
}

// newestIsNeverPruned calls Prune with a cursor after the newest block. The newest block
// must remain, because its cursor is the position from which the Handler continues.
func newestIsNeverPruned(t *trial) {
	t.fill(60, 40)
	gone, newest := t.stored[:59:59], t.stored[59:]
	t.pruneTo(t.coming[20].Cursor)
	t.stored = newest
	t.expectPages([]chaingql.BlocksQuery{{Last: 1}, {First: 5}, {First: 5, After: gone[58].Cursor}}...)
	t.follow(gone[58].Cursor).expect(newest)
	t.expectTooOld(gone[57].Cursor)
	f := t.follow(newest[0].Cursor)
	f.quiet()
	t.grow(40)
	f.expect(t.stored[1:])
}

// prunedPositionSurvivesRestart reopens the source twice: after the oldest blocks are
// pruned, and after all blocks except the newest are pruned.
func prunedPositionSurvivesRestart(t *trial) {
	t.fill(60, 0)
	for _, n := range []int{20, len(t.stored) - 21} {
		gone := t.pruneBelow(n)
		t.reopen()
		newest := gone[n-1].Cursor // not too old, because all blocks after it are stored
		t.expectTooOld(gone[n-2].Cursor)
		t.expectFollowError("", chaingql.ErrCursorTooOld, tooOldBecause)
		t.expectPages([]chaingql.BlocksQuery{{First: 5}, {Last: chaingql.MaxPage}, {First: 5, After: newest}}...)
		t.follow(newest).expect(t.stored)
		f := t.follow(t.stored[len(t.stored)-1].Cursor) // like the Handler
		f.quiet()
	}
}

// overtakenFollowDoesNotSkip prunes blocks that a Follow has not yielded yet. It checks a
// Follow that started when the chain was empty, one that has yielded some blocks, and one
// whose caller is still busy with a block when later ones are appended and pruned.
func overtakenFollowDoesNotSkip(t *trial) {
	t.fill(0, 200)
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
	f.stop()
	if t.Append != nil {
		f := t.follow(t.stored[len(t.stored)-1].Cursor)
		f.quiet()
		known := len(t.stored)
		t.grow(1)
		time.Sleep(quietTime) // Follow now waits until its caller takes the block
		t.grow(len(t.coming))
		due := t.stored[known:]
		t.pruneBelow(known + len(due)/2)
		f.expectOrTooOld(due)
	}
}

// followIgnoresPruningBehindIt prunes blocks that a Follow has yielded, and the block whose
// cursor was passed to Follow.
func followIgnoresPruningBehindIt(t *trial) {
	t.fill(60, 20)
	f := t.follow(t.stored[0].Cursor)
	f.expect(t.stored[1:])
	t.pruneBelow(40)
	f.quiet()
	t.grow(20)
	f.expect(t.stored[20:])
}

// expectOrTooOld checks that Follow yields all blocks in want, or some of them and then
// ErrCursorTooOld.
func (f *reading) expectOrTooOld(want []chaingql.Block) {
	for _, due := range want {
		it := f.next("a block or ErrCursorTooOld")
		if it.err != nil {
			if !errors.Is(it.err, chaingql.ErrCursorTooOld) {
				f.t.Fatalf("%s ended after cursor %q with error %v: it must yield %s",
					f.name, f.last, it.err, tooOldBecause)
			}
			return
		}
		f.take(it.block, due)
	}
}
