// Package cell parses TON's cells, whose bytes come from untrusted servers.
//
// It is our own because tonutils-go 1.12.0 panics for valid cells: if a contract stores one proof within another, the
// blocks that change it have pruned branches without a level below others, such as with the mask 6. BenchmarkParse
// compares the time for a block.
package cell

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrMalformed is returned for bytes that are not a valid bag of cells, and for reads past the end of a cell.
var ErrMalformed = errors.New("malformed bag of cells")

// A Type is the type of a cell. The first byte of a special cell's data is its type.
type Type byte

// These are the types of cells. A pruned branch stands for a cell that a proof omits, and contains its hashes.
const (
	Ordinary Type = iota
	Pruned
	Library
	MerkleProof
	MerkleUpdate
)

const (
	hashSize = 32
	maxDepth = 1024 // of a tree of cells, in TON
)

// A Cell is a node of a tree of cells, which may share subtrees. It must not be modified.
type Cell struct {
	kind   Type
	mask   byte // bit i is set if the cell differs at level i+1, because a pruned branch below it has that level
	bits   int
	data   []byte // includes the bit that marks the end, if bits is not a multiple of 8
	refs   []*Cell
	hashes [][hashSize]byte // by significant level: 0, and each bit in mask; a pruned branch has only the last one
	depths []uint16         // like hashes
}

// Parse parses a bag of cells and returns its roots. It returns an error unless the bag has exactly the given number of
// roots and at most limit cells, and every cell is valid and referenced. Its work is linear in the bag: it hashes a
// cell once for each level of the pruned branches below it.
func Parse(data []byte, roots, limit int) ([]*Cell, error) {
	b, err := openBag(data, limit)
	if err != nil {
		return nil, err
	}
	if len(b.roots) != roots {
		return nil, fmt.Errorf("%w: %d roots instead of %d", ErrMalformed, len(b.roots), roots)
	}
	cells, referenced := make([]Cell, b.count), make([]bool, b.count)
	for i := b.count - 1; i >= 0; i-- { // references point to later cells
		if err := b.parse(i, cells, referenced); err != nil {
			return nil, err
		}
	}
	all := make([]*Cell, roots)
	for i, root := range b.roots {
		all[i], referenced[root] = &cells[root], true
	}
	for _, is := range referenced { // others could make a valid proof arbitrarily large
		if !is {
			return nil, fmt.Errorf("%w: some cells are not referenced", ErrMalformed)
		}
	}
	return all, nil
}

// parse parses cell i. The cells after it are complete.
func (b *bagOfCells) parse(i int, cells []Cell, referenced []bool) error {
	raw, c := b.cells[b.starts[i]:], &cells[i]
	descriptor, length := raw[0], int(raw[1])
	raw = raw[2+hashBytes(descriptor):]
	c.bits, c.data = length/2*8, raw[:(length+1)/2]
	raw = raw[len(c.data):]
	if length%2 == 1 {
		last := c.data[len(c.data)-1]
		if last&0x7f == 0 {
			return fmt.Errorf("%w: the data of a cell does not end with a mark", ErrMalformed)
		}
		c.bits += 7 - bits.TrailingZeros8(last)
	}
	c.refs = make([]*Cell, descriptor&7)
	for k := range c.refs {
		to, err := b.reference(i, raw[k*b.size:])
		if err != nil {
			return err
		}
		c.refs[k], referenced[to] = &cells[to], true
		c.mask |= cells[to].mask
	}
	if descriptor&8 != 0 {
		if err := c.checkSpecial(); err != nil {
			return err
		}
	}
	if c.mask != descriptor>>5 {
		return fmt.Errorf("%w: the level mask of a cell does not match its pruned branches", ErrMalformed)
	}
	return c.hash()
}

