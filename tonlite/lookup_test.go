package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// expectFound fails the test unless BlockBySeqNo finds exactly the blocks in stored, of all blocks of
// the chain.
func expectFound(t *testing.T, b *tonlite.Backend, chain *liteservertest.Chain, stored []chaingql.Block) {
	t.Helper()
	is := make(map[chaingql.Cursor]bool)
	for _, block := range stored {
		is[block.Cursor] = true
	}
	for _, want := range chain.Blocks() {
		got, err := b.BlockBySeqNo(t.Context(), want.Workchain, want.Shard, want.SeqNo)
		switch {
		case is[want.Cursor] && (err != nil || got != want):
			t.Fatalf("block %s: got %+v and error %v, want %+v", want.Cursor, got, err, want)
		case !is[want.Cursor] && !errors.Is(err, chaingql.ErrBlockNotFound):
			t.Fatalf("block %s, which Blocks does not return: got %+v and error %v", want.Cursor, got, err)
		}
	}
}

// TestBlockBySeqNoFindsTheBlocksOfPages compares the two while the server deletes old blocks and
// receives new ones. The server has all shard blocks from the beginning.
func TestBlockBySeqNoFindsTheBlocksOfPages(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	for _, have := range []struct{ oldest, newest uint32 }{{1, 1}, {1, 14}, {12, 26}, {12, 40}, {39, 40}} {
		s.Advance(have.newest)
		s.Forget(have.oldest)
		b := open(t, s.Config(), nil)
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: chaingql.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		expectFound(t, open(t, s.Config(), &tonlite.Options{Cache: 1}), chain, page)
		expectFound(t, b, chain, page) // with all of them cached
	}
}

// TestBlockBySeqNoNeedsFewQueries looks up blocks in the middle of a chain. Nothing is cached.
func TestBlockBySeqNoNeedsFewQueries(t *testing.T) {
	chain := generate(200)
	s := start(t, chain, nil)
	for _, workchain := range []int32{-1, 0} {
		b := open(t, s.Config(), nil)
		q := chaingql.BlocksQuery{Workchain: &workchain, First: 1, After: cursor(100)}
		want := chaingql.PageOf(chain.Blocks(), q)[0]
		s.Asked() // resets the count after Open
		got, err := b.BlockBySeqNo(t.Context(), want.Workchain, want.Shard, want.SeqNo)
		if err != nil || got != want {
			t.Fatalf("got %+v and error %v, want %+v", got, err, want)
		}
		asked, n := s.Asked(), 0
		for _, times := range asked {
			n += times
		}
		if most := 6 + 8*int(workchain+1); n > most {
			t.Errorf("workchain %d: got %d queries %v, want at most %d", workchain, n, asked, most)
		}
	}
}

// TestImpossibleBlockNeedsNoQuery looks up numbers and shards that the newest masterchain block rules out.
func TestImpossibleBlockNeedsNoQuery(t *testing.T) {
	s := start(t, generate(40), nil)
	b := open(t, s.Config(), nil)
	s.Asked() // resets the count after Open
	for _, id := range []struct {
		workchain int32
		shard     uint64
		seqNo     uint32
	}{
		{-1, 1 << 63, 0}, {-1, 1 << 63, 41}, {-1, 1 << 62, 20}, {0, 1 << 63, 0}, {0, 1 << 63, 1_000_000},
		{0, 0, 5}, {0, 1, 5}, {5, 1 << 63, 5},
	} {
		_, err := b.BlockBySeqNo(t.Context(), id.workchain, id.shard, id.seqNo)
		if !errors.Is(err, chaingql.ErrBlockNotFound) {
			t.Errorf("%+v: got error %v, want ErrBlockNotFound", id, err)
		}
	}
	if asked := s.Asked(); asked["lookupBlock"] > 0 || asked["getBlock"] > 1 {
		t.Errorf("got queries %v, want at most one getBlock, for the newest block", asked)
	}
}

