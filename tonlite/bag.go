package tonlite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// The maximum number of cells in a response, by what the response contains. A limit in bytes
// is not sufficient, because a cell of two bytes needs about 400 bytes of memory.
const (
	// maxPathCells applies to a proof of one header, one account or one earlier block. A
	// path in a dictionary has at most 256 forks, and each fork has a pruned branch.
	maxPathCells = 1 << 11
	// maxConfigCells applies to a proof of the validators in a key block. There may be a
	// few hundred validators.
	maxConfigCells = 1 << 14
	// maxTreeCells applies to a whole block.
	maxTreeCells = 1 << 16
)

var bagMagic = []byte{0xb5, 0xee, 0x9c, 0x72}

// These are the types of special cells. The first byte of a special cell's data is its type.
const (
	prunedCell       = 1
	libraryCell      = 2
	merkleProofCell  = 3
	merkleUpdateCell = 4
)

// A bagOfCells is a serialized bag of cells, TON's encoding of cell trees, that tonutils-go has
// not parsed yet.
type bagOfCells struct {
	size   int // bytes per reference
	count  int
	cells  []byte
	starts []uint32 // offset of each cell
	masks  []byte   // level mask of each cell, computed from the cells that it refers to
}

// scanBag checks a bag of cells before tonutils-go parses it, and returns the number of cells in
// it. It makes one pass, computes no hashes, and needs five bytes of memory per cell.
//
// tonutils-go allocates memory for each cell that the header announces. It hashes a cell once for
// each level that the cell claims to have, up to four times. scanBag therefore returns an error
// if the bag has more than limit cells, if a cell claims a level that does not follow from the
// pruned branches below it, or if two cells share bytes.
func scanBag(data []byte, limit int) (cells int, err error) {
	b, err := openBag(data, limit)
	if err != nil {
		return 0, err
	}
	for i := b.count - 1; i >= 0; i-- { // references point to later cells
		if err := b.checkLevel(i); err != nil {
			return 0, err
		}
	}
	return b.count, nil
}

// openBag parses the header of a bag of cells and finds where each cell begins.
func openBag(data []byte, limit int) (b *bagOfCells, err error) {
	if len(data) < 10 || !bytes.Equal(data[:4], bagMagic) {
		return nil, errCells
	}
	flags, size, offset := data[4], int(data[4]&7), int(data[5])
	if size < 1 || size > 4 || offset < 1 || offset > 8 || len(data) < 6+3*size+offset {
		return nil, errCells
	}
	at := 6
	next := func(bytes int) uint64 {
		field := make([]byte, 8)
		copy(field[8-bytes:], data[at:at+bytes])
		at += bytes
		return binary.BigEndian.Uint64(field)
	}
	count, roots := next(size), next(size)
	_ = next(size) // absent
	length := next(offset)
	if count > uint64(limit) {
		return nil, fmt.Errorf("%w: %d cells exceed the limit of %d", errCells, count, limit)
	}
	if count < 1 || roots > count || length > uint64(len(data)) || 2*count > length {
		return nil, errCells
	}
	index := at + int(roots)*size
	start := index
	if flags&0x80 != 0 {
		start += int(count) * offset
	}
	end := start + int(length)
	if end > len(data) {
		return nil, errCells
	}
	b = &bagOfCells{size: size, count: int(count), cells: data[start:end]}
	b.starts, b.masks = make([]uint32, count), make([]byte, count)
	cell := 0
	for i := range b.starts {
		b.starts[i] = uint32(cell)
		n, err := cellSize(b.cells[cell:], size)
		if err != nil {
			return nil, err
		}
		cell += n
		if flags&0x80 == 0 {
			continue
		}
		at = index + i*offset
		claimed := next(offset)
		if flags&0x20 != 0 {
			claimed /= 2 // the lowest bit is a hint for caches
		}
		if claimed != uint64(cell) {
			return nil, fmt.Errorf("%w: the index contains a wrong offset", errCells)
		}
	}
	if cell != len(b.cells) {
		return nil, fmt.Errorf("%w: some bytes do not belong to any cell", errCells)
	}
	return b, nil
}

// cellSize returns the size in bytes of the first cell in cells. size is the number of bytes per
// reference.
func cellSize(cells []byte, size int) (int, error) {
	if len(cells) < 2 {
		return 0, errCells
	}
	n := 2 + hashBytes(cells[0]) + (int(cells[1])+1)/2 + int(cells[0]&7)*size
	if cells[0]&7 > 4 || n > len(cells) {
		return 0, errCells
	}
	return n, nil
}

// hashBytes returns the number of bytes that the hashes and depths stored in a cell occupy.
// descriptor is the first byte of the cell.
func hashBytes(descriptor byte) int {
	if descriptor&16 == 0 {
		return 0
	}
	return (bits.Len8(descriptor>>5) + 1) * (32 + 2) // as tonutils-go parses them
}

// checkLevel computes the level mask of cell i from the cells that it refers to, and compares the
// result with the mask that cell i claims.
func (b *bagOfCells) checkLevel(i int) error {
	cell := b.cells[b.starts[i]:]
	descriptor, length := cell[0], (int(cell[1])+1)/2
	data := cell[2+hashBytes(descriptor):][:length]
	refs := cell[2+hashBytes(descriptor)+length:][:int(descriptor&7)*b.size]
	var below byte
	for ; len(refs) > 0; refs = refs[b.size:] {
		field := make([]byte, 4)
		copy(field[4-b.size:], refs[:b.size])
		to := binary.BigEndian.Uint32(field)
		if to <= uint32(i) || to >= uint32(b.count) {
			return fmt.Errorf("%w: a reference is out of range", errCells)
		}
		below |= b.masks[to]
	}
	mask := below
	if descriptor&8 != 0 {
		switch {
		case length < 1:
			return errCells
		case data[0] == prunedCell && length > 1:
			mask = data[1]
		case data[0] == libraryCell:
			mask = 0
		case data[0] == merkleProofCell, data[0] == merkleUpdateCell:
			mask = below >> 1
		default:
			return fmt.Errorf("%w: a special cell has an unknown type", errCells)
		}
	}
	if mask != descriptor>>5 {
		return fmt.Errorf("%w: the level mask of a cell does not match its pruned branches", errCells)
	}
	b.masks[i] = mask
	return nil
}
