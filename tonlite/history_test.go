package tonlite_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// greatest is the cursor of the last possible masterchain block.
const greatest chaingql.Cursor = "7ffffffffm"

// TestReadsReachOldestBlockOfServer deletes more and more old blocks from a server. A cursor
// before the oldest block must cause ErrCursorTooOld, and all later blocks must be readable.
func TestReadsReachOldestBlockOfServer(t *testing.T) {
	chain := generate(40)
	all := chain.Blocks()
	s := start(t, chain, nil)
	warm := open(t, s.Config(), nil) // keeps its cache during all deletions
	for _, oldest := range []uint32{2, 3, 20, 38, 39, 40} {
		s.Forget(oldest)
		b := open(t, s.Config(), nil)
		// Which shard blocks are new in the oldest block is unknown without its predecessor.
		gone := chaingql.ChainOrder(-1, 1<<63, oldest, 0)
		kept := chaingql.PageOf(all, chaingql.BlocksQuery{After: gone, First: 1000})
		for _, q := range []chaingql.BlocksQuery{
			{First: 1000}, {Last: 1000}, {First: 7}, {First: 1000, After: gone}, {Last: 1000, After: gone}, {Last: 3},
			{}, {After: gone}, {First: 7, After: greatest}, {Last: 7, After: greatest},
		} {
			page, err := b.Blocks(t.Context(), q)
			if err != nil {
				t.Fatalf("with blocks from %d on: %+v: got error %v", oldest, q, err)
			}
			same(t, page, chaingql.PageOf(kept, q))
		}
		for _, before := range []chaingql.Cursor{chaingql.ChainOrder(-1, 1<<63, oldest-1, 0), all[0].Cursor} {
			for _, q := range []chaingql.BlocksQuery{
				{First: 7, After: before}, {Last: 7, After: before}, {Last: 1000, After: before},
			} {
				if page, err := b.Blocks(t.Context(), q); !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("with blocks from %d on: %+v: got %d blocks and error %v, want ErrCursorTooOld",
						oldest, q, len(page), err)
				}
			}
			for block, err := range b.Follow(t.Context(), before) {
				if !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("with blocks from %d on: Follow after %q: got %q and error %v, want ErrCursorTooOld",
						oldest, before, block.Cursor, err)
				}
				break
			}
		}
		for block, err := range b.Follow(t.Context(), "") {
			if !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("with blocks from %d on: Follow from the start: got %q and error %v, want ErrCursorTooOld",
					oldest, block.Cursor, err)
			}
			break
		}
		if page, err := warm.Blocks(t.Context(), chaingql.BlocksQuery{First: 5}); err != nil {
			t.Errorf("with blocks from %d on, and a warm cache: got error %v", oldest, err)
		} else {
			same(t, page, chaingql.PageOf(kept, chaingql.BlocksQuery{First: 5}))
		}
	}
}

// TestFirstPageHasNoGapWhileBlocksAreDeleted reads first pages while the server deletes old
// blocks. A page without a cursor must never cause ErrCursorTooOld or have a gap.
func TestFirstPageHasNoGapWhileBlocksAreDeleted(t *testing.T) {
	chain := generate(1001)
	all := chain.Blocks()
	s := start(t, chain, nil)
	b := open(t, s.Config(), &tonlite.Options{Cache: 1})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for below := uint32(2); below < 280; below += 2 {
			time.Sleep(2 * time.Millisecond)
			s.Forget(below)
		}
	}()
	for reading := true; reading; {
		select {
		case <-over:
			reading = false
		default:
		}
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 30})
		if err != nil || len(page) == 0 {
			t.Fatalf("first page: got %d blocks and error %v", len(page), err)
		}
		same(t, page, chaingql.PageOf(all, chaingql.BlocksQuery{First: 30, After: before(all, page[0].Cursor)}))
	}
}

// before returns the cursor of the block before c, or "" if there is none.
func before(all []chaingql.Block, c chaingql.Cursor) chaingql.Cursor {
	page := chaingql.PageOf(all, chaingql.BlocksQuery{Last: 1, Before: c})
	if len(page) == 0 {
		return ""
	}
	return page[0].Cursor
}

