package memchain_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// recorded opens a file of recorded chain data, which lies beside the module.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "shared", "realdata", name))
	if os.IsNotExist(err) {
		t.Skipf("no recorded chain data here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func load(t *testing.T, name string) memchain.Recording {
	t.Helper()
	rec, err := memchain.Load(strings.NewReader(string(recorded(t, name))))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRecordedBlocksAreLoadedWhole(t *testing.T) {
	for _, row := range []struct {
		file                  string
		blocks, out, computed int
		linked                int // blocks whose predecessor is recorded too
	}{
		{"ton-mainnet-genesis.json", 805, 0, 805, 803},
		{"everscale-mainnet-2020-09-20.json", 155, 0, 155, 138},
		{"everscale-mainnet-2021-05-27.json", 56, 25, 56, 64},
		{"ton-mainnet-2020-02-27.json", 40, 0, 40, 39},
		{"ton-mainnet-2019-with-states.json", 31, 31, 31, 60},
	} {
		t.Run(row.file, func(t *testing.T) {
			rec := load(t, row.file)
			if len(rec.Blocks) != row.blocks || rec.LeftOut != row.out || rec.Network == "" {
				t.Errorf("%q has %d blocks and left %d out, not %d and %d", rec.Network, len(rec.Blocks), rec.LeftOut, row.blocks, row.out)
			}
			linked, computed := checkRecorded(t, recorded(t, row.file), rec)
			if linked != row.linked || computed != row.computed {
				t.Errorf("%d blocks name a recorded predecessor and %d cursors were computed, not %d and %d", linked, computed, row.linked, row.computed)
			}
			c := memchain.New()
			if err := c.Add(rec); err != nil {
				t.Fatal(err)
			}
			page, err := c.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1000})
			if err != nil || len(page) != row.blocks {
				t.Errorf("the chain has %d blocks: %v", len(page), err)
			}
		})
	}
}

// checkRecorded holds what was loaded against the file: predecessors that are
// in it must be the ones that prev_hash names, and cursors are computed anew.
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
					t.Errorf("%d:%s %d follows %s, not the recorded %s", b.Workchain, b.Shard, b.SeqNo, b.PrevHash, hash)
				}
				break
			}
		}
		if b.ChainOrder == "" {
			continue
		}
		if got := loaded[b.ChainOrder]; got.Hash.String() != b.Hash || got.Shard != shard || got.SeqNo != b.SeqNo ||
			got.Workchain != b.Workchain || got.Time.Unix() != b.GenUtime {
			t.Errorf("cursor %s was loaded as %+v, not as %+v", b.ChainOrder, got, b)
		}
		if b.Workchain == -1 || b.MasterSeqNo != 0 {
			computed++
			if got := chaingql.ChainOrder(b.Workchain, shard, b.SeqNo, b.MasterSeqNo); string(got) != b.ChainOrder {
				t.Errorf("ChainOrder says %s where %s was recorded", got, b.ChainOrder)
			}
		}
	}
	return linked, computed
}

func TestRecordedAccountsAreLoadedWithTheirNewestBalance(t *testing.T) {
	for _, row := range []struct {
		file     string
		accounts int
		address  string
		balance  string
	}{
		{"everscale-mainnet-2020-08-20-accounts.json", 328, "0:500273060f087d488f8639921f0f94e582cd46c32d29d58793f78dd45ddb4576", "456891979"},
		{"ton-mainnet-2019-12-02-accounts.json", 166, "0:000344243214aff5f751581b2b9577377eaf736d4e1a2fa97a646c055db4824d", "30999999998"},
		{"ton-mainnet-2020-04-09-accounts.json", 125, "0:f033c6397203c04e6f3211061b6d80a64796e5c5db0b71d6b7b71f5012757bfc", "57999998936"},
		{"ton-mainnet-zerostate-accounts.json", 7, "-1:0000000000000000000000000000000000000000000000000000000000000000", "5000000000000000000"},
		{"ton-mainnet-2019-masterchain-accounts-by-block.json", 8, "-1:0000000000000000000000000000000000000000000000000000000000000000", "4940000337900000000"},
	} {
		t.Run(row.file, func(t *testing.T) {
			rec := load(t, row.file)
			if len(rec.Balances) != row.accounts || len(rec.Blocks) != 0 || rec.LeftOut != 0 {
				t.Errorf("has %d accounts, not %d, and %d blocks", len(rec.Balances), row.accounts, len(rec.Blocks))
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
				t.Errorf("%s has %v (%v), not %s", row.address, got, err, row.balance)
			}
		})
	}
}

