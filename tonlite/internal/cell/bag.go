package cell

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

var bagMagic = []byte{0xb5, 0xee, 0x9c, 0x72}

// A bagOfCells is a serialized bag of cells.
type bagOfCells struct {
	size   int // bytes per reference
	count  int
	roots  []int
	cells  []byte
	starts []uint32 // offset of each cell
}

// openBag parses the header of a bag of cells and finds where each cell begins.
func openBag(data []byte, limit int) (b *bagOfCells, err error) {
	if len(data) < 10 || !bytes.Equal(data[:4], bagMagic) {
		return nil, ErrMalformed
	}
	flags, size, offset := data[4], int(data[4]&7), int(data[5])
	if size < 1 || size > 4 || offset < 1 || offset > 8 || len(data) < 6+3*size+offset {
		return nil, ErrMalformed
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
		return nil, fmt.Errorf("%w: %d cells exceed the limit of %d", ErrMalformed, count, limit)
	}
	if count < 1 || roots > count || length > uint64(len(data)) || 2*count > length {
		return nil, ErrMalformed
	}
	index := at + int(roots)*size
	start := index
	if flags&0x80 != 0 {
		start += int(count) * offset
	}
	end := start + int(length)
	if end > len(data) {
		return nil, ErrMalformed
	}
	b = &bagOfCells{size: size, count: int(count), cells: data[start:end]}
	for range roots {
		root, err := b.reference(-1, data[at:])
		if err != nil {
			return nil, err
		}
		b.roots, at = append(b.roots, root), at+size
	}
	b.starts = make([]uint32, count)
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
			return nil, fmt.Errorf("%w: the index contains a wrong offset", ErrMalformed)
		}
	}
	if cell != len(b.cells) {
		return nil, fmt.Errorf("%w: some bytes do not belong to any cell", ErrMalformed)
	}
	return b, nil
}

// cellSize returns the size in bytes of the first cell in cells. size is the number of bytes per
// reference.
func cellSize(cells []byte, size int) (int, error) {
	if len(cells) < 2 {
		return 0, ErrMalformed
	}
	n := 2 + hashBytes(cells[0]) + (int(cells[1])+1)/2 + int(cells[0]&7)*size
	if cells[0]&7 > 4 || n > len(cells) {
		return 0, ErrMalformed
	}
	return n, nil
}

// hashBytes returns the number of bytes that the hashes and depths stored in a cell occupy.
// descriptor is the first byte of the cell.
func hashBytes(descriptor byte) int {
	if descriptor&16 == 0 {
		return 0
	}
	return (bits.OnesCount8(descriptor>>5) + 1) * (32 + 2)
}

// reference reads a reference, which must point to a later cell than cell i.
func (b *bagOfCells) reference(i int, field []byte) (int, error) {
	to := 0
	for _, x := range field[:b.size] {
		to = to<<8 | int(x)
	}
	if to <= i || to >= b.count {
		return 0, fmt.Errorf("%w: a reference is out of range", ErrMalformed)
	}
	return to, nil
}
