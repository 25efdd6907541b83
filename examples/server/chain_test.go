package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// page is a page of blocks in a JSON response.
type page struct {
	Edges []struct {
		Node struct {
			Hash       string
			SeqNo      uint32 `json:"seq_no"`
			Workchain  int32  `json:"workchain_id"`
			Shard      string
			Time       int64           `json:"gen_utime"`
			ChainOrder chaingql.Cursor `json:"chain_order"`
		}
	}
	PageInfo struct {
		EndCursor   string
		HasNextPage bool
	}
}

// readAll reads all blocks of the chain from a handler, page by page.
func readAll(t *testing.T, handler http.Handler) []chaingql.Block {
	t.Helper()
	var all []chaingql.Block
	for after := ""; ; {
		body, _ := json.Marshal(map[string]any{
			"query": `query($after:String){blockchain{blocks(first:50,after:$after){
				edges{node{hash seq_no workchain_id shard gen_utime chain_order}} pageInfo{endCursor hasNextPage}}}}`,
			"variables": map[string]any{"after": after},
		})
		r := httptest.NewRequest(http.MethodPost, "/demo/graphql", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var answer struct {
			Data   struct{ Blockchain struct{ Blocks page } }
			Errors []any
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Errors != nil {
			t.Fatalf("the response is %s, error %v, want a page without errors", w.Body, err)
		}
		blocks := answer.Data.Blockchain.Blocks
		for _, e := range blocks.Edges {
			b := chaingql.Block{Workchain: e.Node.Workchain, SeqNo: e.Node.SeqNo, Time: time.Unix(e.Node.Time, 0),
				Cursor: e.Node.ChainOrder}
			shard, err := strconv.ParseUint(e.Node.Shard, 16, 64)
			hash, hexErr := hex.DecodeString(e.Node.Hash)
			if err != nil || hexErr != nil || copy(b.Hash[:], hash) != len(b.Hash) {
				t.Fatalf("invalid shard or hash in %+v", e.Node)
			}
			b.Shard = shard
			all = append(all, b)
		}
		if !blocks.PageInfo.HasNextPage {
			return all
		}
		after = blocks.PageInfo.EndCursor
	}
}

// making calls makeBlocks with a new chain, and calls do with that chain at the same time.
func making(t *testing.T, recorded []chaingql.Block, rate float64, do func(*memchain.Chain)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	chain := memchain.New()
	ended := make(chan error)
	go func() { ended <- makeBlocks(ctx, chain, recorded, usualLead, rate) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	do(chain)
}

// newest returns the last n blocks of the chain.
func newest(t *testing.T, chain *memchain.Chain, n int) []chaingql.Block {
	t.Helper()
	blocks, err := chain.Blocks(t.Context(), chaingql.BlocksQuery{Last: n})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

func TestReplayYieldsRecordingInOrder(t *testing.T) {
	rec, err := load(recorded("ton-mainnet-genesis"))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Blocks) != 805 {
		t.Fatalf("the file contains %d blocks, want 805", len(rec.Blocks))
	}
	synctest.Test(t, func(t *testing.T) {
		making(t, rec.Blocks, 1e6, func(chain *memchain.Chain) {
			handler := chaingql.New(chain, &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
			time.Sleep(usualLead - 1)
			if early := newest(t, chain, 1); len(early) > 0 {
				t.Errorf("the chain contains %+v before the end of the lead, want no block", early)
			}
			time.Sleep(pace)
			got := readAll(t, handler)
			if len(got) != 805+5 {
				t.Fatalf("the chain contains %d blocks, want 805 recorded ones and a round of 5", len(got))
			}
			for i, want := range rec.Blocks {
				if b := got[i]; b.Cursor != want.Cursor || b.Hash != want.Hash || b.Workchain != want.Workchain ||
					b.Shard != want.Shard || b.SeqNo != want.SeqNo || !b.Time.Equal(want.Time) {
					t.Fatalf("block %d is\n%+v, want\n%+v", i, b, want)
				}
			}
			if err := handler.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestReplayAppendsBlocksAtRate(t *testing.T) {
	var blocks []chaingql.Block
	for n := uint32(1); n <= 20; n++ {
		blocks = append(blocks, master(n))
	}
	synctest.Test(t, func(t *testing.T) {
		making(t, blocks, 4, func(chain *memchain.Chain) {
			time.Sleep(usualLead - 1)
			for n := range 20 {
				synctest.Wait()
				if got := len(newest(t, chain, 1000)); got != n {
					t.Fatalf("the chain contains %d blocks, want %d", got, n)
				}
				time.Sleep(time.Second / 4)
			}
		})
	})
}

func TestChainKeepsRecordingUntilItHasEnoughSimulatedRounds(t *testing.T) {
	blocks := []chaingql.Block{master(7), master(8)}
	synctest.Test(t, func(t *testing.T) {
		making(t, blocks, 1e6, func(chain *memchain.Chain) {
			time.Sleep(usualLead + kept*pace - pace/2)
			synctest.Wait()
			if all := newest(t, chain, 2*kept); len(all) != kept+2 || all[0].SeqNo != 7 {
				t.Errorf("the chain contains %d blocks from block %d, want %d from block 7", len(all),
					all[0].SeqNo, kept+2)
			}
			time.Sleep(500 * pace)
			synctest.Wait()
			if all := newest(t, chain, 2*kept); len(all) != kept+1 || all[kept].SeqNo != 8+kept+500 {
				t.Errorf("the chain contains %d blocks to block %d, want %d to block %d", len(all),
					all[len(all)-1].SeqNo, kept+1, 8+kept+500)
			}
		})
	})
}

func TestSimulationContinuesRecording(t *testing.T) {
	files := []string{"ton-mainnet-genesis", "everscale-mainnet-2020-09-20", "everscale-mainnet-2021-05-27",
		"ton-mainnet-2019-with-states", "ton-mainnet-2020-02-27"}
	type source struct {
		name   string
		blocks func(*testing.T) []chaingql.Block
	}
	given := func(blocks ...chaingql.Block) func(*testing.T) []chaingql.Block {
		return func(*testing.T) []chaingql.Block { return blocks }
	}
	sources := []source{
		{"nothing", given()},
		{"masterchain alone", given(master(7), master(8))},
		{"a shard alone", given(basic(0x8<<60, 41, 9), basic(0x8<<60, 42, 9))},
		{"no masterchain block at the end", given(master(7), basic(0xc<<60, 3, 8), basic(0x4<<60, 90, 8),
			basic(0x4<<60, 91, 8))},
	}
	for _, name := range files {
		sources = append(sources, source{name, func(t *testing.T) []chaingql.Block {
			rec, err := load(recorded(name))
			if err != nil {
				t.Fatal(err)
			}
			return rec.Blocks
		}})
	}
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			blocks := source.blocks(t)
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				making(t, blocks, 1e6, func(chain *memchain.Chain) {
					time.Sleep(usualLead + 3*pace + pace/2)
					synctest.Wait()
					all := newest(t, chain, 2000)
					if len(all) <= len(blocks) {
						t.Fatalf("the chain contains %d blocks, want simulated ones after the recorded ones", len(all))
					}
					simulated := all[len(blocks):]
					checkSimulated(t, all, len(blocks))
					if simulated[0].Time.Sub(begin) > usualLead+pace {
						t.Errorf("the first simulated block was appended after %v, want at most %v",
							simulated[0].Time.Sub(begin), usualLead+pace)
					}
					for _, b := range simulated {
						if b.Time.Before(begin) || b.Time.After(time.Now()) {
							t.Errorf("block %+v has the time %v, want a time during the test", b, b.Time)
						}
					}
				})
			})
		})
	}
}

// checkSimulated checks that each simulated block has an ascending cursor, a valid predecessor and the expected hash.
// The first blocks of all are recorded ones.
func checkSimulated(t *testing.T, all []chaingql.Block, recorded int) {
	t.Helper()
	type place struct {
		workchain int32
		shard     uint64
	}
	last := map[place]uint32{}
	for i, b := range all {
		at := place{b.Workchain, b.Shard}
		if i >= recorded {
			if i > 0 && b.Cursor <= all[i-1].Cursor {
				t.Errorf("cursor %q follows %q, want ascending cursors", b.Cursor, all[i-1].Cursor)
			}
			if before, known := last[at]; known && b.SeqNo != before+1 {
				t.Errorf("shard %d:%016x jumps from block %d to block %d", b.Workchain, b.Shard, before, b.SeqNo)
			} else if !known && recorded > 0 && len(last) > 0 && b.Workchain != masterchain {
				t.Errorf("shard %d:%016x has no parent shard", b.Workchain, b.Shard)
			} else if !known && recorded == 0 && b.SeqNo != 1 {
				t.Errorf("shard %d:%016x starts with block %d, want block 1", b.Workchain, b.Shard, b.SeqNo)
			}
			if want := sha256.Sum256(fmt.Appendf(nil, "%d:%016x:%d", b.Workchain, b.Shard, b.SeqNo)); b.Hash != want {
				t.Errorf("block %+v has an unexpected hash", b)
			}
		}
		last[at] = b.SeqNo
	}
}

func TestTipsFollowSplitsAndMerges(t *testing.T) {
	const (
		w, l, r = 0x8 << 60, 0x4 << 60, 0xc << 60 // whole shard and its halves
		ll, lr  = 0x2 << 60, 0x6 << 60
	)
	for _, test := range []struct {
		name   string
		blocks []chaingql.Block
		want   string
	}{
		{"nothing", nil, "0:4:0 0:c:0 -1:8:0"},
		{"masterchain", []chaingql.Block{master(5)}, "-1:8:5"},
		{"one shard", []chaingql.Block{basic(w, 1, 1), master(1), basic(w, 2, 2), master(2)}, "0:8:2 -1:8:2"},
		{"split", []chaingql.Block{basic(w, 1, 1), master(1), basic(l, 2, 2), basic(r, 2, 2), master(2)},
			"0:4:2 0:c:2 -1:8:2"},
		{"split of a half", []chaingql.Block{basic(l, 2, 2), basic(r, 2, 2), basic(lr, 3, 2), basic(ll, 3, 2),
			basic(lr, 4, 2), master(2)},
			"0:c:2 0:2:3 0:6:4 -1:8:2"},
		{"merge", []chaingql.Block{basic(l, 4, 2), basic(r, 7, 2), basic(w, 8, 2), master(2)}, "0:8:8 -1:8:2"},
		{"merge of a half", []chaingql.Block{basic(ll, 4, 2), basic(lr, 4, 2), basic(r, 9, 2), basic(l, 5, 2),
			master(2)}, "0:c:9 0:4:5 -1:8:2"},
		{"other workchain", []chaingql.Block{basic(w, 4, 2), other(l, 9, 2), master(2)}, "0:8:4 1:4:9 -1:8:2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, s := range tips(test.blocks) {
				got = append(got, fmt.Sprintf("%d:%x:%d", s.workchain, s.prefix>>60, s.seqNo))
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("tips returned %s, want %s", s, test.want)
			}
		})
	}
}

func TestWithinReportsContainedShards(t *testing.T) {
	const smallest = 0x4000000000000001
	for _, test := range []struct {
		part, whole uint64
		want        bool
	}{
		{0x8 << 60, 0x8 << 60, true},
		{0x4 << 60, 0x8 << 60, true},
		{0x8 << 60, 0x4 << 60, false},
		{0x4 << 60, 0xc << 60, false},
		{0x2 << 60, 0x4 << 60, true},
		{0x6 << 60, 0x4 << 60, true},
		{0xa << 60, 0x4 << 60, false},
		{0xa << 60, 0xc << 60, true},
		{0x58 << 56, 0x6 << 60, true},
		{0x58 << 56, 0x2 << 60, false},
		{smallest, 0x6 << 60, true},
		{smallest, 0x2 << 60, false},
		{0x6 << 60, smallest, false},
		{smallest, 0x8 << 60, true},
		{smallest, smallest, true},
	} {
		if got := within(test.part, test.whole); got != test.want {
			t.Errorf("within(%016x, %016x) = %t, want %t", test.part, test.whole, got, test.want)
		}
	}
}

func master(seqNo uint32) chaingql.Block { return block(masterchain, wholeShard, seqNo, seqNo) }

func basic(shard uint64, seqNo, masterSeqNo uint32) chaingql.Block {
	return block(0, shard, seqNo, masterSeqNo)
}

func other(shard uint64, seqNo, masterSeqNo uint32) chaingql.Block {
	return block(1, shard, seqNo, masterSeqNo)
}

func block(workchain int32, shard uint64, seqNo, masterSeqNo uint32) chaingql.Block {
	return chaingql.Block{
		Workchain: workchain, Shard: shard, SeqNo: seqNo, Time: time.Unix(int64(masterSeqNo), 0),
		Cursor: chaingql.ChainOrder(workchain, shard, seqNo, masterSeqNo),
	}
}