const (
	goodHash  = "f0662186b8a077c0b0646ad14f9f62ba52c372089362ebce033149c6e81cd13b"
	goodBlock = `{"workchain":-1,"shard":"8000000000000000","seq_no":1,"hash":"` + goodHash + `","gen_utime":1573822385,"chain_order":"01m"}`
	goodRow   = `{"address":"0:` + goodHash + `","balance":"5","state_seq_no":3}`
)

func TestRecordingThatIsMalformedIsRefusedInOneLine(t *testing.T) {
	block := func(old, new string) string {
		if !strings.Contains(goodBlock, old) {
			t.Fatalf("no %s in a good block", old)
		}
		return `{"blocks":[` + goodBlock + `,` + strings.Replace(goodBlock, old, new, 1) + `]}`
	}
	account := func(old, new string) string {
		if !strings.Contains(goodRow, old) {
			t.Fatalf("no %s in a good account", old)
		}
		return `{"accounts":[` + strings.Replace(goodRow, old, new, 1) + `]}`
	}
	for _, row := range []struct{ name, file, want string }{
		{"nothing", "", "is empty"},
		{"blanks", " \n", "is empty"},
		{"a list", "[]", `"[]"… where an object belongs`},
		{"a word", "null", `"null"… where an object belongs`},
		{"not JSON", "{blocks}", "invalid character 'b'"},
		{"half", `{"blocks":[` + goodBlock, "ends in the middle"},
		{"more than one", `{"blocks":[]} {"blocks":[]}`, "goes on behind its end"},
		{"neither", `{"network":"x"}`, "has neither blocks nor accounts"},
		{"null for both", `{"blocks":null,"accounts":null}`, "has neither blocks nor accounts"},
		{"an unknown member", `{"blocks":[],"transactions":[]}`, `unknown field "transactions"`},
		{"blocks of another shape", `{"blocks":{}}`, "blocks is a object"},
		{"a network that is no text", `{"network":1,"blocks":[]}`, "network is a number"},
		{"a block that is none", `{"blocks":[` + goodBlock + `,7]}`, `block 2: "7"… where an object belongs`},
		{"a block that is null", `{"blocks":[null]}`, `block 1: "null"… where an object belongs`},
		{"an unknown member of a block", block(`"seq_no"`, `"depth":1,"seq_no"`), `block 2: json: unknown field "depth"`},
		{"no workchain", block(`"workchain":-1,`, ``), "block 2: has no workchain"},
		{"no shard", block(`"shard":"8000000000000000",`, ``), "block 2: has no shard"},
		{"no seq_no", block(`"seq_no":1,`, ``), "block 2: has no seq_no"},
		{"no hash", block(`"hash":"`+goodHash+`",`, ``), "block 2: has no hash"},
		{"no gen_utime", block(`"gen_utime":1573822385,`, ``), "block 2: has no gen_utime"},
		{"a workchain past 32 bits", block(`-1`, `2147483648`), "block 2: workchain is a number 2147483648"},
		{"a seq_no as text", block(`"seq_no":1`, `"seq_no":"1"`), "block 2: seq_no is a string"},
		{"a negative seq_no", block(`"seq_no":1`, `"seq_no":-1`), "block 2: seq_no is a number -1"},
		{"a broken seq_no", block(`"seq_no":1`, `"seq_no":1.5`), "block 2: seq_no is a number 1.5"},
		{"a negative time", block(`1573822385`, `-1`), "block 2: gen_utime -1 is not a time"},
		{"a time in milliseconds", block(`1573822385`, `1573822385000`), "block 2: gen_utime 1573822385000 is not a time"},
		{"a shard as a number", block(`"8000000000000000"`, `8000000000000000`), "block 2: shard is a number"},
		{"a short shard", block(`8000000000000000`, `8`), `block 2: shard "8" is not 16 hex digits`},
		{"a signed shard", block(`8000000000000000`, `+800000000000000`), `is not 16 hex digits`},
		{"a shard of nothing", block(`8000000000000000`, `0000000000000000`), "block 2: shard is zero"},
		{"bad hex", block(`f066`, `g066`), `block 2: hash "g066`},
		{"a short hash", block(`f066`, ``), "is not 64 hex digits"},
		{"a bad prev_hash", block(`"seq_no"`, `"prev_hash":"x","seq_no"`), `block 2: prev_hash "x" is not 64 hex digits`},
		{"a bad file_hash", block(`"seq_no"`, `"file_hash":"","seq_no"`), `block 2: file_hash "" is not 64 hex digits`},
		{"a chain_order of no cursor", block(`01m`, `01M`), `block 2: chain_order "01M": chaingql: not a cursor`},
		{"an empty chain_order", block(`01m`, ``), `block 2: chain_order ""`},
		{"an endless chain_order", block(`01m`, strings.Repeat("0", 65)), `block 2: chain_order "000`},
		{"a chain_order twice", block(`"seq_no":1`, `"seq_no":2`), `two blocks have chain_order "01m"`},
		{"an account that is none", `{"accounts":["x"]}`, `account 1: "\"x\""… where an object belongs`},
		{"no address", account(`"address":"0:`+goodHash+`",`, ``), "account 1: has no address"},
		{"no balance", account(`"balance":"5",`, ``), "account 1: has no balance"},
		{"no state_seq_no", account(`,"state_seq_no":3`, ``), "account 1: has no state_seq_no"},
		{"a bad address", account(`0:`, `0;`), "account 1: address \"0;"},
		{"a balance as a number", account(`"5"`, `5`), "account 1: balance is a number"},
		{"a negative balance", account(`"5"`, `"-5"`), `account 1: balance "-5" is not a plain decimal number`},
		{"a broken balance", account(`"5"`, `"5.0"`), `balance "5.0" is not`},
		{"a balance in hex", account(`"5"`, `"0x5"`), `balance "0x5" is not`},
		{"a padded balance", account(`"5"`, `"05"`), `balance "05" is not`},
		{"an empty balance", account(`"5"`, `""`), `balance "" is not`},
		{"an endless balance", account(`"5"`, `"`+strings.Repeat("9", 79)+`"`), `is not a plain decimal number`},
		{"two balances at once", `{"accounts":[` + goodRow + `,` + strings.Replace(goodRow, `"5"`, `"6"`, 1) + `]}`, "has two rows with state_seq_no 3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec, err := memchain.Load(strings.NewReader(row.file))
			switch {
			case err == nil:
				t.Fatalf("loaded as %+v", rec)
			case !strings.HasPrefix(err.Error(), "memchain: recording: ") || !strings.Contains(err.Error(), row.want):
				t.Errorf("said %q, not %q", err, row.want)
			case strings.Contains(err.Error(), "\n") || len(err.Error()) > 300:
				t.Errorf("said in more than one line: %q", err)
			case len(rec.Blocks)+len(rec.Balances) > 0:
				t.Errorf("returned %+v with an error", rec)
			}
		})
	}
}

