package memchain_test

import (
	"bytes"
	"compress/gzip"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	goodHash  = "f0662186b8a077c0b0646ad14f9f62ba52c372089362ebce033149c6e81cd13b"
	goodBlock = `{"workchain":-1,"shard":"8000000000000000","seq_no":1,` +
		`"hash":"` + goodHash + `","gen_utime":1573822385,"chain_order":"01m"}`
	goodRow = `{"address":"0:` + goodHash + `","balance":"5","state_seq_no":3}`
)

func TestLoadReportsMalformedRecordingInOneLine(t *testing.T) {
	block := func(old, new string) string {
		if !strings.Contains(goodBlock, old) {
			t.Fatalf("the test replaces %s in goodBlock, which does not contain it", old)
		}
		return `{"blocks":[` + goodBlock + `,` + strings.Replace(goodBlock, old, new, 1) + `]}`
	}
	account := func(old, new string) string {
		if !strings.Contains(goodRow, old) {
			t.Fatalf("the test replaces %s in goodRow, which does not contain it", old)
		}
		return `{"accounts":[` + strings.Replace(goodRow, old, new, 1) + `]}`
	}
	for _, row := range []struct{ name, file, want string }{
		{"an empty file", "", "JSON text is empty"},
		{"only white space", " \n", "JSON text is empty"},
		{"a list", "[]", `"[]"… is not a JSON object`},
		{"a JSON literal", "null", `"null"… is not a JSON object`},
		{"invalid JSON", "{blocks}", "invalid character 'b'"},
		{"a truncated file", `{"blocks":[` + goodBlock, "JSON text is truncated"},
		{"two objects", `{"blocks":[]} {"blocks":[]}`, "there is data after the JSON object"},
		{"neither blocks nor accounts", `{"network":"x"}`, "has neither blocks nor accounts"},
		{"null for blocks and accounts", `{"blocks":null,"accounts":null}`, "has neither blocks nor accounts"},
		{"an unknown member", `{"blocks":[],"transactions":[]}`, `unknown field "transactions"`},
		{"an object as blocks", `{"blocks":{}}`, "blocks: JSON object is not a valid []json.RawMessage"},
		{"a number as network", `{"network":1,"blocks":[]}`, "network: JSON number is not a valid string"},
		{"a number as block", `{"blocks":[` + goodBlock + `,7]}`, `block 2: "7"… is not a JSON object`},
		{"null as block", `{"blocks":[null]}`, `block 1: "null"… is not a JSON object`},
		{
			"an unknown member of a block", block(`"seq_no"`, `"depth":1,"seq_no"`),
			`block 2: json: unknown field "depth"`,
		},
		{"no workchain", block(`"workchain":-1,`, ``), "block 2: workchain is missing"},
		{"no shard", block(`"shard":"8000000000000000",`, ``), "block 2: shard is missing"},
		{"no seq_no", block(`"seq_no":1,`, ``), "block 2: seq_no is missing"},
		{"no hash", block(`"hash":"`+goodHash+`",`, ``), "block 2: hash is missing"},
		{"no gen_utime", block(`"gen_utime":1573822385,`, ``), "block 2: gen_utime is missing"},
		{
			"a workchain that overflows 32 bits", block(`-1`, `2147483648`),
			"block 2: workchain: JSON number 2147483648 is not a valid int32",
		},
		{
			"a string as seq_no", block(`"seq_no":1`, `"seq_no":"1"`),
			"block 2: seq_no: JSON string is not a valid uint32",
		},
		{"a negative seq_no", block(`"seq_no":1`, `"seq_no":-1`), "block 2: seq_no: JSON number -1 is not"},
		{"a fractional seq_no", block(`"seq_no":1`, `"seq_no":1.5`), "block 2: seq_no: JSON number 1.5 is not"},
		{"a negative time", block(`1573822385`, `-1`), "block 2: gen_utime -1 is not a 32-bit Unix time"},
		{
			"a time in milliseconds", block(`1573822385`, `1573822385000`),
			"block 2: gen_utime 1573822385000 is not a 32-bit Unix time in seconds",
		},
		{"a number as shard", block(`"8000000000000000"`, `8000000000000000`), "block 2: shard: JSON number is not"},
		{"a short shard", block(`8000000000000000`, `8`), `block 2: shard "8" is not 16 hex digits`},
		{"a signed shard", block(`8000000000000000`, `+800000000000000`), `is not 16 hex digits`},
		{"a zero shard", block(`8000000000000000`, `0000000000000000`), "block 2: shard is zero"},
		{"an invalid hex digit in the hash", block(`f066`, `g066`), `block 2: hash "g066`},
		{"a short hash", block(`f066`, ``), "is not 64 hex digits"},
		{
			"an invalid prev_hash", block(`"seq_no"`, `"prev_hash":"x","seq_no"`),
			`block 2: prev_hash "x" is not 64 hex digits`,
		},
		{
			"an empty file_hash", block(`"seq_no"`, `"file_hash":"","seq_no"`),
			`block 2: file_hash "" is not 64 hex digits`,
		},
		{"an invalid chain_order", block(`01m`, `01M`), `block 2: chain_order "01M": chaingql: not a cursor`},
		{"an empty chain_order", block(`01m`, ``), `block 2: chain_order ""`},
		{"a chain_order that is too long", block(`01m`, strings.Repeat("0", 65)), `block 2: chain_order "000`},
		{"a duplicate chain_order", block(`"seq_no":1`, `"seq_no":2`), `two blocks have chain_order "01m"`},
		{"a string as account", `{"accounts":["x"]}`, `account 1: "\"x\""… is not a JSON object`},
		{"no address", account(`"address":"0:`+goodHash+`",`, ``), "account 1: address is missing"},
		{"no balance", account(`"balance":"5",`, ``), "account 1: balance is missing"},
		{"no state_seq_no", account(`,"state_seq_no":3`, ``), "account 1: state_seq_no is missing"},
		{"an invalid address", account(`0:`, `0;`), "account 1: address \"0;"},
		{"a number as balance", account(`"5"`, `5`), "account 1: balance: JSON number is not a valid string"},
		{"a negative balance", account(`"5"`, `"-5"`), `account 1: balance "-5" is not a plain decimal number`},
		{"a fractional balance", account(`"5"`, `"5.0"`), `balance "5.0" is not`},
		{"a balance in hex", account(`"5"`, `"0x5"`), `balance "0x5" is not`},
		{"a balance with a leading zero", account(`"5"`, `"05"`), `balance "05" is not`},
		{"an empty balance", account(`"5"`, `""`), `balance "" is not`},
		{"a long balance", account(`"5"`, `"`+strings.Repeat("9", 79)+`"`), `is not a plain decimal number`},
		{
			"two balances with the same state_seq_no",
			`{"accounts":[` + goodRow + `,` + strings.Replace(goodRow, `"5"`, `"6"`, 1) + `]}`,
			"has state_seq_no 3 too",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec, err := memchain.Load(strings.NewReader(row.file))
			switch {
			case err == nil:
				t.Fatalf("Load returned %+v, want an error with %q", rec, row.want)
			case !strings.HasPrefix(err.Error(), "memchain: recording: ") || !strings.Contains(err.Error(), row.want):
				t.Errorf("Load returned error %q, want the prefix and %q", err, row.want)
			case strings.Contains(err.Error(), "\n") || len(err.Error()) > 300:
				t.Errorf("Load returned an error with a line break or more than 300 bytes: %q", err)
			case len(rec.Blocks)+len(rec.Balances) > 0:
				t.Errorf("Load returned an error together with blocks or balances: %+v", rec)
			}
		})
	}
}

