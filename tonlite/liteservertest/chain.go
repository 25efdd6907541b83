package liteservertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
)

// A Chain is what a [Server] serves: blocks as bytes, and the states after
// some of them. It does not change, so any number of servers may serve it.
type Chain struct {
	zeroRoot, zeroFile [32]byte
	init               lite.BlockID // zero where nothing is signed
	first, last        uint32       // of the masterchain

	blocks map[lite.BlockID]*block
	names  map[name]lite.BlockID
	states map[[32]byte]*cell.Cell // by the root hash of the block
	signed map[uint32]signature    // of the masterchain

	facts    []chaingql.Block
	balances map[uint32]map[chaingql.Address]*big.Int
}

// A name is how blocks are looked up.
type name struct {
	workchain int32
	shard     uint64
	seqNo     uint32
}

type block struct {
	data []byte
	root *cell.Cell
	key  uint32         // the newest key block before it; masterchain alone
	tops []lite.BlockID // masterchain alone
}

// A signature is a set of them: who signed a masterchain block.
type signature struct {
	toKey        bool
	set, session uint32
	signatures   []lite.Signature
	candidate    []byte // that the signatures are votes for; nil for those of a block's name
}

func newChain() *Chain {
	return &Chain{
		blocks: make(map[lite.BlockID]*block), names: make(map[name]lite.BlockID),
		states: make(map[[32]byte]*cell.Cell), signed: make(map[uint32]signature),
		balances: make(map[uint32]map[chaingql.Address]*big.Int),
	}
}

// First and Last are the masterchain blocks at the chain's ends.
func (c *Chain) First() uint32 { return c.first }

// Last is described with [Chain.First].
func (c *Chain) Last() uint32 { return c.last }

// Blocks are the blocks of a chain that was made here, ascending by cursor, as
// its maker knows them; nil for recorded ones.
func (c *Chain) Blocks() []chaingql.Block { return append([]chaingql.Block(nil), c.facts...) }

// Balances are all accounts of a chain that was made here, after a masterchain
// block; nil for recorded ones.
func (c *Chain) Balances(seqNo uint32) map[chaingql.Address]*big.Int { return c.balances[seqNo] }

// add takes a block of which the bytes bear out the id.
func (c *Chain) add(workchain int32, shard uint64, seqNo uint32, data []byte) (lite.BlockID, error) {
	root, err := cell.FromBOC(data)
	if err != nil {
		return lite.BlockID{}, fmt.Errorf("block (%d,%016x,%d): %w", workchain, shard, seqNo, err)
	}
	id := lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: seqNo, Root: [32]byte(root.Hash(0)), File: sha256.Sum256(data)}
	c.blocks[id] = &block{data: data, root: root}
	c.names[name{workchain, shard, seqNo}] = id
	if workchain == masterchain {
		if c.first == 0 || seqNo < c.first {
			c.first = seqNo
		}
		c.last = max(c.last, seqNo)
	}
	return id, nil
}

func (c *Chain) master(seqNo uint32) (lite.BlockID, bool) {
	id, ok := c.names[name{masterchain, wholeShard, seqNo}]
	return id, ok
}

func unhex(s string) (h [32]byte) {
	if n, err := hex.Decode(h[:], []byte(s)); err != nil || n != len(h) {
		panic("liteservertest: no hash: " + s)
	}
	return h
}