// checkSpecial sets the type and the level mask of a special cell, and checks what its hashes do not cover. A pruned
// branch must have no references, because its hashes come from its own data. A Merkle cell must state the correct hash
// and depth of each cell that it refers to. Otherwise a pruned branch below it, which has a different hash at each
// level, could stand for any content.
func (c *Cell) checkSpecial() error {
	if c.bits < 8 {
		return fmt.Errorf("%w: a special cell has no type", ErrMalformed)
	}
	c.kind = Type(c.data[0])
	size, refs := 0, 0
	switch c.kind {
	case Pruned:
		if c.bits < 16 || c.data[1] == 0 || c.data[1] > 7 {
			return fmt.Errorf("%w: a pruned branch has an invalid level mask", ErrMalformed)
		}
		c.mask = c.data[1]
		size = 2 + bits.OnesCount8(c.mask)*(hashSize+2)
	case Library:
		c.mask, size = 0, 1+hashSize
	case MerkleProof, MerkleUpdate:
		refs = int(c.kind - MerkleProof + 1)
		c.mask, size = c.mask>>1, 1+refs*(hashSize+2)
	default:
		return fmt.Errorf("%w: a special cell has an unknown type", ErrMalformed)
	}
	if c.bits != 8*size || len(c.refs) != refs {
		return fmt.Errorf("%w: a special cell has a wrong size", ErrMalformed)
	}
	for i, r := range c.refs {
		depth := c.data[1+hashSize*refs+2*i:]
		if c.Stated(i) != r.Hash(0) || binary.BigEndian.Uint16(depth) != r.Depth(0) {
			return fmt.Errorf("%w: a Merkle cell states a wrong hash or depth of a reference", ErrMalformed)
		}
	}
	return nil
}

// hash computes the hashes and depths of c, as the TON whitepaper (section 3.1.5) and its descriptions of pruned
// branches and Merkle cells define them. At a level, pruned branches of higher levels count as the cells that they
// stand for.
func (c *Cell) hash() error {
	n, shift, first := bits.OnesCount8(c.mask)+1, 0, 0
	switch c.kind {
	case Pruned:
		first = n - 1 // the others are in the data
	case MerkleProof, MerkleUpdate:
		shift = 1
	}
	c.hashes, c.depths = make([][hashSize]byte, 0, n-first), make([]uint16, 0, n-first)
	var buffer [2 + 128 + 4*(2+hashSize)]byte
	for level, index := 0, 0; index < n; level++ {
		if level > 0 && c.mask>>(level-1)&1 == 0 {
			continue
		}
		if index++; index <= first {
			continue
		}
		special := byte(0)
		if c.kind != Ordinary {
			special = 8
		}
		text := append(buffer[:0], byte(len(c.refs))|special|(c.mask&(1<<level-1))<<5, byte(c.bits/8+(c.bits+7)/8))
		if len(c.hashes) == 0 {
			text = append(text, c.data...)
		} else {
			text = append(text, c.hashes[len(c.hashes)-1][:]...)
		}
		depth := 0
		for _, r := range c.refs {
			below := r.Depth(level + shift)
			text = binary.BigEndian.AppendUint16(text, below)
			depth = max(depth, int(below)+1)
		}
		if depth > maxDepth {
			return fmt.Errorf("%w: the tree is too deep", ErrMalformed)
		}
		for _, r := range c.refs {
			hash := r.Hash(level + shift)
			text = append(text, hash[:]...)
		}
		c.hashes, c.depths = append(c.hashes, sha256.Sum256(text)), append(c.depths, uint16(depth))
	}
	return nil
}

// index returns the index of a level among the significant levels of c.
func (c *Cell) index(level int) int { return bits.OnesCount8(c.mask & (1<<level - 1)) }

// Hash returns the hash of c at a level. At level 0, a pruned branch counts as the cell that it stands for.
func (c *Cell) Hash(level int) (hash [hashSize]byte) {
	i := c.index(level)
	switch {
	case c.kind != Pruned:
		return c.hashes[i]
	case i == bits.OnesCount8(c.mask):
		return c.hashes[0]
	}
	copy(hash[:], c.data[2+hashSize*i:])
	return hash
}

// Depth returns the depth of the tree below c at a level.
func (c *Cell) Depth(level int) uint16 {
	i, n := c.index(level), bits.OnesCount8(c.mask)
	switch {
	case c.kind != Pruned:
		return c.depths[i]
	case i == n:
		return c.depths[0]
	}
	return binary.BigEndian.Uint16(c.data[2+hashSize*n+2*i:])
}

// Type returns the type of c.
func (c *Cell) Type() Type { return c.kind }

// Ref returns the cell to which reference i points.
func (c *Cell) Ref(i int) (*Cell, error) {
	if i >= len(c.refs) {
		return nil, fmt.Errorf("%w: a reference is missing", ErrMalformed)
	}
	return c.refs[i], nil
}

// NumRefs returns the number of references of c.
func (c *Cell) NumRefs() int { return len(c.refs) }

// Stated returns the hash that a Merkle cell states for reference i.
func (c *Cell) Stated(i int) (hash [hashSize]byte) {
	copy(hash[:], c.data[1+hashSize*i:])
	return hash
}
