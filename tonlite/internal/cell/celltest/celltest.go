// Package celltest creates cells for tests, including cells for which tonutils-go panics.
package celltest

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
)

// A Node is a cell that is not serialized yet.
type Node struct {
	Special bool
	Data    []byte
	Marked  bool // the data ends in the last byte, before the lowest bit that is set
	Hashed  bool // hashes and depths are stored with the cell, as nodes do for some cells; here, they are zeros
	Refs    []*Node
}

// Mask returns the level mask of n.
func (n *Node) Mask() (mask byte) {
	for _, r := range n.Refs {
		mask |= r.Mask()
	}
	if !n.Special || len(n.Data) == 0 {
		return mask
	}
	switch cell.Type(n.Data[0]) {
	case cell.Pruned:
		return n.Data[1]
	case cell.MerkleProof, cell.MerkleUpdate:
		return mask >> 1
	}
	return 0
}

// Bag returns a bag of cells with the root n.
func (n *Node) Bag() []byte {
	var order []*Node // parents after the nodes that they refer to
	place := make(map[*Node]int)
	var visit func(n *Node)
	visit = func(n *Node) {
		if _, done := place[n]; done {
			return
		}
		for _, r := range n.Refs {
			visit(r)
		}
		place[n], order = len(order), append(order, n)
	}
	visit(n)
	slices.Reverse(order)
	var cells []byte
	for _, n := range order {
		descriptor := byte(len(n.Refs)) | n.Mask()<<5
		if n.Special {
			descriptor |= 8
		}
		length := 2 * len(n.Data)
		if n.Marked {
			length--
		}
		var stored []byte
		if n.Hashed {
			descriptor |= 16
			stored = make([]byte, (bits.OnesCount8(n.Mask())+1)*(32+2))
		}
		cells = append(append(append(cells, descriptor, byte(length)), stored...), n.Data...)
		for _, r := range n.Refs {
			cells = binary.BigEndian.AppendUint16(cells, uint16(len(order)-1-place[r]))
		}
	}
	bag := []byte{0xb5, 0xee, 0x9c, 0x72, 2, 4}
	for _, field := range []int{len(order), 1, 0} { // cells, roots, absent
		bag = binary.BigEndian.AppendUint16(bag, uint16(field))
	}
	bag = binary.BigEndian.AppendUint32(bag, uint32(len(cells)))
	return append(append(bag, 0, 0), cells...)
}

// Parse returns n as a cell. Its bag must be valid.
func (n *Node) Parse() *cell.Cell {
	roots, err := cell.Parse(n.Bag(), 1, 1<<16)
	if err != nil {
		panic(err)
	}
	return roots[0]
}

// Prune returns a pruned branch that stands for n below the given number of Merkle cells.
func (n *Node) Prune(merkles int) *Node {
	c, mask := n.Parse(), n.Mask()|1<<merkles
	hashes, depths := []byte{byte(cell.Pruned), mask}, []byte(nil)
	for level := range bits.Len8(mask) {
		if level == 0 || mask>>(level-1)&1 == 1 {
			hash := c.Hash(level)
			hashes, depths = append(hashes, hash[:]...), binary.BigEndian.AppendUint16(depths, c.Depth(level))
		}
	}
	return &Node{Special: true, Data: append(hashes, depths...)}
}

// Merkle returns a Merkle cell of the given kind that refers to the nodes.
func Merkle(kind cell.Type, refs ...*Node) *Node {
	data, depths := []byte{byte(kind)}, []byte(nil)
	for _, r := range refs {
		c := r.Parse()
		hash := c.Hash(0)
		data, depths = append(data, hash[:]...), binary.BigEndian.AppendUint16(depths, c.Depth(0))
	}
	return &Node{Special: true, Data: append(data, depths...), Refs: refs}
}
