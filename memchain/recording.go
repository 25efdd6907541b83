package memchain

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
)

// A Recording holds recorded blocks and balances of a real chain. [Load] reads it from a
// file.
type Recording struct {
	// Network is the name or description of the recorded network.
	Network string
	// Blocks holds the recorded blocks, ascending by cursor. The cursor of a block is its
	// recorded chain_order.
	Blocks []chaingql.Block
	// Skipped is the number of blocks that Load skipped because they have no chain_order:
	// their position in the chain is unknown.
	Skipped int
	// Balances holds the newest recorded balance of each account.
	Balances map[chaingql.Address]*big.Int
}

// Load reads a recording from r: one JSON object with blocks, accounts or both.
//
//	{"network": "…",
//	 "blocks": [{"workchain": -1, "shard": "8000000000000000", "seq_no": 1, "hash": "…64 hex digits…",
//	             "gen_utime": 1573822385, "chain_order": "01m"}],
//	 "accounts": [{"address": "-1:…64 hex digits…", "balance": "5000000000", "state_seq_no": 0}]}
//
// The blocks may be in any order. Load skips blocks without chain_order. If an account has
// several rows, Load uses the row with the highest state_seq_no. If the recording deviates
// from the format or has unknown members, Load returns an error that names the row and the
// problem. The recording may be compressed with gzip. Load reads all of it into memory.
func Load(r io.Reader) (Recording, error) {
	rec, err := loadCompressed(r)
	if err != nil {
		return Recording{}, fmt.Errorf("memchain: recording: %w", err)
	}
	return rec, nil
}

// loadCompressed loads a recording and decompresses it if it starts like a gzip file.
func loadCompressed(r io.Reader) (Recording, error) {
	text := bufio.NewReader(r)
	if magic, _ := text.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return load(text)
	}
	unpacked, err := gzip.NewReader(text)
	if err != nil {
		return Recording{}, err
	}
	return load(unpacked)
}

