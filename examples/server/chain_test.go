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

// page is the JSON representation of a page of blocks.
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

// readAll reads all blocks from a handler, page by page.
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
			t.Fatalf("reading a page failed with error %v and response %s", err, w.Body)
		}
		blocks := answer.Data.Blockchain.Blocks
		for _, e := range blocks.Edges {
			b := chaingql.Block{
				Workchain: e.Node.Workchain, SeqNo: e.Node.SeqNo, Time: time.Unix(e.Node.Time, 0), Cursor: e.Node.ChainOrder,
			}
			shard, err := strconv.ParseUint(e.Node.Shard, 16, 64)
			hash, hexErr := hex.DecodeString(e.Node.Hash)
			if err != nil || hexErr != nil || copy(b.Hash[:], hash) != len(b.Hash) {
				t.Fatalf("block %+v has an invalid shard or hash", e.Node)
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

// making runs makeBlocks on a new chain until do, which inspects the chain, returns.
func making(t *testing.T, recorded []chaingql.Block, rate float64, do func(*memchain.Chain)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	chain := memchain.New()
	ended := make(chan error)
	go func() { ended <- makeBlocks(ctx, chain, recorded, usualLead, rate) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("makeBlocks failed: %v", err)
		}
	}()
	do(chain)
}

// newest returns the n newest blocks.
func newest(t *testing.T, chain *memchain.Chain, n int) []chaingql.Block {
	t.Helper()
	blocks, err := chain.Blocks(t.Context(), chaingql.BlocksQuery{Last: n})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

func TestReplayAppendsRecordedBlocksUnchanged(t *testing.T) {
	rec, err := load(recorded("ton-mainnet-genesis"))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Blocks) != 805 {
		t.Fatalf("the recording has %d blocks, want 805", len(rec.Blocks))
	}
	synctest.Test(t, func(t *testing.T) {
		making(t, rec.Blocks, 1e6, func(chain *memchain.Chain) {
			handler := chaingql.New(chain, &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
			time.Sleep(usualLead - 1)
			if early := newest(t, chain, 1); len(early) > 0 {
				t.Errorf("the chain has block %+v before the lead has passed", early)
			}
			time.Sleep(pace)
			got := readAll(t, handler)
			if len(got) != 805+5 {
				t.Fatalf("the chain has %d blocks, want 805 recorded blocks and a simulated round of 5", len(got))
			}
			for i, want := range rec.Blocks {
				if b := got[i]; b.Cursor != want.Cursor || b.Hash != want.Hash || b.Workchain != want.Workchain ||
					b.Shard != want.Shard || b.SeqNo != want.SeqNo || !b.Time.Equal(want.Time) {
					t.Fatalf("block %d is\n%+v, want\n%+v", i, b, want)
				}
			}
			if err := handler.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown failed: %v", err)
			}
		})
	})
}

func TestReplayAppendsBlocksAtGivenRate(t *testing.T) {
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
					t.Fatalf("after %d quarters of a second, the chain has %d blocks, want %d", n, got, n)
				}
				time.Sleep(time.Second / 4)
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
		{"no recorded blocks", given()},
		{"only masterchain blocks", given(master(7), master(8))},
		{"only blocks of one shard", given(basic(0x8<<60, 41, 9), basic(0x8<<60, 42, 9))},
		{"no masterchain block at the end", given(
			master(7), basic(0xc<<60, 3, 8), basic(0x4<<60, 90, 8), basic(0x4<<60, 91, 8))},
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
						t.Fatalf("the chain has %d blocks, want simulated blocks after the %d recorded", len(all), len(blocks))
					}
					simulated := all[len(blocks):]
					checkSimulated(t, all, len(blocks))
					if simulated[0].Time.Sub(begin) > usualLead+pace {
						t.Errorf("the first simulated block was generated after %v, want at most %v",
							simulated[0].Time.Sub(begin), usualLead+pace)
					}
					for _, b := range simulated {
						if b.Time.Before(begin) || b.Time.After(time.Now()) {
							t.Errorf("block %+v has a time before the start of the test or in the future", b)
						}
					}
				})
			})
		})
	}
}