// TestMissingNewBlockIsNotReportedAsTooOld queries a server that has lost its newest blocks.
// Reading them must return an error, but not ErrCursorTooOld.
func TestMissingNewBlockIsNotReportedAsTooOld(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(40)
		all := chain.Blocks()
		s := m.start(chain)
		b := m.open(s.Config(), nil)
		s.Advance(20)
		for _, q := range []chaingql.BlocksQuery{
			{Last: 5}, {First: 900, After: all[50].Cursor}, {Last: 5, After: chaingql.ChainOrder(-1, 1<<63, 35, 0)},
		} {
			if page, err := b.Blocks(t.Context(), q); err == nil || errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("%+v: got %d blocks and error %v, want an error other than ErrCursorTooOld", q, len(page), err)
			}
		}
		for _, err := range b.Follow(t.Context(), chaingql.ChainOrder(-1, 1<<63, 30, 0)) {
			if err == nil || errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("Follow: got error %v, want an error other than ErrCursorTooOld", err)
			}
			break
		}
		if _, err := b.Balance(t.Context(), chaingql.Address{}); err == nil || errors.Is(err, chaingql.ErrNotFound) {
			t.Errorf("Balance: got error %v, want an error other than ErrNotFound", err)
		}
		s.Advance(40)
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 5})
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, all[len(all)-5:])
	})
}

// TestMissingBlockAfterOldestIsNotReportedAsTooOld reads the whole history of a server that has
// only the blocks from 24 on and then loses its newest blocks.
func TestMissingBlockAfterOldestIsNotReportedAsTooOld(t *testing.T) {
	s := start(t, generate(40), nil)
	s.Forget(24) // the first readable step is that of block 25
	b := open(t, s.Config(), nil)
	if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1}); err != nil { // finds the oldest block
		t.Fatal(err)
	}
	s.Advance(30)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	oldest, before := chaingql.ChainOrder(-1, 1<<63, 24, 0), chaingql.ChainOrder(-1, 1<<63, 32, 0)
	for _, q := range []chaingql.BlocksQuery{
		{First: 900}, {First: 900, After: oldest},
		{Last: 900, Before: before}, {Last: 900, Before: before, After: oldest},
	} {
		if page, err := b.Blocks(ctx, q); err == nil || errors.Is(err, chaingql.ErrCursorTooOld) || ctx.Err() != nil {
			t.Errorf("%+v: got %d blocks and error %v, want an error other than ErrCursorTooOld", q, len(page), err)
		}
	}
}