// TestConcurrentLookupsAreLimited looks up blocks while the server does not respond. 16 lookups may
// query the server and 48 may wait, which is as many as a Handler has in flight. The remaining ones must fail at once.
func TestConcurrentLookupsAreLimited(t *testing.T) {
	chain := generate(60)
	s := start(t, chain, nil)
	b := open(t, s.Config(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	following := make(chan struct{})
	calls.Go(func() {
		for block := range b.Follow(ctx, cursor(59)) { // so that lookups need not ask for the newest block
			if block.Cursor == cursor(60) {
				close(following)
			}
		}
	})
	<-following
	defer s.Stall()()
	ended := make(chan error, 68)
	for _, block := range chain.Blocks()[20 : 20+cap(ended)] {
		calls.Go(func() {
			_, err := b.BlockBySeqNo(ctx, block.Workchain, block.Shard, block.SeqNo)
			ended <- err
		})
	}
	for range cap(ended) - 64 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "too many concurrent pages") {
			t.Errorf("lookup above the limit: got error %v, want one about too many pages", err)
		}
	}
	cancel()
	for range 64 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("lookup within the limit: got error %v, want Canceled", err)
		}
	}
}

// TestBlockOfStoppedServerIsNotReportedAsMissing stops the only server that has the old blocks. A
// second server, which has only the newest blocks, still runs.
func TestBlockOfStoppedServerIsNotReportedAsMissing(t *testing.T) {
	chain := generate(40)
	all, short := start(t, chain, nil), start(t, chain, nil)
	short.Forget(30)
	b := open(t, all.Config(short), nil)
	if _, err := b.BlockBySeqNo(t.Context(), -1, 1<<63, 10); err != nil {
		t.Fatal(err)
	}
	all.Stop()
	_, err := b.BlockBySeqNo(t.Context(), -1, 1<<63, 20)
	if err == nil || errors.Is(err, chaingql.ErrBlockNotFound) {
		t.Errorf("got error %v, want one other than ErrBlockNotFound", err)
	}
	if _, err := b.BlockBySeqNo(t.Context(), -1, 1<<63, 35); err != nil {
		t.Errorf("block of the second server: got error %v", err)
	}
}

// TestBlockThatALaggingServerLacksIsNotReportedAsMissing looks up a block that the server had before.
func TestBlockThatALaggingServerLacksIsNotReportedAsMissing(t *testing.T) {
	s := start(t, generate(40), nil)
	b := open(t, s.Config(), nil)
	s.Advance(30)
	_, err := b.BlockBySeqNo(t.Context(), -1, 1<<63, 35)
	if err == nil || errors.Is(err, chaingql.ErrBlockNotFound) {
		t.Errorf("got error %v, want one other than ErrBlockNotFound", err)
	}
}

// TestClientsFindOldBlocksByNumberAndTime asks a Handler for a block that is older than its window.
func TestClientsFindOldBlocksByNumberAndTime(t *testing.T) {
	chain := generate(200)
	s := start(t, chain, nil)
	h := chaingql.New(open(t, s.Config(), nil), &chaingql.Options{
		WindowSize: 16, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = h.Shutdown(t.Context()) })
	old := chain.Blocks()[100]
	byNumber := fmt.Sprintf(`block_by_seq_no(workchain:%d,shard:"%016x",seq_no:%d){hash}`,
		old.Workchain, old.Shard, old.SeqNo)
	at := int64(1_700_000_000 + 4*30) // the time of masterchain block 30
	for query, want := range map[string]string{
		byNumber: fmt.Sprintf(`"hash":"%v"`, old.Hash),
		fmt.Sprintf(`block(hash:"%v"){seq_no}`, old.Hash):            `"LOOKUP_NOT_SUPPORTED"`,
		fmt.Sprintf(`master_seq_no_range(time_start:%d){start}`, at): `"start":30`,
	} {
		body := strings.NewReader(fmt.Sprintf(`{"query":%q}`, "{blockchain{"+query+"}}"))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/demo/graphql", body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got response %s, want %s", query, w.Body, want)
		}
	}
}

