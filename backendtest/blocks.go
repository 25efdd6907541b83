package backendtest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
)

func emptyChainHasNoBlocks(t *trial) {
	t.fill(0, 40)
	workchain, shard := int32(-1), uint64(1)<<63
	queries := []chaingql.BlocksQuery{
		{First: 1}, {Last: 1}, {First: chaingql.MaxPage}, {Last: chaingql.MaxPage},
		{First: 1, Workchain: &workchain, Shard: &shard},
	}
	for _, q := range queries {
		if page := t.page(q); len(page) > 0 {
			t.Fatalf("%s returned %d blocks of an empty chain; want none", describe(q), len(page))
		}
	}
	t.grow(40)
	t.expectPages(queries...) // a Backend must not remember empty pages
}

// extremes returns blocks whose fields have the lowest or highest values of their types,
// or values that overflow 8, 16, 24 or 31 bits.
func (t *trial) extremes() []chaingql.Block {
	const newest = math.MaxUint32
	at := func(workchain int32, shard uint64, seqNo, unix uint32, hash byte) chaingql.Block {
		b := chaingql.Block{Workchain: workchain, Shard: shard, SeqNo: seqNo, Time: time.Unix(int64(unix), 0).UTC()}
		for i := range b.Hash {
			b.Hash[i] = hash
		}
		return b
	}
	blocks := []chaingql.Block{
		at(math.MaxInt32, wholeShard, 1, 1<<31-1, 1),
		at(math.MinInt32, wholeShard, 1<<31, 1<<31, 2),
		at(127, wholeShard, 1<<24, 1<<31+1, 3),
		at(128, 1, newest, newest-1, 4),
		at(-129, math.MaxUint64, newest-1, newest-1, 5),
		at(256, 1<<62, 1<<16, newest-1, 6),
		at(257, wholeShard, 0, newest-1, 8),
		at(32768, 3<<62, 1<<31+1, newest-1, 7),
		at(0, 1<<31|1<<63, newest, newest-1, 255),
		at(masterchain, wholeShard, newest, newest, 254),
	}
	for i := range blocks {
		b := &blocks[i]
		if t.Cursor != nil {
			b.Cursor = t.Cursor(uint64(i + 1))
		} else {
			b.Cursor = chaingql.ChainOrder(b.Workchain, b.Shard, b.SeqNo, newest)
		}
	}
	slices.SortFunc(blocks, ascending)
	return blocks
}

func blockFieldsArePreserved(t *trial) {
	t.coming = t.extremes()
	t.grow(len(t.coming))
	all := t.stored
	t.expectPages(chaingql.BlocksQuery{First: 100}, chaingql.BlocksQuery{Last: 100})
	for i := range all {
		for _, q := range []chaingql.BlocksQuery{
			{Workchain: &all[i].Workchain},
			{Shard: &all[i].Shard},
			{Workchain: &all[i].Workchain, Shard: &all[i].Shard},
		} {
			q.First = 100
			t.expectPages(q)
			q.First, q.Last = 0, 100
			t.expectPages(q)
		}
	}
	t.expectLookups(all, true)
	t.follow("").expect(all)
}

// pageMatchesQuery tries queries for which other Backends returned wrong pages. It starts
// with simple queries, so that the failure message shows the cause.
func pageMatchesQuery(t *trial) {
	t.fill(400, 0)
	n := len(t.stored)
	low, mid, high := t.stored[n/4].Cursor, t.stored[n/2].Cursor, t.stored[n*3/4].Cursor
	for _, q := range []chaingql.BlocksQuery{
		{First: 1}, {Last: 1}, {First: 7}, {Last: 7}, {First: 101}, {Last: 101},
		{First: 7, After: mid}, {Last: 7, After: mid},
		{Last: 7, After: t.stored[n-1].Cursor}, {First: 7, After: t.stored[n-1].Cursor},
		{First: 7, Before: mid}, {Last: 7, Before: mid},
		{First: 7, Before: t.stored[0].Cursor}, {Last: 7, Before: t.stored[0].Cursor},
		{First: 7, After: low, Before: high}, {Last: 7, After: low, Before: high},
		{First: 7, After: high, Before: low}, {Last: 7, After: high, Before: low}, {First: 7, After: mid, Before: mid},
	} {
		t.expectPages(q)
		for _, b := range []chaingql.Block{t.stored[0], t.stored[n/2], t.stored[n-1]} {
			q := q
			q.Workchain = &b.Workchain
			t.expectPages(q)
			q.Shard = &b.Shard
			t.expectPages(q)
			q.Workchain = nil
			t.expectPages(q)
		}
	}
	none := int32(7)
	t.expectPages(chaingql.BlocksQuery{First: 7, Workchain: &none}, chaingql.BlocksQuery{Last: 7, Workchain: &none})
}