func TestRecordingMayHoldTheLargestValues(t *testing.T) {
	for _, row := range []struct{ name, file string }{
		{"the first second", strings.Replace(goodBlock, "1573822385", "0", 1)},
		{"the last second of 32 bits", strings.Replace(goodBlock, "1573822385", "4294967295", 1)},
	} {
		rec, err := memchain.Load(strings.NewReader(`{"blocks":[` + row.file + `]}`))
		if err != nil || len(rec.Blocks) != 1 {
			t.Errorf("%s: loaded %d blocks: %v", row.name, len(rec.Blocks), err)
		}
	}
	digits := strings.Repeat("9", 78)
	rec, err := memchain.Load(strings.NewReader(`{"accounts":[` + strings.Replace(goodRow, `"5"`, `"`+digits+`"`, 1) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	for addr, nano := range rec.Balances {
		if nano.String() != digits {
			t.Errorf("%v has %v", addr, nano)
		}
	}
}

func TestRecordingIsSortedAndTheNewestBalanceCounts(t *testing.T) {
	rec, err := memchain.Load(strings.NewReader(`{"network":"N","blocks":[` +
		strings.Replace(goodBlock, "01m", "0a", 1) + `,` + goodBlock + `,` +
		strings.Replace(goodBlock, `,"chain_order":"01m"`, "", 1) + `],"accounts":[` +
		strings.Replace(goodRow, `"5"`, `"6"`, 1) + `,` +
		strings.Replace(strings.Replace(goodRow, `"5"`, `"4"`, 1), `:3}`, `:2}`, 1) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := list(rec.Blocks); got != "01m 0a" || rec.LeftOut != 1 || rec.Network != "N" {
		t.Errorf("loaded %s with %d left out of %q", got, rec.LeftOut, rec.Network)
	}
	for addr, nano := range maps.All(rec.Balances) {
		if nano.Int64() != 6 || addr.Workchain != 0 {
			t.Errorf("%v has %v", addr, nano)
		}
	}
}

func TestRecordingThatDoesNotFitLeavesTheChainAsItWas(t *testing.T) {
	c := memchain.New()
	_ = c.Append(at("05")...)
	known := chaingql.Address{Workchain: 1}
	for name, rec := range map[string]memchain.Recording{
		"blocks below the newest": {Blocks: at("04", "06"), Balances: map[chaingql.Address]*big.Int{known: big.NewInt(1)}},
		"a negative balance":      {Blocks: at("06"), Balances: map[chaingql.Address]*big.Int{known: big.NewInt(-1)}},
		"no balance":              {Blocks: at("06"), Balances: map[chaingql.Address]*big.Int{known: nil}},
	} {
		if err := c.Add(rec); err == nil {
			t.Errorf("%s: taken", name)
		}
		if _, err := c.Balance(t.Context(), known); err == nil || cursors(t, c, chaingql.BlocksQuery{First: 9}) != "05" {
			t.Errorf("%s: changed the chain", name)
		}
	}
}

func TestRecordedAccountMayHaveNothing(t *testing.T) {
	c, empty := memchain.New(), chaingql.Address{Workchain: 1}
	if err := c.Add(memchain.Recording{Balances: map[chaingql.Address]*big.Int{empty: new(big.Int)}}); err != nil {
		t.Fatal(err)
	}
	if nano, err := c.Balance(t.Context(), empty); err != nil || nano.Sign() != 0 {
		t.Errorf("balance %v, %v", nano, err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(`{"network":"N","blocks":[` + goodBlock + `],"accounts":[` + goodRow + `]}`)
	f.Add(`{"blocks":[{"chain_order":"01m"},{"chain_order":"01m"}]}`)
	f.Add(`{"accounts":[{"address":"-1:` + goodHash + `","balance":"-1","state_seq_no":0}]}`)
	f.Add(`{"blocks":[` + strings.Replace(goodBlock, "8000000000000000", "+000000000000000", 1) + `]}`)
	f.Add(`[[[[`)
	f.Add(`{"blocks":[1e999]}`)
	f.Fuzz(func(t *testing.T, file string) {
		rec, err := memchain.Load(strings.NewReader(file))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of more than one line: %q", err)
			}
			return
		}
		if err := memchain.New().Add(rec); err != nil {
			t.Errorf("loaded, but fits no chain: %v", err)
		}
	})
}