func TestLoadAcceptsExtremeTimesAndBalances(t *testing.T) {
	for _, row := range []struct{ name, file string }{
		{"the lowest time", strings.Replace(goodBlock, "1573822385", "0", 1)},
		{"the highest time in 32 bits", strings.Replace(goodBlock, "1573822385", "4294967295", 1)},
	} {
		rec, err := memchain.Load(strings.NewReader(`{"blocks":[` + row.file + `]}`))
		if err != nil || len(rec.Blocks) != 1 {
			t.Errorf("%s: Load returned %d blocks and error %v, want one block", row.name, len(rec.Blocks), err)
		}
	}
	digits := strings.Repeat("9", 78)
	row := strings.Replace(goodRow, `"5"`, `"`+digits+`"`, 1)
	rec, err := memchain.Load(strings.NewReader(`{"accounts":[` + row + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	for addr, nano := range rec.Balances {
		if nano.String() != digits {
			t.Errorf("Load returned balance %v for account %v, want %s", nano, addr, digits)
		}
	}
}

func TestLoadSortsBlocksAndKeepsNewestBalance(t *testing.T) {
	rec, err := memchain.Load(strings.NewReader(`{"network":"N","blocks":[` +
		strings.Replace(goodBlock, "01m", "0a", 1) + `,` + goodBlock + `,` +
		strings.Replace(goodBlock, `,"chain_order":"01m"`, "", 1) + `],"accounts":[` +
		strings.Replace(goodRow, `"5"`, `"6"`, 1) + `,` +
		strings.Replace(strings.Replace(goodRow, `"5"`, `"4"`, 1), `:3}`, `:2}`, 1) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := list(rec.Blocks); got != "01m 0a" || rec.Skipped != 1 || rec.Network != "N" {
		t.Errorf("Load returned blocks %s, Skipped %d, Network %q; want 01m 0a, 1, N", got, rec.Skipped, rec.Network)
	}
	for addr, nano := range maps.All(rec.Balances) {
		if nano.Int64() != 6 || addr.Workchain != 0 {
			t.Errorf("Load returned balance %v for account %v, want 6 in workchain 0", nano, addr)
		}
	}
}

func TestLoadDecompressesGzip(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{"blocks":[` + goodBlock + `]}`))
	_ = w.Close()
	rec, err := memchain.Load(bytes.NewReader(packed.Bytes()))
	if err != nil || len(rec.Blocks) != 1 {
		t.Errorf("Load returned %d blocks and error %v, want one block", len(rec.Blocks), err)
	}
	if _, err := memchain.Load(bytes.NewReader(packed.Bytes()[:packed.Len()-10])); err == nil {
		t.Error("Load of truncated gzip data succeeded, want an error")
	}
}

func TestFailedAddDoesNotChangeChain(t *testing.T) {
	c := memchain.New()
	_ = c.Append(at("05")...)
	known := chaingql.Address{Workchain: 1}
	for name, rec := range map[string]memchain.Recording{
		"a block before the newest block": {Blocks: at("04", "06"),
			Balances: map[chaingql.Address]*big.Int{known: big.NewInt(1)}},
		"a negative balance": {Blocks: at("06"), Balances: map[chaingql.Address]*big.Int{known: big.NewInt(-1)}},
		"a nil balance":      {Blocks: at("06"), Balances: map[chaingql.Address]*big.Int{known: nil}},
	} {
		if err := c.Add(rec); err == nil {
			t.Errorf("%s: Add succeeded, want an error", name)
		}
		_, err := c.Balance(t.Context(), known)
		if err == nil || cursors(t, c, chaingql.BlocksQuery{First: 9}) != "05" {
			t.Errorf("%s: Add changed the chain although it failed", name)
		}
	}
}

func TestAddAcceptsAccountWithZeroBalance(t *testing.T) {
	c, empty := memchain.New(), chaingql.Address{Workchain: 1}
	if err := c.Add(memchain.Recording{Balances: map[chaingql.Address]*big.Int{empty: new(big.Int)}}); err != nil {
		t.Fatal(err)
	}
	if nano, err := c.Balance(t.Context(), empty); err != nil || nano.Sign() != 0 {
		t.Errorf("Balance returned %v and error %v, want 0", nano, err)
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
				t.Errorf("Load returned an error with a line break: %q", err)
			}
			return
		}
		if err := memchain.New().Add(rec); err != nil {
			t.Errorf("Load accepted the recording, but Add to an empty chain failed: %v", err)
		}
	})
}
