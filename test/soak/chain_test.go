package soak_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
)

const (
	kept     = 3000    // number of blocks that the chain keeps
	first    = 3 * 100 // number of the first block
	accounts = 2000    // queried accounts; the chain knows the first half of them
)

// shards lists the shards in the order of a round's cursors.
var shards = [3]struct {
	workchain int32
	prefix    uint64
}{{0, 0x4000000000000000}, {0, 0xc000000000000000}, {-1, 0x8000000000000000}}

// blockAt returns block n. It depends only on n, except for the hash, which contains the time of
// the commit.
func blockAt(n int, committed time.Time) chaingql.Block {
	s, seqNo := shards[n%3], uint32(n/3)
	b := chaingql.Block{
		Workchain: s.workchain, Shard: s.prefix, SeqNo: seqNo, Time: committed,
		Cursor: chaingql.ChainOrder(s.workchain, s.prefix, seqNo, seqNo),
	}
	binary.BigEndian.PutUint64(b.Hash[:], uint64(committed.UnixNano()))
	binary.BigEndian.PutUint64(b.Hash[24:], uint64(n))
	return b
}

// cursorAt returns the cursor of block n.
func cursorAt(n int) string { return string(blockAt(n, time.Time{}).Cursor) }

// A block is a block in a response.
type block struct {
	Hash        string // alias of id in the subscription
	ID          string
	SeqNo       int    `json:"seq_no"`
	WorkchainID int32  `json:"workchain_id"`
	Shard       string `json:"shard"`
	ChainOrder  string `json:"chain_order"`
}

// number checks a block against the chain and returns its number and commit time.
func (b block) number() (n int, committed time.Time, err error) {
	hash := b.Hash
	if hash == "" {
		hash = b.ID
	}
	raw, err := hex.DecodeString(hash)
	if err != nil || len(raw) != len(chaingql.Hash{}) {
		return 0, committed, fmt.Errorf("hash %q belongs to no block", hash)
	}
	n = int(binary.BigEndian.Uint64(raw[24:]))
	due := blockAt(n, time.Unix(0, int64(binary.BigEndian.Uint64(raw))))
	if b.SeqNo != int(due.SeqNo) || b.WorkchainID != due.Workchain || b.Shard != fmt.Sprintf("%016x", due.Shard) ||
		b.ChainOrder != string(due.Cursor) {
		return 0, committed, fmt.Errorf("block %d has wrong fields: %+v", n, b)
	}
	return n, due.Time, nil
}

// An interest selects every n-th block.
type interest struct {
	name      string
	filter    string // filter of a subscription, as JSON
	workchain string // argument of a query, as JSON
	every     int
	from      int // index of the first one in a round
}

var interests = []interest{
	{"all", "null", "null", 1, 0},
	{"masterchain", `{"workchain_id":{"eq":-1}}`, "-1", 3, 2},
	{"a shard", `{"shard":{"eq":"c000000000000000"}}`, "", 3, 1},
}

// after returns the number of the next selected block after n.
func (i interest) after(n int) int {
	for n++; n%i.every != i.from%i.every; n++ {
	}
	return n
}

// before returns the number of the last selected block before n.
func (i interest) before(n int) int {
	for n--; n%i.every != i.from%i.every; n-- {
	}
	return n
}

func address(account int) chaingql.Address {
	var a chaingql.Address
	binary.BigEndian.PutUint64(a.ID[24:], uint64(account))
	return a
}

func balance(account int) *big.Int {
	if account >= accounts/2 {
		return new(big.Int)
	}
	b := big.NewInt(int64(account) + 7)
	return b.Mul(b, b).Lsh(b, 40)
}