func randomPagesAreCorrect(t *trial) {
	t.fill(700, 100)
	rng := rand.New(rand.NewPCG(1, 2))
	cursors := t.unusedCursors()
	if cursors == nil {
		for _, b := range t.stored {
			cursors = append(cursors, b.Cursor)
		}
	}
	for i := range t.rounds(400, 40) {
		q := randomQuery(rng, t.stored, cursors)
		if fault := pageFault(t.stored, q, t.page(q)); fault != "" {
			t.Fatalf("random page %d: %s %s", i+1, describe(q), fault)
		}
	}
}

// randomQuery returns a query with random filters. After and Before are empty, a cursor
// of a stored block, or one of cursors.
func randomQuery(rng *rand.Rand, stored []chaingql.Block, cursors []chaingql.Cursor) (q chaingql.BlocksQuery) {
	n := 1 + rng.IntN(12)
	if rng.IntN(4) == 0 {
		n = 1 + rng.IntN(chaingql.MaxPage)
	}
	if rng.IntN(2) == 0 {
		q.First = n
	} else {
		q.Last = n
	}
	if rng.IntN(2) == 0 {
		workchain := int32(7) // has no blocks
		if rng.IntN(8) > 0 {
			workchain = pick(rng, stored).Workchain
		}
		q.Workchain = &workchain
	}
	if rng.IntN(3) == 0 {
		shard := pick(rng, stored).Shard
		if rng.IntN(8) == 0 {
			shard = 1 // deeper than any shard of the chain
		}
		q.Shard = &shard
	}
	cursor := func() chaingql.Cursor {
		switch rng.IntN(5) {
		case 0, 1:
			return pick(rng, stored).Cursor
		case 2:
			return pick(rng, cursors)
		}
		return ""
	}
	q.After, q.Before = cursor(), cursor()
	return q
}

func pagesGoUpToMaxPage(t *trial) {
	t.fill(chaingql.MaxPage+200, 0)
	for _, n := range []int{chaingql.MaxPage - 1, chaingql.MaxPage} {
		t.expectPages(t.filtered(chaingql.BlocksQuery{First: n}, chaingql.BlocksQuery{Last: n},
			chaingql.BlocksQuery{First: n, After: t.stored[len(t.stored)/8].Cursor})...)
	}
}

func callerOwnsPage(t *trial) {
	t.fill(100, 0)
	for _, q := range t.filtered(chaingql.BlocksQuery{First: 50}, chaingql.BlocksQuery{Last: 50},
		chaingql.BlocksQuery{First: 50, After: t.stored[0].Cursor}) {
		page := t.page(q)
		slices.Reverse(page)
		for i := range page {
			page[i].Cursor, page[i].SeqNo = "0", 0
		}
		page = append(page, page...)
		clear(page)
		if fault := pageFault(t.stored, q, t.page(q)); fault != "" {
			t.Fatalf("%s %s, after the test modified the page of an earlier call: the caller must own each page",
				describe(q), fault)
		}
	}
}

func foreignCursorIsBad(t *trial) {
	t.fill(10, 0)
	const due = "ErrBadCursor because the cursor does not belong to this chain"
	for _, q := range []chaingql.BlocksQuery{
		{First: 1, After: t.Foreign}, {Last: 1, After: t.Foreign},
		{First: 1, Before: t.Foreign}, {Last: 1, Before: t.Foreign},
	} {
		t.expectError(q, chaingql.ErrBadCursor, due)
	}
	t.expectFollowError(t.Foreign, chaingql.ErrBadCursor, due)
}

// expectError checks that Blocks returns the error want. due describes that error and
// its reason in messages.
func (t *trial) expectError(q chaingql.BlocksQuery, want error, due string) {
	if page, err := t.readPage(q, mayDoEither); !errors.Is(err, want) {
		t.Fatalf("%s returned %d blocks and error %v: the error must be %s", describe(q), len(page), err, due)
	}
}

// blocksSurviveRestart reads the stored blocks from a source that was reopened.
func blocksSurviveRestart(t *trial) {
	t.fill(60, 20)
	t.reopen()
	t.expectPages(t.filtered(chaingql.BlocksQuery{First: chaingql.MaxPage}, chaingql.BlocksQuery{Last: 1},
		chaingql.BlocksQuery{Last: 5, Before: t.stored[len(t.stored)-5].Cursor})...)
	if t.Append == nil {
		return
	}
	f := t.follow(t.stored[58].Cursor)
	f.expect(t.stored[59:])
	t.grow(20)
	f.expect(t.stored[60:])
	t.expectPages(chaingql.BlocksQuery{Last: 40})
}
