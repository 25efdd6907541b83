package tonlite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

var (
	errCells  = errors.New("a bag of cells is malformed")
	errPruned = errors.New("a proof omits a required part")
	errProof  = errors.New("invalid proof")
)

// recoverPanics calls f and turns a panic into an error. Cells come from untrusted servers,
// and the library that parses them may panic on malformed ones.
func recoverPanics(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errCells, p)
		}
	}()
	return f()
}

// parseCells parses a bag with the given number of roots and at most limit cells.
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
		return nil, fmt.Errorf("%w: it has %d roots, not %d", errCells, len(cells), roots)
	}
	seen := make(map[*cell.Cell]bool)
	for _, c := range cells {
		if err := checkSpecialCells(c, seen); err != nil {
			return nil, err
		}
	}
	if len(seen) != count { // unused cells would make a valid proof arbitrarily expensive
		return nil, fmt.Errorf("%w: it has unreferenced cells", errCells)
	}
	return cells, nil
}

// checkSpecialCells checks the parts of special cells that no hash covers. The hashes of a
// pruned branch come from its own data, so it must have no references. The hash of a Merkle
// cell covers the hashes that it claims for its references, so these must match: otherwise
// a pruned branch below it, which has another hash at each level, could stand for anything.
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
				return fmt.Errorf("%w: a pruned branch has references", errProof)
			}
		case cell.MerkleProofCellType, cell.MerkleUpdateCellType:
			for i, r := range raw.Refs {
				depth := raw.Data[1+32*len(raw.Refs)+2*i:]
				if string(raw.Data[1+32*i:33+32*i]) != string(r.Hash(0)) || binary.BigEndian.Uint16(depth) != r.Depth(0) {
					return fmt.Errorf("%w: a Merkle cell states another hash or depth than the cell that it refers to", errProof)
				}
			}
		default:
			return fmt.Errorf("%w: a special cell of unknown type", errCells)
		}
	}
	for _, r := range raw.Refs {
		if err := checkSpecialCells(r, seen); err != nil {
			return err
		}
	}
	return nil
}

// unwrapProof returns the tree in a Merkle proof, whose root must have the given hash.
func unwrapProof(proof *cell.Cell, hash [32]byte) (*cell.Cell, error) {
	root, err := cell.UnwrapProof(proof, hash[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProof, err)
	}
	return root, nil
}

// openCell opens an ordinary cell. It returns errPruned for a pruned one.
func openCell(c *cell.Cell) (*cell.Slice, error) {
	if c.GetType() != cell.OrdinaryCellType {
		return nil, errPruned
	}
	return c.BeginParse(), nil
}

// openRef opens a reference of a cell.
func openRef(c *cell.Cell, i int) (*cell.Slice, error) {
	r, err := c.PeekRef(i)
	if err != nil {
		return nil, err
	}
	return openCell(r)
}

// A cellReader reads values from a cell. After its first error all values are zero.
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

func (s *cellReader) expect(bits uint, magic uint64, what string) {
	if s.readUint(bits) != magic && s.err == nil {
		s.err = fmt.Errorf("%s expected", what)
	}
}
