package tonlite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

var (
	errCells  = errors.New("a bag of cells is damaged")
	errPruned = errors.New("a proof leaves out what it must show")
	errProof  = errors.New("a proof does not prove")
)

// safely makes of a panic an error: cells come from strangers, and the library
// that takes them apart does not always look where it steps.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errCells, p)
		}
	}()
	return f()
}

// parseCells reads a bag of cells with so many roots, and at most limit cells.
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
		if err := sound(c, seen); err != nil {
			return nil, err
		}
	}
	if len(seen) != count { // else a true proof could be made as costly as one likes
		return nil, fmt.Errorf("%w: it has cells that belong to nothing", errCells)
	}
	return cells, nil
}

// sound says whether every special cell is what it says that it is. A pruned
// branch has its hashes from its own data: what hung below it would be covered by
// none. A Merkle cell's hash covers what it says that it holds, and the hash of a
// pruned branch below it at another level: that branch could stand for anything.
func sound(c *cell.Cell, seen map[*cell.Cell]bool) error {
	if seen[c] {
		return nil
	}
	seen[c] = true
	raw := c.ToRawUnsafe()
	if raw.IsSpecial {
		switch c.GetType() {
		case cell.PrunedCellType, cell.LibraryCellType:
			if len(raw.Refs) > 0 {
				return fmt.Errorf("%w: cells hang below a pruned branch", errProof)
			}
		case cell.MerkleProofCellType, cell.MerkleUpdateCellType:
			for i, r := range raw.Refs {
				depth := raw.Data[1+32*len(raw.Refs)+2*i:]
				if string(raw.Data[1+32*i:33+32*i]) != string(r.Hash(0)) || binary.BigEndian.Uint16(depth) != r.Depth(0) {
					return fmt.Errorf("%w: a Merkle cell holds something else", errProof)
				}
			}
		default:
			return fmt.Errorf("%w: a special cell of no known kind", errCells)
		}
	}
	for _, r := range raw.Refs {
		if err := sound(r, seen); err != nil {
			return err
		}
	}
	return nil
}

// proven returns the tree that a Merkle proof shows, whose root has a hash.
func proven(proof *cell.Cell, hash [32]byte) (*cell.Cell, error) {
	root, err := cell.UnwrapProof(proof, hash[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProof, err)
	}
	return root, nil
}

// open reads an ordinary cell; a pruned one is not there to be read.
func open(c *cell.Cell) (*cell.Slice, error) {
	if c.GetType() != cell.OrdinaryCellType {
		return nil, errPruned
	}
	return c.BeginParse(), nil
}

// below opens a reference of a cell.
func below(c *cell.Cell, i int) (*cell.Slice, error) {
	r, err := c.PeekRef(i)
	if err != nil {
		return nil, err
	}
	return open(r)
}

// A scan reads numbers off a cell. After its first error all is zero.
type scan struct {
	*cell.Slice
	err error
}

func (s *scan) number(bits uint) uint64 {
	if s.err != nil {
		return 0
	}
	n, err := s.LoadUInt(bits)
	s.err = err
	return n
}

func (s *scan) flag() bool { return s.number(1) == 1 }

func (s *scan) hash() (h [32]byte) {
	if s.err != nil {
		return h
	}
	var b []byte
	if b, s.err = s.LoadSlice(256); s.err == nil {
		copy(h[:], b)
	}
	return h
}

func (s *scan) expect(bits uint, magic uint64, what string) {
	if s.number(bits) != magic && s.err == nil {
		s.err = fmt.Errorf("no %s where one belongs", what)
	}
}
