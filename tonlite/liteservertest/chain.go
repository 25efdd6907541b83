package liteservertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
)

// A Chain contains serialized blocks and the states after some of them. A Chain does not change
// after it was created, so any number of Servers may serve it.
type Chain struct {
	zeroRoot, zeroFile [32]byte
	init               lite.BlockID // the init_block of configurations; zero if no block is signed
	first, last        uint32       // seq_nos of the first and the last masterchain block

	blocks map[lite.BlockID]*block
	names  map[name]lite.BlockID
	states map[[32]byte]*cell.Cell // by the root hash of the block
	signed map[uint32]signature    // by the seq_no of the masterchain block

	facts    []chaingql.Block
	balances map[uint32]map[chaingql.Address]*big.Int
}

// A name is the key by which a block is looked up.
type name struct {
	workchain int32
	shard     uint64
	seqNo     uint32
}

type block struct {
	data []byte
	root *cell.Cell
	key  uint32         // seq_no of the previous key block; set for masterchain blocks only
	tops []lite.BlockID // newest block of each shard; set for masterchain blocks only
}

// A signature contains all signatures of one masterchain block.
type signature struct {
	toKey        bool
	set, session uint32
	signatures   []lite.Signature
	candidate    []byte // the candidate for which the signatures vote; nil if they sign the block's id
}

func newChain() *Chain {
	return &Chain{
		blocks: make(map[lite.BlockID]*block), names: make(map[name]lite.BlockID),
		states: make(map[[32]byte]*cell.Cell), signed: make(map[uint32]signature),
		balances: make(map[uint32]map[chaingql.Address]*big.Int),
	}
}

// First returns the seq_no of the first masterchain block.
func (c *Chain) First() uint32 { return c.first }

// Last returns the seq_no of the last masterchain block.
func (c *Chain) Last() uint32 { return c.last }

// Blocks returns all blocks of a generated chain in ascending order of their cursors. It returns
// nil for a recorded chain.
func (c *Chain) Blocks() []chaingql.Block { return append([]chaingql.Block(nil), c.facts...) }

// Balances returns the balances of all accounts in a generated chain, as of the masterchain block
// with the given seq_no. It returns nil for a recorded chain.
func (c *Chain) Balances(seqNo uint32) map[chaingql.Address]*big.Int { return c.balances[seqNo] }

// add parses and adds a block. It returns the block's id, which contains the hashes of data.
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

// commits reports whether the masterchain block with the given seq_no, or one before it, commits to the shard block id.
func (c *Chain) commits(seqNo uint32, id lite.BlockID) bool {
	m, ok := c.master(seqNo)
	return ok && slices.ContainsFunc(c.blocks[m].tops, func(top lite.BlockID) bool {
		return top.Workchain == id.Workchain && lite.Overlap(top.Shard, id.Shard) && id.SeqNo <= top.SeqNo
	})
}

// lookUp returns the block with the seq_no in q. Like a real server, it takes the shard in q as the
// beginning of an account's address: the result is the block of any shard that contains the account.
func (c *Chain) lookUp(q lite.LookupBlock) (id lite.BlockID, ok bool) {
	for own := uint64(wholeShard); own > 0 && !ok; own >>= 1 {
		id, ok = c.names[name{q.Workchain, q.Shard&^(own<<1-1) | own, q.SeqNo}]
	}
	return id, ok
}

func unhex(s string) (h [32]byte) {
	if n, err := hex.Decode(h[:], []byte(s)); err != nil || n != len(h) {
		panic("liteservertest: not a hash in hexadecimal: " + s)
	}
	return h
}
