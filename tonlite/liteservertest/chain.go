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

// A Chain contains serialized blocks and the states after some of them. It does not change, so any number
// of servers may serve it.
type Chain struct {
	zeroRoot, zeroFile [32]byte
	init               lite.BlockID // zero if no block is signed
	first, last        uint32       // of the masterchain

	blocks map[lite.BlockID]*block
	names  map[name]lite.BlockID
	states map[[32]byte]*cell.Cell // by the root hash of the block
	signed map[uint32]signature    // of the masterchain

	facts    []chaingql.Block
	balances map[uint32]map[chaingql.Address]*big.Int
}

// A name is the key by which blocks are looked up.
type name struct {
	workchain int32
	shard     uint64
	seqNo     uint32
}

type block struct {
	data []byte
	root *cell.Cell
	key  uint32         // the previous key block; only for the masterchain
	tops []lite.BlockID // only for the masterchain
}

// A signature contains the signatures of a masterchain block.
type signature struct {
	toKey        bool
	set, session uint32
	signatures   []lite.Signature
	candidate    []byte // for which the signatures vote; nil if they sign the block's id
}

func newChain() *Chain {
	return &Chain{
		blocks: make(map[lite.BlockID]*block), names: make(map[name]lite.BlockID),
		states: make(map[[32]byte]*cell.Cell), signed: make(map[uint32]signature),
		balances: make(map[uint32]map[chaingql.Address]*big.Int),
	}
}

// First returns the number of the first masterchain block.
func (c *Chain) First() uint32 { return c.first }

// Last returns the number of the last masterchain block.
func (c *Chain) Last() uint32 { return c.last }

// Blocks returns the blocks of a generated chain, ascending by cursor, and nil for a recorded one.
func (c *Chain) Blocks() []chaingql.Block { return append([]chaingql.Block(nil), c.facts...) }

// Balances returns all balances of a generated chain after a masterchain block, and nil for a recorded one.
func (c *Chain) Balances(seqNo uint32) map[chaingql.Address]*big.Int { return c.balances[seqNo] }

// add adds a block. Its id contains the hashes of data.
func (c *Chain) add(workchain int32, shard uint64, seqNo uint32, data []byte) (lite.BlockID, error) {
	root, err := cell.FromBOC(data)
	if err != nil {
		return lite.BlockID{}, fmt.Errorf("block (%d,%016x,%d): %w", workchain, shard, seqNo, err)
	}
	id := lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: seqNo}
	id.Root, id.File = [32]byte(root.Hash(0)), sha256.Sum256(data)
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