// Add appends the blocks of a recording to the chain and sets the recorded balances, in one
// atomic step. If it returns an error, the chain is unchanged. Add does not keep references
// to the slice, the map or the balances of the recording.
func (c *Chain) Add(rec Recording) error {
	for addr, nano := range rec.Balances {
		if nano == nil || nano.Sign() < 0 {
			return fmt.Errorf("memchain: recording has an invalid balance %v for account %v", nano, addr)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.append(rec.Blocks); err != nil {
		return err
	}
	for addr, nano := range rec.Balances {
		c.balances[addr] = new(big.Int).Set(nano)
	}
	return nil
}

// The JSON objects of a recording. A recording may have the members of type any, but Load
// ignores their values.
type (
	recordedFile struct {
		Network    string            `json:"network"`
		Blocks     []json.RawMessage `json:"blocks"`
		Accounts   []json.RawMessage `json:"accounts"`
		GlobalID   any               `json:"global_id"`
		Provenance any               `json:"provenance"`
		Verified   any               `json:"verified"`
		Runs       any               `json:"runs"`
	}
	recordedBlock struct {
		Workchain      *int32  `json:"workchain"`
		Shard          *string `json:"shard"`
		SeqNo          *uint32 `json:"seq_no"`
		Hash           *string `json:"hash"`
		FileHash       *string `json:"file_hash"`
		PrevHash       *string `json:"prev_hash"`
		GenUtime       *int64  `json:"gen_utime"`
		ChainOrder     *string `json:"chain_order"`
		StartLT        any     `json:"start_lt"`
		EndLT          any     `json:"end_lt"`
		TrCount        any     `json:"tr_count"`
		MasterSeqNo    any     `json:"master_seq_no"`
		MasterRefSeqNo any     `json:"master_ref_seq_no"`
	}
	recordedAccount struct {
		Address       *string `json:"address"`
		Balance       *string `json:"balance"`
		StateSeqNo    *uint32 `json:"state_seq_no"`
		Status        any     `json:"status"`
		LastTransLT   any     `json:"last_trans_lt"`
		StateShard    any     `json:"state_shard"`
		StateGenUtime any     `json:"state_gen_utime"`
	}
)

// load reads a recording that is not compressed.
func load(r io.Reader) (rec Recording, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return rec, err
	}
	var file recordedFile
	if err := decode(data, &file); err != nil {
		return rec, err
	}
	if file.Blocks == nil && file.Accounts == nil {
		return rec, errors.New("object has neither blocks nor accounts")
	}
	rec.Network = file.Network
	for i, row := range file.Blocks {
		b, err := loadBlock(row)
		switch {
		case err != nil:
			return rec, fmt.Errorf("block %d: %w", i+1, err)
		case b.Cursor == "":
			rec.Skipped++
		default:
			rec.Blocks = append(rec.Blocks, b)
		}
	}
	slices.SortStableFunc(rec.Blocks, func(a, b chaingql.Block) int {
		return strings.Compare(string(a.Cursor), string(b.Cursor))
	})
	for i := 1; i < len(rec.Blocks); i++ {
		if c := rec.Blocks[i].Cursor; c == rec.Blocks[i-1].Cursor {
			return rec, fmt.Errorf("two blocks have chain_order %q", c)
		}
	}
	rec.Balances, err = loadAccounts(file.Accounts)
	return rec, err
}

// loadBlock parses and checks one row of blocks. The cursor of the block is empty if the
// row has no chain_order.
func loadBlock(row []byte) (b chaingql.Block, err error) {
	var f recordedBlock
	if err := decode(row, &f); err != nil {
		return b, err
	}
	switch {
	case f.Workchain == nil:
		return b, errors.New("workchain is missing")
	case f.Shard == nil:
		return b, errors.New("shard is missing")
	case f.SeqNo == nil:
		return b, errors.New("seq_no is missing")
	case f.Hash == nil:
		return b, errors.New("hash is missing")
	case f.GenUtime == nil:
		return b, errors.New("gen_utime is missing")
	case *f.GenUtime < 0 || *f.GenUtime > 1<<32-1:
		return b, fmt.Errorf("gen_utime %d is not a 32-bit Unix time in seconds", *f.GenUtime)
	}
	var shard [8]byte
	if err := decodeHex(shard[:], "shard", f.Shard); err != nil {
		return b, err
	}
	if b.Shard = binary.BigEndian.Uint64(shard[:]); b.Shard == 0 {
		return b, errors.New("shard is zero, so it has no terminating bit")
	}
	if err := decodeHex(b.Hash[:], "hash", f.Hash); err != nil {
		return b, err
	}
	var unused chaingql.Hash
	if err := decodeHex(unused[:], "prev_hash", f.PrevHash); err != nil {
		return b, err
	}
	if err := decodeHex(unused[:], "file_hash", f.FileHash); err != nil {
		return b, err
	}
	if f.ChainOrder != nil {
		b.Cursor = chaingql.Cursor(*f.ChainOrder)
		if b.Cursor == "" || !valid(b.Cursor) {
			return b, fmt.Errorf("chain_order %.80q: %w", *f.ChainOrder, chaingql.ErrBadCursor)
		}
	}
	b.Workchain = *f.Workchain
	b.SeqNo = *f.SeqNo
	b.Time = time.Unix(*f.GenUtime, 0).UTC()
	return b, nil
}

// loadAccounts parses and checks the rows of accounts, and returns the newest balance of
// each account.
func loadAccounts(rows []json.RawMessage) (map[chaingql.Address]*big.Int, error) {
	balances := make(map[chaingql.Address]*big.Int, len(rows))
	seen := make(map[chaingql.Address]uint32, len(rows))
	for i, row := range rows {
		var f recordedAccount
		if err := decode(row, &f); err != nil {
			return nil, fmt.Errorf("account %d: %w", i+1, err)
		}
		switch {
		case f.Address == nil:
			return nil, fmt.Errorf("account %d: address is missing", i+1)
		case f.Balance == nil:
			return nil, fmt.Errorf("account %d: balance is missing", i+1)
		case f.StateSeqNo == nil:
			return nil, fmt.Errorf("account %d: state_seq_no is missing", i+1)
		}
		addr, err := chaingql.ParseAddress(*f.Address)
		if err != nil {
			return nil, fmt.Errorf("account %d: address %.80q: %w", i+1, *f.Address, err)
		}
		nano, ok := parseBalance(*f.Balance)
		if !ok {
			return nil, fmt.Errorf("account %d: balance %.80q is not a plain decimal number", i+1, *f.Balance)
		}
		if seqNo, again := seen[addr]; again && seqNo == *f.StateSeqNo {
			return nil, fmt.Errorf("account %d: an earlier row of account %v has state_seq_no %d too", i+1, addr, seqNo)
		} else if again && seqNo > *f.StateSeqNo {
			continue
		}
		seen[addr] = *f.StateSeqNo
		balances[addr] = nano
	}
	return balances, nil
}

// maxDigits is the maximum number of digits of a balance. It is enough for 256 bits, twice
// as many as the network uses.
const maxDigits = 78

// parseBalance parses a decimal number without a sign or leading zeros, and reports whether
// it is valid.
func parseBalance(s string) (*big.Int, bool) {
	if s == "" || len(s) > maxDigits || strings.Trim(s, "0123456789") != "" || (s[0] == '0' && s != "0") {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

// decodeHex decodes the hex digits in s, which must fill dst exactly. If s is nil, it does
// nothing. name is the name of the value in errors.
func decodeHex(dst []byte, name string, s *string) error {
	if s == nil {
		return nil
	}
	digits := hex.EncodedLen(len(dst))
	if len(*s) == digits {
		if _, err := hex.Decode(dst, []byte(*s)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s %.80q is not %d hex digits", name, *s, digits)
}

// decode decodes one JSON object. It returns an error if data is not exactly one object.
func decode(data []byte, into any) error {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] != '{' {
		return fmt.Errorf("%.20q… is not a JSON object", trimmed)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("JSON text is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("JSON text is truncated")
	case errors.As(err, &mistyped):
		return fmt.Errorf("%s: JSON %s is not a valid %v", mistyped.Field, mistyped.Value, mistyped.Type)
	case err != nil:
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the JSON object")
	}
	return nil
}