// checkSimulated checks that the simulated blocks have ascending cursors, valid predecessors and the
// expected hashes. recorded is the number of recorded blocks in all.
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
				t.Errorf("cursor %q comes after %q, but cursors must ascend", b.Cursor, all[i-1].Cursor)
			}
			if before, known := last[at]; known && b.SeqNo != before+1 {
				t.Errorf("shard %d:%016x skips from seq_no %d to %d", b.Workchain, b.Shard, before, b.SeqNo)
			} else if !known && recorded > 0 && len(last) > 0 && b.Workchain != masterchain {
				t.Errorf("shard %d:%016x has a simulated block, but no recorded block", b.Workchain, b.Shard)
			} else if !known && recorded == 0 && b.SeqNo != 1 {
				t.Errorf("shard %d:%016x starts with seq_no %d, want 1", b.Workchain, b.Shard, b.SeqNo)
			}
			if want := sha256.Sum256(fmt.Appendf(nil, "%d:%016x:%d", b.Workchain, b.Shard, b.SeqNo)); b.Hash != want {
				t.Errorf("block %+v has an unexpected hash, want %x", b, want)
			}
		}
		last[at] = b.SeqNo
	}
}

func TestTipsReturnsShardsAfterSplitsAndMerges(t *testing.T) {
	const (
		w, l, r = 0x8 << 60, 0x4 << 60, 0xc << 60 // the whole workchain and its halves
		ll, lr  = 0x2 << 60, 0x6 << 60            // the halves of l
	)
	for _, test := range []struct {
		name   string
		blocks []chaingql.Block
		want   string
	}{
		{"no blocks", nil, "0:4:0 0:c:0 -1:8:0"},
		{"only the masterchain", []chaingql.Block{master(5)}, "-1:8:5"},
		{"one shard", []chaingql.Block{basic(w, 1, 1), master(1), basic(w, 2, 2), master(2)}, "0:8:2 -1:8:2"},
		{
			"split", []chaingql.Block{basic(w, 1, 1), master(1), basic(l, 2, 2), basic(r, 2, 2), master(2)},
			"0:4:2 0:c:2 -1:8:2",
		},
		{
			"split of a half", []chaingql.Block{
				basic(l, 2, 2), basic(r, 2, 2), basic(lr, 3, 2), basic(ll, 3, 2), basic(lr, 4, 2), master(2),
			},
			"0:c:2 0:2:3 0:6:4 -1:8:2",
		},
		{"merge", []chaingql.Block{basic(l, 4, 2), basic(r, 7, 2), basic(w, 8, 2), master(2)}, "0:8:8 -1:8:2"},
		{
			"merge into a half",
			[]chaingql.Block{basic(ll, 4, 2), basic(lr, 4, 2), basic(r, 9, 2), basic(l, 5, 2), master(2)},
			"0:c:9 0:4:5 -1:8:2",
		},
		{"other workchain", []chaingql.Block{basic(w, 4, 2), other(l, 9, 2), master(2)}, "0:8:4 1:4:9 -1:8:2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, s := range tips(test.blocks) {
				got = append(got, fmt.Sprintf("%d:%x:%d", s.workchain, s.prefix>>60, s.seqNo))
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("tips returned the shards %s, want %s", s, test.want)
			}
		})
	}
}

func TestWithinReportsWhetherShardContainsAnother(t *testing.T) {
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

// master returns a masterchain block.
func master(seqNo uint32) chaingql.Block { return block(masterchain, wholeShard, seqNo, seqNo) }

// basic returns a block in workchain 0.
func basic(shard uint64, seqNo, masterSeqNo uint32) chaingql.Block {
	return block(0, shard, seqNo, masterSeqNo)
}

// other returns a block in workchain 1.
func other(shard uint64, seqNo, masterSeqNo uint32) chaingql.Block {
	return block(1, shard, seqNo, masterSeqNo)
}

func block(workchain int32, shard uint64, seqNo, masterSeqNo uint32) chaingql.Block {
	return chaingql.Block{
		Workchain: workchain, Shard: shard, SeqNo: seqNo, Time: time.Unix(int64(masterSeqNo), 0),
		Cursor: chaingql.ChainOrder(workchain, shard, seqNo, masterSeqNo),
	}
}
