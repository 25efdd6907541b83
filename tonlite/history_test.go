package tonlite_test

import (
	"errors"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestHistoryIsAsDeepAsTheServerKeeps forgets block by block: what is gone is
// ErrCursorTooOld, what is there is told to the last block.
func TestHistoryIsAsDeepAsTheServerKeeps(t *testing.T) {
	chain := liteservertest.Made(40)
	all := chain.Blocks()
	s := start(t, chain, nil)
	warm := open(t, s.Config(), nil) // goes on through all that is forgotten
	for _, oldest := range []uint32{2, 3, 20, 38, 39, 40} {
		s.Forget(oldest)
		b := open(t, s.Config(), nil)
		// The shard blocks of the oldest cannot be told from those before it.
		gone := chaingql.ChainOrder(-1, 1<<63, oldest, 0)
		kept := chaingql.PageOf(all, chaingql.BlocksQuery{After: gone, First: 1000})
		for _, q := range []chaingql.BlocksQuery{
			{First: 1000}, {Last: 1000}, {First: 7}, {First: 1000, After: gone}, {Last: 1000, After: gone}, {Last: 3},
		} {
			page, err := b.Blocks(t.Context(), q)
			if err != nil {
				t.Fatalf("with blocks from %d on: %+v: %v", oldest, q, err)
			}
			same(t, page, chaingql.PageOf(kept, q))
		}
		for _, before := range []chaingql.Cursor{chaingql.ChainOrder(-1, 1<<63, oldest-1, 0), all[0].Cursor} {
			for _, q := range []chaingql.BlocksQuery{{First: 7, After: before}, {Last: 7, After: before}, {Last: 1000, After: before}} {
				if page, err := b.Blocks(t.Context(), q); !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("with blocks from %d on: %+v: %d blocks, %v", oldest, q, len(page), err)
				}
			}
			for block, err := range b.Follow(t.Context(), before) {
				if !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("with blocks from %d on: Follow after %q yields %q, %v", oldest, before, block.Cursor, err)
				}
				break
			}
		}
		for block, err := range b.Follow(t.Context(), "") {
			if !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("with blocks from %d on: Follow from the beginning yields %q, %v", oldest, block.Cursor, err)
			}
			break
		}
		if page, err := warm.Blocks(t.Context(), chaingql.BlocksQuery{First: 5}); err != nil {
			t.Errorf("with blocks from %d on, when there were more: %v", oldest, err)
		} else {
			same(t, page, chaingql.PageOf(kept, chaingql.BlocksQuery{First: 5}))
		}
	}
}

// TestFirstPageBeginsWhereHistoryDoes has the server forget while it is read: who
// named no cursor is never told that one is too old, nor given a page with a hole.
func TestFirstPageBeginsWhereHistoryDoes(t *testing.T) {
	chain := liteservertest.Made(300)
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
			t.Fatalf("%d blocks, %v", len(page), err)
		}
		same(t, page, chaingql.PageOf(all, chaingql.BlocksQuery{First: 30, After: before(all, page[0].Cursor)}))
	}
}

// before is the cursor of the block before another.
func before(all []chaingql.Block, c chaingql.Cursor) chaingql.Cursor {
	page := chaingql.PageOf(all, chaingql.BlocksQuery{Last: 1, Before: c})
	if len(page) == 0 {
		return ""
	}
	return page[0].Cursor
}

// TestBlockThatIsNotThereYetIsNotTooOld asks a server that fell behind what it
// had already told.
func TestBlockThatIsNotThereYetIsNotTooOld(t *testing.T) {
	chain := liteservertest.Made(40)
	all := chain.Blocks()
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	s.Advance(20)
	for _, q := range []chaingql.BlocksQuery{{Last: 5}, {First: 900, After: all[50].Cursor}, {Last: 5, After: chaingql.ChainOrder(-1, 1<<63, 35, 0)}} {
		if page, err := b.Blocks(t.Context(), q); err == nil || errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("%+v: %d blocks, %v", q, len(page), err)
		}
	}
	for _, err := range b.Follow(t.Context(), chaingql.ChainOrder(-1, 1<<63, 30, 0)) {
		if err == nil || errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("Follow yields %v", err)
		}
		break
	}
	if _, err := b.Balance(t.Context(), chaingql.Address{}); err == nil || errors.Is(err, chaingql.ErrNotFound) {
		t.Errorf("Balance returns %v", err)
	}
	s.Advance(40)
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 5})
	if err != nil {
		t.Fatal(err)
	}
	same(t, page, all[len(all)-5:])
}

// TestReadingTwiceAsksOnce counts the queries of pages and Follows.
func TestReadingTwiceAsksOnce(t *testing.T) {
	chain := liteservertest.Made(40)
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
		t.Errorf("a page of %d blocks of the masterchain and %d others took %v", 40, shards, first)
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
		t.Errorf("reading it again took %v", again)
	}
	masters := int32(-1)
	cold := open(t, s.Config(), nil)
	if _, err := cold.Blocks(t.Context(), chaingql.BlocksQuery{Last: 10, Workchain: &masters}); err != nil {
		t.Fatal(err)
	}
	if asked := s.Asked(); asked["getBlockHeader"] != 0 || asked["getBlock"] > 20 {
		t.Errorf("a page of the masterchain alone took %v", asked)
	}
}

// TestFilterThatNothingCanMatchIsNoSearch asks for what the network does not have:
// nobody's history is searched for it.
func TestFilterThatNothingCanMatchIsNoSearch(t *testing.T) {
	s := start(t, liteservertest.Made(40), nil)
	b := open(t, s.Config(), nil)
	s.Asked() // what Open did
	masters, foreign, half := int32(-1), int32(5), uint64(0x4<<60)
	for _, q := range []chaingql.BlocksQuery{{Workchain: &foreign, Last: 3}, {Workchain: &foreign, First: 3}, {Workchain: &masters, Shard: &half, Last: 3}} {
		if page, err := b.Blocks(t.Context(), q); err != nil || len(page) != 0 {
			t.Errorf("%+v: %d blocks, %v", q, len(page), err)
		}
	}
	if asked := s.Asked(); asked["getBlock"] > 1 || asked["getBlockHeader"] > 0 {
		t.Errorf("it took %v", asked)
	}
}

// TestHistoryOfAServerThatFailsIsNotGone has one server with all of it, which
// goes away, and one with the newest blocks.
func TestHistoryOfAServerThatFailsIsNotGone(t *testing.T) {
	chain := liteservertest.Made(40)
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
		t.Errorf("%d blocks, %v", len(page), err)
	}
	if page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 3}); err != nil || len(page) != 3 {
		t.Errorf("what the other server has: %d blocks, %v", len(page), err)
	}
}

// TestHistoryComesBackWithTheServerThatHasIt asks for the first page while only a
// server with the newest blocks is there, and again when the other one is back.
func TestHistoryComesBackWithTheServerThatHasIt(t *testing.T) {
	chain := liteservertest.Made(40)
	all, short := start(t, chain, nil), start(t, chain, nil)
	short.Forget(30)
	all.Stop()
	b := open(t, short.Config(all), nil)
	first := chaingql.BlocksQuery{First: 3}
	page, err := b.Blocks(t.Context(), first)
	if err != nil || len(page) != 3 || page[0] == chain.Blocks()[0] {
		t.Fatalf("what is there: %v, %v", page, err)
	}
	if err := all.Restart(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // it is left alone for a while
		page, err = b.Blocks(t.Context(), first)
		if err == nil && page[0] == chain.Blocks()[0] || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	same(t, page, chaingql.PageOf(chain.Blocks(), first))
}