// TestRepeatedReadsUseTheCache counts the queries that pages and a Follow need.
func TestRepeatedReadsUseTheCache(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	q := chaingql.BlocksQuery{First: 1000}
	if _, err := b.Blocks(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	first := s.Asked()
	shards := 0
	for _, block := range chain.Blocks() {
		if block.Workchain == 0 {
			shards++
		}
	}
	if first["getBlock"] != 40 || first["getBlockHeader"] != shards {
		t.Errorf("a page of %d masterchain blocks and %d shard blocks needed the queries %v", 40, shards, first)
	}
	if _, err := b.Blocks(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range b.Follow(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == len(chain.Blocks()) {
			break
		}
	}
	again := s.Asked()
	if again["getBlock"] != 0 || again["getBlockHeader"] != 0 {
		t.Errorf("reading the same blocks again needed the queries %v, want none for blocks", again)
	}
	masters := int32(-1)
	cold := open(t, s.Config(), nil)
	if _, err := cold.Blocks(t.Context(), chaingql.BlocksQuery{Last: 10, Workchain: &masters}); err != nil {
		t.Fatal(err)
	}
	if asked := s.Asked(); asked["getBlockHeader"] != 0 || asked["getBlock"] > 20 {
		t.Errorf("a page of the masterchain needed the queries %v, want none for shard blocks", asked)
	}
}

// TestOnlyOneServerIsQueriedForTheNewestBlock reads balances from two servers that have the same
// newest block.
func TestOnlyOneServerIsQueriedForTheNewestBlock(t *testing.T) {
	chain := generate(10)
	one, other := start(t, chain, nil), start(t, chain, nil)
	b := open(t, one.Config(other), nil)
	one.Asked()
	other.Asked() // resets the count after Open
	for range 5 {
		if _, err := b.Balance(t.Context(), chaingql.Address{Workchain: -1}); !errors.Is(err, chaingql.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if n := one.Asked()["getMasterchainInfo"] + other.Asked()["getMasterchainInfo"]; n != 5 {
		t.Errorf("got %d queries for the newest block, want 5", n)
	}
}

// TestImpossibleFilterNeedsNoSearch filters by a workchain and by a shard that the network does
// not have.
func TestImpossibleFilterNeedsNoSearch(t *testing.T) {
	s := start(t, generate(40), nil)
	b := open(t, s.Config(), nil)
	s.Asked() // resets the count after Open
	masters, foreign, half := int32(-1), int32(5), uint64(0x4<<60)
	for _, q := range []chaingql.BlocksQuery{
		{Workchain: &foreign, Last: 3}, {Workchain: &foreign, First: 3}, {Workchain: &masters, Shard: &half, Last: 3},
	} {
		if page, err := b.Blocks(t.Context(), q); err != nil || len(page) != 0 {
			t.Errorf("%+v: got %d blocks and error %v, want an empty page", q, len(page), err)
		}
	}
	if asked := s.Asked(); asked["getBlock"] > 3 || asked["getBlockHeader"] > 6 {
		t.Errorf("got queries %v, want only those of the newest and the oldest two blocks, with shards", asked)
	}
}

// TestHistoryOfStoppedServerIsNotReportedAsTooOld stops the only server that has the old blocks.
// A second server, which has only the newest blocks, still runs.
func TestHistoryOfStoppedServerIsNotReportedAsTooOld(t *testing.T) {
	chain := generate(40)
	all, short := start(t, chain, nil), start(t, chain, nil)
	short.Forget(30)
	b := open(t, all.Config(short), nil)
	old := chaingql.BlocksQuery{First: 3, After: chain.Blocks()[20].Cursor}
	page, err := b.Blocks(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	same(t, page, chaingql.PageOf(chain.Blocks(), old))
	all.Stop()
	old.After = chain.Blocks()[60].Cursor
	if page, err := b.Blocks(t.Context(), old); err == nil || errors.Is(err, chaingql.ErrCursorTooOld) {
		t.Errorf("got %d old blocks and error %v, want an error other than ErrCursorTooOld", len(page), err)
	}
	if page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 3}); err != nil || len(page) != 3 {
		t.Errorf("got %d blocks from the second server and error %v, want 3 blocks", len(page), err)
	}
}

// TestOldBlocksAreReadAfterTheirServerHasRestarted reads the first page while only a server with
// the newest blocks runs. It reads the page again after a server with all blocks has restarted.
func TestOldBlocksAreReadAfterTheirServerHasRestarted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(40)
		all, short := m.start(chain), m.start(chain)
		short.Forget(30)
		all.Stop()
		b := m.open(short.Config(all), &quick)
		first := chaingql.BlocksQuery{First: 3}
		page, err := b.Blocks(t.Context(), first)
		if err != nil || len(page) != 3 || page[0] == chain.Blocks()[0] {
			t.Fatalf("first page: got %v and error %v", page, err)
		}
		if err := all.Restart(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until the backoff ends
			page, err = b.Blocks(t.Context(), first)
			if err == nil && page[0] == chain.Blocks()[0] || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		same(t, page, chaingql.PageOf(chain.Blocks(), first))
	})
}

// TestClaimedBlocksDoNotHideOldestBlock uses two servers that have the blocks from 20 on. One of them
// claims to have all older ones, too, with invented ids.
func TestClaimedBlocksDoNotHideOldestBlock(t *testing.T) {
	chain := generate(40)
	for _, liarFirst := range []bool{true, false} {
		liar, honest := start(t, chain, nil), start(t, chain, nil)
		liar.Forget(20)
		honest.Forget(20)
		var log testkit.Buffer
		b := open(t, liar.Config(honest), &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b.Prefer(1)
		if liarFirst {
			b.Prefer(0)
		}
		liar.SetLie(liteservertest.FalseClaims)
		for range 3 {
			oldest := chaingql.ChainOrder(-1, 1<<63, 20, 0)
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3})
			if err != nil {
				t.Fatalf("first page: got error %v", err)
			}
			same(t, page, chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{First: 3, After: oldest}))
			gone := chain.Blocks()[3].Cursor
			_, err = b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3, After: gone})
			if !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("page after an old cursor: got error %v, want ErrCursorTooOld", err)
			}
			for _, err := range b.Follow(t.Context(), gone) {
				if !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("Follow after an old cursor: got error %v, want ErrCursorTooOld", err)
				}
				break
			}
			_, err = b.BlockBySeqNo(t.Context(), -1, 1<<63, 5)
			if !errors.Is(err, chaingql.ErrBlockNotFound) {
				t.Errorf("deleted block by number: got error %v, want ErrBlockNotFound", err)
			}
		}
		if text := log.String(); !strings.Contains(text, liar.Addr()) || strings.Contains(text, honest.Addr()) {
			t.Errorf("with the liar preferred: %v: got log %q, want a line about the liar only", liarFirst, text)
		}
	}
}