// TestBlockBySeqNoDoesNotTrustTheServerAhead lets one server have each block two seconds before the other one, and deny
// lookups of shard blocks.
func TestBlockBySeqNoDoesNotTrustTheServerAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(31)
		ahead, other, b := m.startTwo(chain)
		ahead.SetLie(liteservertest.Unlisted)
		following(t, b, cursor(19))
		for seqNo := uint32(21); seqNo <= 30; seqNo++ {
			ahead.Advance(seqNo)
			for range 4 {
				time.Sleep(500 * time.Millisecond)
				for _, want := range upTo(chain, seqNo) {
					if want.Cursor <= cursor(seqNo-1) {
						continue
					}
					got, err := b.BlockBySeqNo(t.Context(), want.Workchain, want.Shard, want.SeqNo)
					if err == nil && got != want || err != nil && !errors.Is(err, chaingql.ErrUnavailable) {
						t.Errorf("block %s: got %+v and error %v", want.Cursor, got, err)
					}
				}
			}
			other.Advance(seqNo)
			time.Sleep(2 * time.Second)
		}
	})
}

// TestBlockBySeqNoDoesNotTrustOneServer prefers a server that lies about shard blocks. Two honest servers have them.
func TestBlockBySeqNoDoesNotTrustOneServer(t *testing.T) {
	chain := generate(200)
	for name, lie := range map[string]liteservertest.Lie{
		"names a block of another shard":                liteservertest.OtherShard,
		"names a block that was created long before it": liteservertest.EarlyCreation,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				liar, one, two := m.start(chain), m.start(chain), m.start(chain)
				b := m.open(liar.Config(one, two), nil)
				b.Prefer(0)
				liar.SetLie(lie)
				for _, want := range chain.Blocks() {
					if want.Cursor <= cursor(160) || want.Cursor > cursor(170) {
						continue
					}
					got, err := b.BlockBySeqNo(t.Context(), want.Workchain, want.Shard, want.SeqNo)
					if err != nil || got != want {
						t.Fatalf("got %+v and error %v, want %+v", got, err, want)
					}
				}
				if n := one.Asked()["getBlock"] + two.Asked()["getBlock"] + liar.Asked()["getBlock"]; n > 100 {
					t.Errorf("got %d queries for masterchain blocks, want at most 100", n)
				}
			})
		})
	}
}

// TestBlockBySeqNoFindsNoBlockThatNeverExisted looks up shard blocks whose numbers belong to blocks of the parent or of
// a child, as all servers say.
func TestBlockBySeqNoFindsNoBlockThatNeverExisted(t *testing.T) {
	chain := generate(60)
	s := start(t, chain, nil)
	b := open(t, s.Config(start(t, chain, nil)), nil)
	exists := make(map[string]bool)
	for _, block := range chain.Blocks() {
		exists[fmt.Sprint(block.Workchain, block.Shard, block.SeqNo)] = true
	}
	found := 0
	for seqNo := uint32(20); seqNo < 30; seqNo++ {
		for _, shard := range []uint64{1 << 63, 1 << 62, 3 << 62} {
			_, err := b.BlockBySeqNo(t.Context(), 0, shard, seqNo)
			if want := exists[fmt.Sprint(0, shard, seqNo)]; want {
				found++
				if err != nil {
					t.Errorf("shard %016x, block %d: %v", shard, seqNo, err)
				}
			} else if !errors.Is(err, chaingql.ErrBlockNotFound) {
				t.Errorf("shard %016x, block %d: got error %v, want ErrBlockNotFound", shard, seqNo, err)
			}
		}
	}
	if found == 0 || found == 30 {
		t.Errorf("%d of 30 blocks exist", found)
	}
}
