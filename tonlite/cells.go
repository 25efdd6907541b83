package tonlite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

var (
	errCells  = errors.New("malformed bag of cells")
	errPruned = errors.New("the proof omits a required part")
	errProof  = errors.New("invalid proof")
)

// recoverPanics calls f and turns a panic into an error. Cells come from untrusted servers, and
// tonutils-go may panic when it parses malformed cells.
func recoverPanics(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errCells, p)
		}
	}()
	return f()
}

// parseCells parses a bag of cells and returns its roots. It returns an error unless the bag has
// exactly the given number of roots and at most limit cells.
func parseCells(data []byte, roots, limit int) ([]*cell.Cell, error) {
	count, err := scanBag(data, limit)
	if err != nil {
		return nil, err
	}
	cells, err := cell.FromBOCMultiRoot(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCells, err)
	}
	if len(cells) != roots {
		return nil, fmt.Errorf("%w: %d roots instead of %d", errCells, len(cells), roots)
	}
	seen := make(map[*cell.Cell]bool)
	for _, c := range cells {
		if err := checkSpecialCells(c, seen); err != nil {
			return nil, err
		}
	}
	if len(seen) != count { // unreferenced cells could make a valid proof arbitrarily large
		return nil, fmt.Errorf("%w: some cells are not referenced", errCells)
	}
	return cells, nil
}

// checkSpecialCells checks the parts of special cells that no hash covers, in c and all cells
// below it. A pruned branch must have no references, because its hashes come from its own data. A
// Merkle cell must state the correct hash and depth of each cell that it refers to. Otherwise a
// pruned branch below the Merkle cell, which has a different hash at each level, could stand for
// any content. seen contains the cells that were already checked.
func checkSpecialCells(c *cell.Cell, seen map[*cell.Cell]bool) error {
	if seen[c] {
		return nil
	}
	seen[c] = true
	raw := c.ToRawUnsafe()
	if raw.IsSpecial {
		switch c.GetType() {
		case cell.PrunedCellType, cell.LibraryCellType:
			if len(raw.Refs) > 0 {
				return fmt.Errorf("%w: a pruned branch or library cell has references", errProof)
			}
		case cell.MerkleProofCellType, cell.MerkleUpdateCellType:
			for i, r := range raw.Refs {
				depth := raw.Data[1+32*len(raw.Refs)+2*i:]
				hash := raw.Data[1+32*i : 33+32*i]
				if string(hash) != string(r.Hash(0)) || binary.BigEndian.Uint16(depth) != r.Depth(0) {
					return fmt.Errorf("%w: a Merkle cell states a wrong hash or depth of a reference", errProof)
				}
			}
		default:
			return fmt.Errorf("%w: a special cell has an unknown type", errCells)
		}
	}
	for _, r := range raw.Refs {
		if err := checkSpecialCells(r, seen); err != nil {
			return err
		}
	}
	return nil
}

// unwrapProof returns the root of the tree in a Merkle proof. It returns an error unless that
// root has the given hash.
func unwrapProof(proof *cell.Cell, hash [32]byte) (*cell.Cell, error) {
	root, err := cell.UnwrapProof(proof, hash[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProof, err)
	}
	return root, nil
}

// openCell opens an ordinary cell for reading. It returns errPruned for any other cell, such as a
// pruned branch.
func openCell(c *cell.Cell) (*cell.Slice, error) {
	if c.GetType() != cell.OrdinaryCellType {
		return nil, errPruned
	}
	return c.BeginParse(), nil
}

// openRef opens the cell to which reference i of c points.
func openRef(c *cell.Cell, i int) (*cell.Slice, error) {
	r, err := c.PeekRef(i)
	if err != nil {
		return nil, err
	}
	return openCell(r)
}

// A cellReader reads values from a cell. After the first error, all further values are zero.
type cellReader struct {
	*cell.Slice
	err error
}

func (s *cellReader) readUint(bits uint) uint64 {
	if s.err != nil {
		return 0
	}
	n, err := s.LoadUInt(bits)
	s.err = err
	return n
}

func (s *cellReader) readBool() bool { return s.readUint(1) == 1 }

func (s *cellReader) readHash() (h [32]byte) {
	if s.err != nil {
		return h
	}
	var b []byte
	if b, s.err = s.LoadSlice(256); s.err == nil {
		copy(h[:], b)
	}
	return h
}

// expect reads a tag with the given number of bits, and fails unless it is the tag of the named
// constructor in TON's TL-B schema.
func (s *cellReader) expect(bits uint, tag uint64, constructor string) {
	if s.readUint(bits) != tag && s.err == nil {
		s.err = fmt.Errorf("malformed cell: %s expected", constructor)
	}
}
