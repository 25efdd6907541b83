package tonlite

import (
	"errors"
	"fmt"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
)

// The maximum number of cells in a response, by what the response contains. A limit in bytes
// is not sufficient, because a cell of two bytes needs about 200 bytes of memory.
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

var (
	errCells  = cell.ErrMalformed
	errPruned = errors.New("the proof omits a required part")
	errProof  = errors.New("invalid proof")
)

// recoverPanics calls f and turns a panic into an error, because responses come from untrusted servers.
func recoverPanics(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errCells, p)
		}
	}()
	return f()
}

// unwrapProof returns the root of the tree in a Merkle proof. It returns an error unless that
// root has the given hash.
func unwrapProof(proof *cell.Cell, hash [32]byte) (*cell.Cell, error) {
	if proof.Type() != cell.MerkleProof || proof.Stated(0) != hash {
		return nil, fmt.Errorf("%w: it does not contain the requested cell", errProof)
	}
	return proof.Ref(0)
}

// openCell opens an ordinary cell for reading. It returns errPruned for any other cell, such as a
// pruned branch.
func openCell(c *cell.Cell) (*cell.Slice, error) {
	if c.Type() != cell.Ordinary {
		return nil, errPruned
	}
	return c.Open(), nil
}

// openRef opens the cell to which reference i of c points.
func openRef(c *cell.Cell, i int) (*cell.Slice, error) {
	r, err := c.Ref(i)
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
	n, err := s.Uint(bits)
	s.err = err
	return n
}

func (s *cellReader) readBool() bool { return s.readUint(1) == 1 }

func (s *cellReader) readHash() (h [32]byte) {
	if s.err != nil {
		return h
	}
	var b []byte
	if b, s.err = s.Bytes(256); s.err == nil {
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
