package memchain_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// recorded returns the contents of a recording in testdata/recordings.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	return testkit.ReadGzip(t, filepath.Join("..", "testdata", "recordings", name+".gz"))
}

// load loads a recording in testdata/recordings.
func load(t *testing.T, name string) memchain.Recording {
	t.Helper()
	rec, err := memchain.Load(strings.NewReader(string(recorded(t, name))))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestLoadReturnsAllRecordedBlocks(t *testing.T) {
	for _, row := range []struct {
		file     string
		blocks   int // number of loaded blocks
		skipped  int // number of blocks without chain_order
		computed int // number of blocks with a chain_order that can be computed
		linked   int // number of blocks with a recorded predecessor
	}{
		{"ton-mainnet-genesis.json", 805, 0, 805, 803},
		{"everscale-mainnet-2020-09-20.json", 155, 0, 155, 138},
		{"everscale-mainnet-2021-05-27.json", 56, 25, 56, 64},
		{"ton-mainnet-2020-02-27.json", 40, 0, 40, 39},
		{"ton-mainnet-2019-with-states.json", 31, 31, 31, 60},
	} {
		t.Run(row.file, func(t *testing.T) {
			rec := load(t, row.file)
			if len(rec.Blocks) != row.blocks || rec.Skipped != row.skipped || rec.Network == "" {
				t.Errorf("recording of network %q has %d blocks and Skipped %d, want a name, %d blocks and Skipped %d",
					rec.Network, len(rec.Blocks), rec.Skipped, row.blocks, row.skipped)
			}
			linked, computed := checkRecorded(t, recorded(t, row.file), rec)
			if linked != row.linked || computed != row.computed {
				t.Errorf("%d blocks have a recorded predecessor and %d have a computable cursor, want %d and %d",
					linked, computed, row.linked, row.computed)
			}
			c := memchain.New()
			if err := c.Add(rec); err != nil {
				t.Fatal(err)
			}
			page, err := c.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1000})
			if err != nil || len(page) != row.blocks {
				t.Errorf("after Add, Blocks returned %d blocks, %v, want %d", len(page), err, row.blocks)
			}
		})
	}
}

// checkRecorded compares the loaded blocks with the file. The hash of each recorded
// predecessor must be equal to prev_hash, and ChainOrder must return the recorded cursor.
// checkRecorded returns the numbers of blocks for which it could check this.
func checkRecorded(t *testing.T, data []byte, rec memchain.Recording) (linked, computed int) {
	var file struct {
		Blocks []struct {
			Workchain   int32
			Shard, Hash string
			SeqNo       uint32 `json:"seq_no"`
			PrevHash    string `json:"prev_hash"`
			ChainOrder  string `json:"chain_order"`
			MasterSeqNo uint32 `json:"master_seq_no"`
			GenUtime    int64  `json:"gen_utime"`
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	loaded := map[string]chaingql.Block{}
	for _, b := range rec.Blocks {
		loaded[string(b.Cursor)] = b
	}
	key := func(workchain int32, shard uint64, seqNo uint32) string { return fmt.Sprint(workchain, shard, seqNo) }
	number := func(shard string) (n uint64) { fmt.Sscanf(shard, "%x", &n); return n }
	hashes := map[string]string{}
	for _, b := range file.Blocks {
		hashes[key(b.Workchain, number(b.Shard), b.SeqNo)] = b.Hash
	}
	for _, b := range file.Blocks {
		shard := number(b.Shard)
		bit := shard & -shard
		parent := shard&^bit&^(bit<<1) | bit<<1
		for _, from := range []uint64{shard, parent} {
			if hash, found := hashes[key(b.Workchain, from, b.SeqNo-1)]; found {
				if linked++; hash != b.PrevHash {
					t.Errorf("block %d:%s %d has prev_hash %s, but the recorded predecessor has hash %s",
						b.Workchain, b.Shard, b.SeqNo, b.PrevHash, hash)
				}
				break
			}
		}
		if b.ChainOrder == "" {
			continue
		}
		if got := loaded[b.ChainOrder]; got.Hash.String() != b.Hash || got.Shard != shard || got.SeqNo != b.SeqNo ||
			got.Workchain != b.Workchain || got.Time.Unix() != b.GenUtime {
			t.Errorf("Load returned %+v for cursor %s, want %+v", got, b.ChainOrder, b)
		}
		if b.Workchain == -1 || b.MasterSeqNo != 0 {
			computed++
			if got := chaingql.ChainOrder(b.Workchain, shard, b.SeqNo, b.MasterSeqNo); string(got) != b.ChainOrder {
				t.Errorf("ChainOrder returned %s, want the recorded chain_order %s", got, b.ChainOrder)
			}
		}
	}
	return linked, computed
}

func TestLoadReturnsNewestRecordedBalances(t *testing.T) {
	for _, row := range []struct {
		file     string
		accounts int
		address  string
		balance  string
	}{
		{
			"everscale-mainnet-2020-08-20-accounts.json", 328,
			"0:500273060f087d488f8639921f0f94e582cd46c32d29d58793f78dd45ddb4576", "456891979",
		},
		{
			"ton-mainnet-2019-12-02-accounts.json", 166,
			"0:000344243214aff5f751581b2b9577377eaf736d4e1a2fa97a646c055db4824d", "30999999998",
		},
		{
			"ton-mainnet-2020-04-09-accounts.json", 125,
			"0:f033c6397203c04e6f3211061b6d80a64796e5c5db0b71d6b7b71f5012757bfc", "57999998936",
		},
		{
			"ton-mainnet-zerostate-accounts.json", 7,
			"-1:0000000000000000000000000000000000000000000000000000000000000000", "5000000000000000000",
		},
		{
			"ton-mainnet-2019-masterchain-accounts-by-block.json", 8,
			"-1:0000000000000000000000000000000000000000000000000000000000000000", "4940000337900000000",
		},
	} {
		t.Run(row.file, func(t *testing.T) {
			rec := load(t, row.file)
			if len(rec.Balances) != row.accounts || len(rec.Blocks) != 0 || rec.Skipped != 0 {
				t.Errorf("Load returned %d balances, %d blocks and Skipped %d, want %d, 0 and 0",
					len(rec.Balances), len(rec.Blocks), rec.Skipped, row.accounts)
			}
			addr, err := chaingql.ParseAddress(row.address)
			if err != nil {
				t.Fatal(err)
			}
			c := memchain.New()
			if err := c.Add(rec); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Balance(t.Context(), addr); err != nil || got.String() != row.balance {
				t.Errorf("Balance of %s returned %v and error %v, want %s", row.address, got, err, row.balance)
			}
		})
	}
}
